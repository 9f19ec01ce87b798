package server

import (
	"context"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestCallsAreRefusedWhenTheyHoldTooMuch(t *testing.T) {
	l := newLoad()
	enter := func(bytes int) (func(), sandboxmcp.Code) {
		leave, err := l.enter(t.Context(), bytes, false)
		return leave, sandboxmcp.CodeOf(err)
	}
	first, code := enter(maxLine)
	if code != "" {
		t.Fatalf("the first call: got %s, want it admitted", code)
	}
	second, code := enter(maxArguments - maxLine)
	if code != "" {
		t.Fatalf("a call that fits: got %s, want it admitted", code)
	}
	if _, code = enter(smallArguments + 1); code != sandboxmcp.CodeQueueFull {
		t.Errorf("one more large call: got %q, want queue_full", code)
	}
	small, code := enter(smallArguments)
	if code != "" {
		t.Errorf("a small call beside large ones: got %s, want it admitted", code)
	}
	first()
	again, code := enter(maxLine)
	if code != "" {
		t.Errorf("a large call after one was answered: got %s, want it admitted", code)
	}
	for _, leave := range []func(){second, small, again} {
		leave()
	}
	if l.calls != 0 || l.bytes != 0 {
		t.Errorf("after all answers: got %d calls and %d bytes held, want none", l.calls, l.bytes)
	}
}

func TestTheNumberOfCallsIsBounded(t *testing.T) {
	l := newLoad()
	for range maxCalls {
		if _, err := l.enter(t.Context(), 0, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.enter(t.Context(), 0, false); sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
		t.Errorf("one more call: got %v, want queue_full", err)
	}
}

func TestACancelledCallWaitsForNoLargeAnswer(t *testing.T) {
	l := newLoad()
	for range maxLarge {
		if _, err := l.enter(t.Context(), 0, true); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.enter(ctx, 0, true); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want cancelled", err)
	}
	if l.calls != maxLarge {
		t.Errorf("%d calls are counted, want %d", l.calls, maxLarge)
	}
}
