package kernel

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	_ "embed" // texts of the drivers

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Node and bash can be started before a request needs them. They wait just before they
// open their script, the last point that is the same for all programs.

//go:embed drivers/ahead.cjs
var nodeAheadText string

//go:embed drivers/ahead.sh
var shellAheadText []byte

const shellAhead = ".ahead.sh"

var nodeAheadHook = sync.OnceValue(func() []byte {
	return []byte(strings.NewReplacer("  // @ahead@\n", nodeAheadText, "  // @display@\n", nodeDisplay()).Replace(nodeHookText))
})

// aheadNode returns how to start node ahead of a request. It returns nil if the program
// cannot use such an interpreter.
func aheadNode(p Program) *backend.Prestart {
	if p.FileName != "main.js" { // the file name is fixed when node starts
		return nil
	}
	for name := range p.Env { // variables that node or its libraries read when they start
		if strings.HasPrefix(name, "NODE") || strings.HasPrefix(name, "UV_") || strings.HasPrefix(name, "ICU_") || isLocale(name) {
			return nil
		}
	}
	word := map[string]any{}
	if p.Display != sandboxmcp.DisplayNone {
		word["display"] = p.Display
	}
	if len(p.Env) > 0 { // the whole environment, so that its order is that of a normal start
		word["env"] = environment(p, nil)
	}
	body, err := json.Marshal(word)
	if err != nil {
		return nil
	}
	p.Env = nil
	return &backend.Prestart{
		Env:     environment(p, nil),
		Program: []backend.ProgramFile{{Name: nodeHook, Data: nodeAheadHook()}},
		Begin:   append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...),
	}
}

// aheadShell returns how to start bash ahead of a request, or nil. Other shells cannot
// wait, because they read no file before their script. A program with its own variables
// gets nil, because bash interprets some variables only when it starts.
func aheadShell(p Program) *backend.Prestart {
	if p.FileName != "main.sh" || path.Base(p.Interpreter) != "bash" {
		return nil
	}
	var word strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Env)) { // Network's variables have no meaning to bash, so they can be set later
		if value, ours := p.Network[name]; !ours || value != p.Env[name] || strings.Contains(value, "\n") {
			return nil
		}
		word.WriteString(name + "=" + p.Env[name] + "\n")
	}
	p.Env = nil
	return &backend.Prestart{
		Env:     environment(p, map[string]string{"BASH_ENV": inProgramDir(shellAhead)}),
		Program: append([]backend.ProgramFile{{Name: shellAhead, Data: shellAheadText}}, pythonNames(p)...),
		Begin:   []byte(word.String() + "\n"),
	}
}

// isLocale reports whether the C library reads the variable when a program starts.
func isLocale(name string) bool {
	return name == "TZ" || name == "TZDIR" || name == "LANG" || name == "LANGUAGE" || strings.HasPrefix(name, "LC_")
}
