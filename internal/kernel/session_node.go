package kernel

import (
	"embed"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

//go:embed drivers/session_*.cjs
var nodeFiles embed.FS

const nodeSession = ".session.cjs"

// nodeSessionText is session_node.cjs with the other parts embedded.
var nodeSessionText = sync.OnceValue(func() []byte {
	part := func(name string) string {
		data, err := nodeFiles.ReadFile("drivers/" + name)
		if err != nil {
			panic(err) //nolint:forbidigo // it is embedded
		}
		return string(data)
	}
	text := part("session_node.cjs")
	for _, name := range []string{"session_imports.cjs", "session_sandbox.cjs"} {
		text = strings.Replace(text, "//@"+name+"\n", part(name), 1)
	}
	return []byte(strings.Replace(text, "//@values.cjs\n", nodeValuesText, 1))
})

// planNodeInterpreter plans a node that runs session_node.cjs. Node aborts if callbacks
// do not end in reverse order of their start, as happens when one is interrupted. The
// flag turns that check off.
func planNodeInterpreter(p Program) (backend.Process, error) {
	return backend.Process{
		Argv:     []string{p.Interpreter, "--no-force-async-hooks-checks", inProgramDir(nodeSession)},
		Env:      environment(p, nil),
		Program:  append([]backend.ProgramFile{{Name: nodeSession, Data: nodeSessionText()}}, pythonNames(p)...),
		Channels: 2,
	}, nil
}
