package kernel

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	_ "embed" // what waits

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Interpreters that are started before anybody asks, and wait at the last point
// that is the same for all programs: before their script is looked for.

//go:embed drivers/ahead.cjs
var nodeAheadText string

//go:embed drivers/ahead.sh
var shellAheadText []byte

const shellAhead = ".ahead.sh"

var nodeAheadHook = sync.OnceValue(func() []byte {
	return []byte(strings.NewReplacer("  // @ahead@\n", nodeAheadText, "  // @display@\n", nodeDisplay()).Replace(nodeHookText))
})

// aheadNode says how node is started before it is asked for; nil: it cannot be.
func aheadNode(p Program, fixed map[string]string) *backend.Prestart {
	if p.FileName != "main.js" { // the word does not tell it
		return nil
	}
	for name := range p.Env { // what node or its libraries read at their start
		if strings.HasPrefix(name, "NODE") || strings.HasPrefix(name, "UV_") || strings.HasPrefix(name, "ICU_") || isLocale(name) {
			return nil
		}
	}
	word := map[string]any{}
	if p.Display != sandboxmcp.DisplayNone {
		word["display"] = p.Display
	}
	if len(p.Env) > 0 { // whole, for its order
		word["env"] = environment(p, fixed)
	}
	body, err := json.Marshal(word)
	if err != nil {
		return nil
	}
	p.Env = nil
	return &backend.Prestart{
		Env:     environment(p, fixed),
		Program: []backend.ProgramFile{{Name: nodeHook, Data: nodeAheadHook()}},
		Begin:   append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...),
	}
}

// aheadShell says how bash is started before it is asked for. Other shells read
// nothing before their script; and bash gives variables a meaning that only it can
// when it starts.
func aheadShell(p Program) *backend.Prestart {
	if p.FileName != "main.sh" || path.Base(p.Interpreter) != "bash" {
		return nil
	}
	var word strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Env)) { // those of the network are ours, and mean nothing to bash
		if value, ours := p.Network[name]; !ours || value != p.Env[name] || strings.Contains(value, "\n") {
			return nil
		}
		word.WriteString(name + "=" + p.Env[name] + "\n")
	}
	p.Env = nil
	return &backend.Prestart{
		Env:     environment(p, map[string]string{"BASH_ENV": inProgramDir(shellAhead)}),
		Program: []backend.ProgramFile{{Name: shellAhead, Data: shellAheadText}},
		Begin:   []byte(word.String() + "\n"),
	}
}

// isLocale reports whether a variable is one that C libraries read at the start
// of a program.
func isLocale(name string) bool {
	return name == "TZ" || name == "TZDIR" || name == "LANG" || name == "LANGUAGE" || strings.HasPrefix(name, "LC_")
}
