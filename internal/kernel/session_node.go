package kernel

import (
	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

func planNodeInterpreter(Program) (backend.Process, error) {
	return backend.Process{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "node keeps no state yet")
}
