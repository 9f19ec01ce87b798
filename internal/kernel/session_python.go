package kernel

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// pythonSession is the file name of the driver of Python sessions; session.py says why
// it is so long.
const pythonSession = ".importlib_bootstrap_session.py"

// pythonSessionText is the driver with its parts embedded as strings.
var pythonSessionText = sync.OnceValue(func() []byte { return pythonSessionWhole("session_boot.py") })

// pythonSessionPreload returns the code that loads the driver into a zygote.
func pythonSessionPreload(sets []string) []byte {
	return bytes.ReplaceAll(pythonSessionAhead(), []byte(`"@sets@"`), []byte(pythonList(sets)))
}

var pythonSessionAhead = sync.OnceValue(func() []byte { return pythonSessionWhole("session_preload.py") })

func pythonSessionWhole(name string) []byte {
	var texts []string
	for _, part := range []string{"later.py", "adapt.py", "notebook.py", "magics.py", "sandbox.py", "fix.py"} {
		texts = append(texts, strconv.Quote(part)+": "+strconv.QuoteToASCII(pythonPart(part)))
	}
	driver := pythonWithin(pythonPart("session.py"), inEachProgram...) + "\n" + pythonPart("surroundings.py")
	return []byte(strings.NewReplacer(`"@texts@"`, "{"+strings.Join(texts, ", ")+"}", `"@session.py@"`, strconv.QuoteToASCII(driver)).
		Replace(pythonWithin(pythonPart(name), "session_names.py")))
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
			Program: []backend.ProgramFile{{Name: pythonSession, Data: forkServer(pythonSessionPreload(p.Sets), pythonSessionText())}},
			Fork:    &backend.Fork{Options: len(argv) - 1, Stays: true, Load: pythonImports(p), Check: p.Check},
		}
	}
	return backend.Process{
		Argv:     append(argv, p.Sets...),
		Env:      environment(p, fixed),
		Prestart: ahead,
		Program:  append([]backend.ProgramFile{{Name: pythonSession, Data: pythonSessionText()}}, pythonNames(p)...),
		Channels: 2,
	}, nil
}
