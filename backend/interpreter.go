package backend

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// Interpreter is a program that runs code of a language in a backend's sandboxes. Its paths are
// paths inside the sandbox.
type Interpreter struct {
	Language sandboxmcp.Language
	Path     string // the real binary, absolute
	Version  string // such as "3.11.2"; it may be "3.11" or empty if the exact version needs a start of the program
	Image    string // that has it, for Spec.Image; empty: every sandbox of the backend has it

	// Trees must be shown in a sandbox for the interpreter to start.
	Trees []Tree

	// Virtual says that it is the python of a virtual environment. It finds its packages by a
	// module that it loads at its start.
	Virtual bool

	// TrustedForPreload says that only root can change the files that it loads at its start.
	TrustedForPreload bool

	// TrustedSite says that only root can change the directories in which it looks for packages.
	TrustedSite bool
}

// A Compiler is a Backend whose interpreters load a source text of the server faster in a compiled
// form.
type Compiler interface {
	// Compiled returns the compiled form of a text for an interpreter, or nil if there is none.
	// name is the text's file name in tracebacks. If prepare is not nil, the caller must call it:
	// it makes the form for later calls, and takes as long as a start of the interpreter.
	Compiled(in Interpreter, name string, text []byte) (code []byte, prepare func(context.Context))
}
