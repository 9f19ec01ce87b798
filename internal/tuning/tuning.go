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
	rest()
}

// Server sets the garbage collector, and lets the runtime's monitor thread rest. It is called once, when few
// goroutines run.
func Server() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	rest()
}
