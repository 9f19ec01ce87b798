package backend

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// Interpreter is a program that runs code of a language in a backend's sandboxes.
// Paths are those that a sandbox sees.
type Interpreter struct {
	Language sandboxmcp.Language
	Path     string // the real binary, absolute
	Version  string // such as "3.11.2"; it may be "3.11" or empty where it could only be learnt by starting it

	// Trees have to be shown in a sandbox, so that it starts.
	Trees []Tree

	// Virtual says that it is the python of a virtual environment, which finds its
	// packages by a module that it loads at its start.
	Virtual bool

	// TrustedForPreload says that nobody but root can change what it loads at its start.
	TrustedForPreload bool

	// TrustedSite says the same of the directories in which it looks for packages.
	TrustedSite bool
}

// A Compiler is a Backend whose interpreters load a text of ours faster in a form of
// their own.
type Compiler interface {
	// Compiled returns that form of a text for an interpreter; nil if there is none. name
	// is what tracebacks call it. If prepare is not nil, it makes the form for later
	// calls: it takes as long as a start of the interpreter, and has to be called.
	Compiled(in Interpreter, name string, text []byte) (code []byte, prepare func(context.Context))
}
