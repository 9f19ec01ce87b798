// Package kernel holds the language drivers: how a program of each language is
// started in a sandbox, and what comes back from it on its private channel. It
// is the same on every backend, because it only says what to start and reads
// bytes.
//
// The program text is never rewritten and never an argument: it travels as a
// file, under its own name and with its own line numbers.
package kernel

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Program is one piece of code that is to be run once.
type Program struct {
	Language    sandboxmcp.Language // empty: python
	Code        string
	FileName    string                      // base name that the program sees as its own; empty: main with the language's extension
	Display     sandboxmcp.Display          // of the last expression; a shell has no values, nor have ES modules of node
	Interpreter string                      // absolute path of the real binary
	Version     string                      // of the interpreter, as "20.1.0"; node needs it
	Virtual     bool                        // a python of a virtual environment, which has to find it at its start
	Trusted     bool                        // nobody but root can change the interpreter and what it loads
	Driver      []byte                      // python only: PythonDriver's text as the interpreter's compiled code; nil: the text itself
	Sets        []string                    // directories of package sets of python, each with a site-packages, as the sandbox shows them; one that is not there does no harm
	Preload     []string                    // python only: modules of Sets that an interpreter that is forked may have imported; the sets were hashed
	Loaded      func(context.Context) error // with Preload: fails when other files were imported than those that were hashed; nil: no check
	Env         map[string]string           // added to the environment; see CheckEnv
	Network     map[string]string           // likewise, where Env does not say otherwise: what a sandbox with a network tells its programs; ours, so not checked
	Defaults    map[string]string           // likewise, where Env does not say otherwise; ours, so not checked
}

// Plan says how to start a program: Argv, Env, Program and Channel are set, the
// streams are the caller's. The environment is built from nothing. It fails
// with invalid_filename on a name that is not flat, with invalid_argument on
// an environment that CheckEnv refuses.
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

// CheckFileName refuses, with invalid_filename, what cannot be the base name of
// a program file; the empty name is the default one.
func CheckFileName(name string) error {
	if name == "" {
		return nil
	}
	bad := len(name) > 200 || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") ||
		slices.Contains([]string{pythonDriver, pythonSession, nodeHook, shellAhead}, name)
	for _, r := range name {
		bad = bad || r < ' ' || r == 0x7f || r == '\uFFFD'
	}
	if bad {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidFilename, "%s cannot be the name of a program file", sandboxmcp.Quote(name))
	}
	return nil
}

// inProgramDir is the path under which a program file is seen in the sandbox.
func inProgramDir(name string) string { return path.Join(backend.ProgramDir, name) }

// planShell runs bash, or sh, on the file. Started so, neither reads a start-up
// file: the variables that would name one are not in the environment.
func planShell(p Program) backend.Process {
	return backend.Process{
		Argv:     []string{p.Interpreter, inProgramDir(p.FileName)},
		Env:      environment(p, nil),
		Prestart: aheadShell(p),
		Program:  []backend.ProgramFile{{Name: p.FileName, Data: []byte(p.Code)}},
	}
}
