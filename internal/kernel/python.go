package kernel

import (
	"bytes"
	_ "embed" // texts of the drivers
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// The drivers' texts are assembled from the parts in drivers by tools/drivers.
var (
	//go:embed assembled/driver.py
	pythonText []byte
	//go:embed assembled/forkserver.py
	pythonForkServer []byte
	//go:embed assembled/imports.py
	pythonAhead string
)

// pythonDriver is the driver's file name; boot.py says why it is so long.
const pythonDriver = ".importlib_bootstrap.py"

// pythonGuard is the file name of Program.Guard. boot.py has it, too.
const pythonGuard = ".sandboxmcp_guard.py"

// pythonImports returns the code that imports p.Preload from package sets, or nil if
// nothing can be imported ahead.
func pythonImports(p Program) []byte {
	if !canPreload(p) {
		return nil
	}
	text := strings.Replace(pythonAhead, `"@sets@"`, pythonList(p.Sets), 1)
	return []byte(strings.Replace(text, `"@modules@"`, pythonList(p.Preload), 1))
}

// pythonList returns a Python list literal of strings.
func pythonList(all []string) string {
	var quoted []string
	for _, v := range all {
		quoted = append(quoted, strconv.QuoteToASCII(v))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// PythonDriver returns the file name and the text of the driver of Python programs. An
// interpreter can compile the text; Program.Driver takes the result.
func PythonDriver() (name string, text []byte) { return pythonDriver, pythonText }

func planPython(p Program) backend.Process {
	p.Names = nil // a program that starts Python has sys.executable
	display := "none"
	if p.Display != sandboxmcp.DisplayNone {
		display = string(p.Display)
		if p.Display.ShowsValues() && endsQuietly(p.Code) {
			display = "quiet" // shows no value, but still reports syntax errors as such
		}
	}
	driver := p.Driver
	if driver == nil {
		driver = pythonText
	}
	argv := []string{p.Interpreter}
	if canDeferSite(p) {
		argv = append(argv, "-S")
	}
	fixed := map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}
	ahead := alonePython(p, fixed)
	if canFork(p) {
		ahead = &backend.Prestart{
			Alone: ahead,
			Argv:  append(slices.Clone(argv), inProgramDir(pythonDriver), "none", inProgramDir("main.py")), Env: environment(Program{Interpreter: p.Interpreter, Defaults: p.Defaults}, fixed),
			Program: []backend.ProgramFile{{Name: pythonDriver, Data: pythonForkServer}},
			Fork:    &backend.Fork{Options: len(argv), Load: pythonImports(p), Check: p.Check},
		}
	}
	files := []backend.ProgramFile{{Name: p.FileName, Data: []byte(p.Code)}, {Name: pythonDriver, Data: driver}}
	if p.Guard != nil {
		display = "guard " + display
		files = append(files, backend.ProgramFile{Name: pythonGuard, Data: p.Guard})
	}
	return backend.Process{
		Argv:     append(append(argv, inProgramDir(pythonDriver), display, inProgramDir(p.FileName)), p.Sets...),
		Env:      environment(p, fixed),
		Prestart: ahead,
		Program:  files,
		Channels: 1,
	}
}

// WaitingPythonDriver returns the driver for an interpreter that waits just before it opens its program. driver is
// the compiled driver; nil: the text. The result is nil if such an interpreter cannot wait. boot.py says how the
// driver is changed.
func WaitingPythonDriver(driver []byte) []byte {
	begins, waits := []byte("begins at once"), []byte("waits for word")
	if driver == nil {
		driver = pythonText
	}
	if bytes.Count(driver, begins) != 1 {
		return nil
	}
	return bytes.Replace(driver, begins, waits, 1)
}

// alonePython returns how an interpreter is started in advance and waits, or nil.
func alonePython(p Program, fixed map[string]string) *backend.Prestart {
	if len(p.Env) > 0 || p.Guard != nil || p.Waiting == nil {
		return nil
	}
	return &backend.Prestart{
		Env:     environment(p, fixed),
		Program: []backend.ProgramFile{{Name: pythonDriver, Data: p.Waiting}},
		Begin:   []byte{'\n'},
	}
}

// canFork reports whether the program can run in a fork of a zygote. The zygote starts
// without the program's variables, so these may not include one that matters at start.
func canFork(p Program) bool {
	for name := range p.Env {
		if isLocale(name) {
			return false
		}
	}
	return p.Trusted && canDeferSite(p)
}

// canPreload reports whether the program can use packages that were imported before its
// variables were set. These may not include one that packages read when imported. A guard
// judges in an interpreter that has run no code of packages: that could change what it says.
func canPreload(p Program) bool {
	if p.Guard != nil {
		return false
	}
	for name := range p.Env {
		_, ok := p.Defaults[name]
		if ok || slices.ContainsFunc(readByImports, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return false
		}
	}
	return len(p.Preload) > 0
}

// readByImports are prefixes of the variables that packages of the package sets, and
// their libraries, read when they are imported. CheckEnv refuses those of Python itself.
var readByImports = []string{
	"NUMPY_", "NPY_", "OMP_", "OPENBLAS_", "GOTO_", "MKL_", "BLIS_", "KMP_", "GOMP_", "VECLIB_", "NUMEXPR_",
	"MPL", "PANDAS_", "SCIPY_", "SKLEARN_", "JOBLIB_", "PILLOW_", "ARROW_", "XDG_", "QT_", "DISPLAY",
}

// canDeferSite reports whether the interpreter can start without its "site" module, which
// takes a third to three quarters of a small program's time. The driver then does the
// work of site when a program imports a package. It needs sys.stdlib_module_names, which
// exists since Python 3.10. A virtual environment needs site at the start.
func canDeferSite(p Program) bool {
	major, rest, _ := strings.Cut(p.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && major == "3" && n >= 10 && !p.Virtual
}
