package stack_test

import (
	"testing"
	"unsafe"

	"github.com/sandboxmcp/sandboxmcp/internal/stack"
)

// TestGrowMovesTheStack: a goroutine's stack that becomes larger moves, so that a variable on it gets another address.
func TestGrowMovesTheStack(t *testing.T) {
	moved := make(chan bool)
	go func() {
		var x int
		before := uintptr(unsafe.Pointer(&x))
		stack.Grow()
		moved <- uintptr(unsafe.Pointer(&x)) != before
	}()
	if !<-moved {
		t.Error("got the same stack, want a larger one")
	}
}
