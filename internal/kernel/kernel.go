// Package kernel holds the language drivers. For each language it says how to start a
// program in a sandbox, and it reads the frames that the driver writes to its private
// channel. It works with every backend, because it starts nothing itself.
//
// The text of a program is never rewritten and never passed as an argument. It is a
// file in the sandbox, with its own name and its own line numbers.
package kernel

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Program is a piece of code to run once, with its interpreter.
type Program struct {
	Language    sandboxmcp.Language // empty: python
	Code        string
	FileName    string             // base name that the program sees as its own; empty: main with the language's extension
	Display     sandboxmcp.Display // how to show the last expression; shells and ES modules of node have no values
	Interpreter string             // absolute path of the binary
	Version     string             // version of the interpreter, such as "20.1.0"; required for node
	Virtual     bool               // the interpreter belongs to a Python virtual environment
	Trusted     bool               // only root can change the interpreter and the files that it loads
	Driver      []byte             // python only: the text of PythonDriver, compiled by this interpreter; nil: use the text
	Waiting     []byte             // python only: WaitingPythonDriver of Driver or of an earlier form of it; nil: the interpreter is not started in advance
	Guard       []byte             // python only: text that defines refused(code), or its compiled form; see Report.Refused; then nothing of Preload is imported before; nil: every program runs
	Python      string             // absolute path of the Python that "python" and "python3" start; for other languages than python, empty: none
	Names       []string           // those of "python" and "python3" that PATH does not lead to Python; the program gets files of these names
	Sets        []string           // directories of Python package sets, each with a site-packages, by their path in the sandbox; missing ones are ignored
	Modules     []string           // directories of Node.js packages, by their path in the sandbox
	Preload     []string           // python only: modules of Sets that a forked interpreter may have imported before
	Check       backend.LoadCheck  // with Preload: fails if a file of the sets is not the one that was installed; nil: no check
	Env         map[string]string  // the caller's variables; see CheckEnv
	Network     map[string]string  // proxy variables of a sandbox with a network; Env wins; not checked
	Defaults    map[string]string  // further variables of the server; Env wins; not checked
}

// Plan returns how to start a program. It sets Argv, Env, Program and Channels, and the
// ways to prepare the interpreter ahead; the caller adds the streams. The environment
// inherits nothing from the server. Plan fails with invalid_filename if the file name
// has a directory, and with invalid_argument if CheckEnv refuses the environment.
func Plan(p Program) (backend.Process, error) {
	if p.Language == "" {
		p.Language = sandboxmcp.Python
	}
	if err := checkEnv(p.Env, wholeEnv); err != nil {
		return backend.Process{}, err
	}
	if len(p.Network) > 0 {
		env := maps.Clone(p.Network)
		maps.Copy(env, p.Env)
		p.Env = env
	}
	if !path.IsAbs(p.Interpreter) {
		return backend.Process{}, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "the interpreter %s has no absolute path", sandboxmcp.Quote(p.Interpreter))
	}
	if p.FileName == "" {
		p.FileName = "main" + map[sandboxmcp.Language]string{sandboxmcp.Python: ".py", sandboxmcp.Node: ".js", sandboxmcp.Shell: ".sh"}[p.Language]
	}
	if err := CheckFileName(p.FileName); err != nil {
		return backend.Process{}, err
	}
	if p.Language != sandboxmcp.Python && !p.Display.ShowsValues() {
		p.Display = sandboxmcp.DisplayNone
	}
	switch p.Language {
	case sandboxmcp.Python:
		return planPython(p), nil
	case sandboxmcp.Node:
		return planNode(p), nil
	case sandboxmcp.Shell:
		return planShell(p), nil
	}
	return backend.Process{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "language %s is not supported", sandboxmcp.Quote(string(p.Language)))
}

// CheckFileName fails with invalid_filename if name cannot be the base name of a program
// file. The empty name means the default and is valid.
func CheckFileName(name string) error {
	if name == "" {
		return nil
	}
	bad := len(name) > 200 || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") ||
		slices.Contains([]string{pythonDriver, pythonGuard, pythonSession, nodeHook, shellAhead, "python", "python3"}, name)
	for _, r := range name {
		bad = bad || r < ' ' || r == 0x7f || r == '\uFFFD'
	}
	if bad {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidFilename, "%s cannot be the name of a program file", sandboxmcp.Quote(name))
	}
	return nil
}

// inProgramDir returns the path of a program file in the sandbox.
func inProgramDir(name string) string { return path.Join(backend.ProgramDir, name) }

// planShell runs bash or sh on the file. Neither reads a start-up file, because the
// environment has no variable that names one.
func planShell(p Program) backend.Process {
	return backend.Process{
		Argv:     []string{p.Interpreter, inProgramDir(p.FileName)},
		Env:      environment(p, nil),
		Prestart: aheadShell(p),
		Program:  append([]backend.ProgramFile{{Name: p.FileName, Data: []byte(p.Code)}}, pythonNames(p)...),
	}
}

// pythonNames returns a file for each name that has to start Python.
func pythonNames(p Program) []backend.ProgramFile {
	python := p.Python
	if p.Language == sandboxmcp.Python {
		python = p.Interpreter
	}
	var files []backend.ProgramFile
	for _, name := range p.Names {
		text := "#!/bin/sh\nexec '" + strings.ReplaceAll(python, "'", `'\''`) + "' \"$@\"\n"
		files = append(files, backend.ProgramFile{Name: name, Data: []byte(text), Exec: true})
	}
	return files
}
