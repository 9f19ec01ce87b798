package kernel

import (
	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

func planShellInterpreter(Program) (backend.Process, error) {
	return backend.Process{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "the shell keeps no state yet")
}

// shellCell is a cell as the shell's driver reads it.
func shellCell(id uint64, c Cell) ([]byte, error) { return frameOf(id, c) }
