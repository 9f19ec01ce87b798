package kernel

import (
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// pythonSession is the file name of the driver of Python's sessions; session.py
// says why it is so long.
const pythonSession = ".importlib_bootstrap_session.py"

// pythonSessionText is the driver with all its parts in it as strings. The only
// code of __main__ that is not the user's starts it, and leaves no name there.
var pythonSessionText = sync.OnceValue(func() []byte {
	var b strings.Builder
	b.WriteString("def boot():\n    names = {'__builtins__': dict(__builtins__.__dict__), '__name__': 'sandboxmcp', 'main': globals(), 'driver': boot.__code__.co_filename, 'texts': {")
	for _, name := range []string{"later.py", "notebook.py", "magics.py", "sandbox.py"} {
		b.WriteString(strconv.Quote(name) + ": " + strconv.QuoteToASCII(pythonPart(name)) + ", ")
	}
	b.WriteString("}}\n    del names['main']['boot']\n    exec(compile(" + strconv.QuoteToASCII(pythonPart("session.py")+"\n"+pythonPart("surroundings.py")) + ", names['driver'], 'exec'), names)\n    names['begin']()\n    names['serve']()\n\n\nboot()\n")
	return []byte(b.String())
})

// planPythonInterpreter starts the interpreter with its "site" module, unlike
// planPython: a session begins once, and then lasts.
func planPythonInterpreter(p Program) (backend.Process, error) {
	return backend.Process{
		Argv:    append([]string{p.Interpreter, inProgramDir(pythonSession)}, p.Sets...),
		Env:     environment(p, map[string]string{"PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}),
		Program: []backend.ProgramFile{{Name: pythonSession, Data: pythonSessionText()}},
		Channel: true,
	}, nil
}
