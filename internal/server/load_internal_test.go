package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestCallsAreRefusedWhenTheyHoldTooMuch(t *testing.T) {
	l := newLoad()
	enter := func(bytes int) (func(), sandboxmcp.Code) {
		leave, err := l.enter(t.Context(), "a", bytes, false)
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

// TestTheNumberOfCallsIsBounded: of all callers together, and one caller leaves room for others.
func TestTheNumberOfCallsIsBounded(t *testing.T) {
	l := newLoad()
	fill := func(caller string) (admitted int, leave func()) {
		for {
			next, err := l.enter(t.Context(), caller, 0, false)
			if err != nil {
				if sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
					t.Fatalf("one call more: got %v, want queue_full", err)
				}
				return admitted, leave
			}
			admitted, leave = admitted+1, next
		}
	}
	var leaves []func()
	for _, c := range []struct {
		caller string
		want   int
	}{{"a", maxCalls / 2}, {"b", maxCalls / 4}, {"c", maxCalls / 8}} {
		got, leave := fill(c.caller)
		if got != c.want {
			t.Errorf("caller %s: got %d calls, want %d", c.caller, got, c.want)
		}
		leaves = append(leaves, leave)
	}
	for _, leave := range leaves {
		leave()
	}
	if want := maxCalls*7/8 - len(leaves); l.calls != want {
		t.Errorf("after some answers: got %d calls, want %d", l.calls, want)
	}
	for i := range maxCalls {
		_, _ = fill(fmt.Sprint(i))
	}
	if l.calls > maxCalls {
		t.Errorf("got %d calls of many callers, want at most %d", l.calls, maxCalls)
	}
}

func TestACancelledCallWaitsForNoLargeAnswer(t *testing.T) {
	l := newLoad()
	for range maxLarge {
		if _, err := l.enter(t.Context(), "a", 0, true); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.enter(ctx, "a", 0, true); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want cancelled", err)
	}
	if l.calls != maxLarge {
		t.Errorf("%d calls are counted, want %d", l.calls, maxLarge)
	}
}
