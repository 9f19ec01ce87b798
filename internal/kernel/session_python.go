package kernel

import (
	"bytes"
	_ "embed" // texts of the drivers
	"slices"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// pythonSession is the file name of the driver of Python sessions; session.py says why
// it is so long.
const pythonSession = ".importlib_bootstrap_session.py"

//go:embed assembled/session.py
var pythonSessionText []byte

//go:embed assembled/session_forkserver.py
var pythonSessionServer []byte

// pythonSessionServes returns the text of a fork server whose sessions see the sets.
func pythonSessionServes(sets []string) []byte {
	return bytes.Replace(pythonSessionServer, []byte(`"@sets@"`), []byte(pythonList(sets)), 1)
}

// planPythonInterpreter plans a fork of a zygote where that is possible: forks share
// most of the memory of an idle interpreter.
func planPythonInterpreter(p Program) (backend.Process, error) {
	argv, fixed := []string{p.Interpreter}, map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
	if canDeferSite(p) {
		argv = append(argv, "-S")
	}
	argv = append(argv, inProgramDir(pythonSession))
	var ahead *backend.Prestart
	if canFork(p) {
		ahead = &backend.Prestart{
			Argv: slices.Clone(argv), Env: environment(Program{Interpreter: p.Interpreter, Defaults: p.Defaults}, fixed),
			Program: []backend.ProgramFile{{Name: pythonSession, Data: pythonSessionServes(p.Sets)}},
			Fork:    &backend.Fork{Options: len(argv) - 1, Stays: true, Load: pythonImports(p), Check: p.Check},
		}
	}
	return backend.Process{
		Argv:     append(argv, p.Sets...),
		Env:      environment(p, fixed),
		Prestart: ahead,
		Program:  append([]backend.ProgramFile{{Name: pythonSession, Data: pythonSessionText}}, pythonNames(p)...),
		Channels: 2,
	}, nil
}
