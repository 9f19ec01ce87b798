// Package stack makes the stack of a goroutine large at once.
//
// A stack begins small and doubles when a call does not fit. Each time the runtime copies it, and looks up each of its
// frames in tables of the program's file. A process that has just started has to read these first.
package stack

// init serves the goroutine that initializes the packages and runs main. This package imports no other,
// so that Go initializes it before almost all others.
func init() { Grow() }

// Grow gives the goroutine that calls it a stack of 32 KiB, if it has a smaller one.
func Grow() { reserve(false) }

// reserve has a large frame, for which the runtime makes room before the call. The frame is not touched unless use is set.
//
//go:noinline
func reserve(use bool) {
	if use {
		var frame [20 << 10]byte
		fill(frame[:])
	}
}

//go:noinline
func fill(frame []byte) {
	for i := range frame {
		frame[i] = 1
	}
}
