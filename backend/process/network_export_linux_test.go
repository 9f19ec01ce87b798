package process

import (
	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// EndInit ends a sandbox's init as the kernel does it.
func EndInit(sb backend.Sandbox) error { return unix.Kill(sb.(*sandbox).slot.PID(), unix.SIGKILL) }
