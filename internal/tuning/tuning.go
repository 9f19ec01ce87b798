// Package tuning sets the Go runtime as a server or a command needs it.
package tuning

import "runtime/debug"

// Requests allocate in short bursts, so a high percentage costs little memory and avoids most collections. The memory
// limit makes the collector run often if one huge message has filled the heap. A command allocates about 32 MiB before its
// first collection. Most commands end before that.
const (
	gcPercent        = 400
	memoryLimit      = 256 << 20
	commandGCPercent = 800
)

// Command sets the runtime for a command, which ends soon.
func Command() {
	debug.SetGCPercent(commandGCPercent)
	_ = rest()
}

// Server sets the garbage collector, and lets the runtime's monitor thread rest. It is called once, when few
// goroutines run.
func Server() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	_ = rest()
}

// Restart executes the program of this process again, with these arguments and this environment, if the process may not let the
// runtime's monitor thread alone rest, as that of an ordinary user may not. All threads that the runtime makes before main
// then rest. It must be called before the process reads its input or starts anything. It returns if there is nothing to do:
// as root, in the program that was executed again, and if executing it failed.
func Restart(argv, env []string) { restart(argv, env) }
