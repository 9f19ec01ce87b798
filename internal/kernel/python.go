package kernel

import (
	"embed"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

//go:embed drivers/*.py
var pythonFiles embed.FS

// pythonDriver is the driver's file name; boot.py says why it is so long.
const pythonDriver = ".importlib_bootstrap.py"

// pythonText is boot.py with the other parts in it: one file that is always
// there, even when the program has used up its descriptors.
var pythonText = sync.OnceValue(func() []byte { return []byte(pythonWhole("boot.py")) })

// pythonWhole is the text of a part with the others in it: as code, or as strings
// that are compiled when they are needed.
func pythonWhole(name string) string {
	text := pythonWithin(pythonPart(name), "paths.py")
	for _, name := range []string{"later.py", "slow.py"} {
		text = strings.Replace(text, `"@`+name+`@"`, strconv.QuoteToASCII(pythonPart(name)), 1)
	}
	return text
}

// pythonWithin is a text with a part in it as code, where its place is.
func pythonWithin(text, name string) string {
	place := `"@` + name + `@"`
	before, _, found := strings.Cut(text, place)
	if !found {
		return text
	}
	indent := before[strings.LastIndexByte(before, '\n')+1:]
	return strings.Replace(text, place, strings.ReplaceAll(strings.TrimSpace(pythonPart(name)), "\n", "\n"+indent), 1)
}

// pythonImports is the text that imports modules of package sets; nil: none are to
// be imported.
func pythonImports(p Program) []byte {
	if !canPreload(p) {
		return nil
	}
	text := strings.Replace(pythonAhead(), `"@sets@"`, pythonList(p.Sets), 1)
	return []byte(strings.Replace(text, `"@modules@"`, pythonList(p.Preload), 1))
}

// What every run needs is made once.
var (
	pythonAhead   = sync.OnceValue(func() string { return pythonWhole("imports.py") })
	pythonPreload = sync.OnceValue(func() []byte { return []byte(pythonPart("preload.py")) })

	pythonForkServer = sync.OnceValue(func() []byte { return forkServer(pythonPreload(), pythonText()) })
	pythonServes     = sync.OnceValue(func() []byte { return []byte(pythonPart("forkserver.py")) })
)

// forkServer is the text of an interpreter that waits to be forked: what runs before
// it waits, in the names of the script, and imports nothing but the interpreter's own
// modules; then what waits; then the script, which runs in forks.
func forkServer(before, script []byte) []byte {
	return slices.Concat(before, []byte("\n"), pythonServes(), []byte("\n"), script)
}

// pythonList is a list of strings as Python writes it.
func pythonList(all []string) string {
	var quoted []string
	for _, v := range all {
		quoted = append(quoted, strconv.QuoteToASCII(v))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// pythonPart is the text of one part of the drivers, without its comments.
func pythonPart(name string) string {
	data, err := pythonFiles.ReadFile("drivers/" + name)
	if err != nil {
		panic(err) //nolint:forbidigo // it is embedded
	}
	var kept []string
	for line := range strings.SplitSeq(string(data), "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// PythonDriver is the driver of Python programs: the name that its file has and
// its text, for an interpreter to compile into a Program's Driver.
func PythonDriver() (name string, text []byte) { return pythonDriver, pythonText() }

func planPython(p Program) backend.Process {
	display := "none"
	if p.Display != sandboxmcp.DisplayNone {
		display = string(p.Display)
		if endsQuietly(p.Code) {
			display = "quiet" // wrong syntax is still refused
		}
	}
	driver := p.Driver
	if driver == nil {
		driver = pythonText()
	}
	argv := []string{p.Interpreter}
	if canDeferSite(p) {
		argv = append(argv, "-S")
	}
	fixed := map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}
	var ahead *backend.Prestart
	if canFork(p) {
		ahead = &backend.Prestart{
			Argv: append(slices.Clone(argv), inProgramDir(pythonDriver), "none", inProgramDir("main.py")), Env: environment(Program{Interpreter: p.Interpreter, Defaults: p.Defaults}, fixed),
			Program: []backend.ProgramFile{{Name: pythonDriver, Data: pythonForkServer()}},
			Fork:    &backend.Fork{Options: len(argv), Load: pythonImports(p), Loaded: p.Loaded},
		}
	}
	return backend.Process{
		Argv:     append(append(argv, inProgramDir(pythonDriver), display, inProgramDir(p.FileName)), p.Sets...),
		Env:      environment(p, fixed),
		Prestart: ahead,
		Program: []backend.ProgramFile{
			{Name: p.FileName, Data: []byte(p.Code)},
			{Name: pythonDriver, Data: driver},
		},
		Channel: true,
	}
}

// canFork reports whether an interpreter that started without the program's own
// variables is as one that started with them.
func canFork(p Program) bool {
	for name := range p.Env {
		if isLocale(name) {
			return false
		}
	}
	return p.Trusted && canDeferSite(p)
}

// canPreload reports whether packages that were imported without the program's
// own variables are as those that were imported with them.
func canPreload(p Program) bool {
	for name := range p.Env {
		if _, ok := p.Defaults[name]; ok {
			return false
		}
	}
	return len(p.Preload) > 0
}

// canDeferSite reports whether the driver can do at need what the interpreter's
// "site" module does at every start: a third to three quarters of the time of a
// small program. It has to know which modules are the interpreter's own, which
// it does from 3.10 on, and a virtual environment is found by site itself.
func canDeferSite(p Program) bool {
	major, rest, _ := strings.Cut(p.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && major == "3" && n >= 10 && !p.Virtual
}
