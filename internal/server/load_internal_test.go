package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestCallsAreRefusedWhenTheyHoldTooMuch(t *testing.T) {
	l := newLoad()
	enter := func(bytes int) (func(), sandboxmcp.Code) {
		in, err := l.enter(t.Context(), inCall{caller: "a", alone: true, arguments: bytes})
		if err != nil {
			return nil, sandboxmcp.CodeOf(err)
		}
		return in.leave, ""
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
	if calls, bytes := l.calls.Held(), l.arguments.Held(); calls != 0 || bytes != 0 {
		t.Errorf("after all answers: got %d calls and %d bytes held, want none", calls, bytes)
	}
}

// TestTheNumberOfCallsIsBounded: of all callers together, and one caller leaves room for others.
func TestTheNumberOfCallsIsBounded(t *testing.T) {
	l := newLoad()
	fill := func(caller string) (admitted int, leave func()) {
		for {
			next, err := l.enter(t.Context(), inCall{caller: caller})
			if err != nil {
				if sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
					t.Fatalf("one call more: got %v, want queue_full", err)
				}
				return admitted, leave
			}
			admitted, leave = admitted+1, next.leave
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
	if got, want := l.calls.Held(), int64(maxCalls*7/8-len(leaves)); got != want {
		t.Errorf("after some answers: got %d calls, want %d", got, want)
	}
	for i := range maxCalls {
		_, _ = fill(fmt.Sprint(i))
	}
	if got := l.calls.Held(); got > maxCalls {
		t.Errorf("got %d calls of many callers, want at most %d", got, maxCalls)
	}
}

func TestACancelledCallWaitsForNoLargeAnswer(t *testing.T) {
	l := newLoad()
	for range maxLarge {
		if _, err := l.enter(t.Context(), inCall{caller: "a", large: true}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.enter(ctx, inCall{caller: "a", large: true}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want cancelled", err)
	}
	if got := l.calls.Held(); got != maxLarge {
		t.Errorf("%d calls are counted, want %d", got, maxLarge)
	}
}

// TestLargeArgumentsOfOneCallerLeaveRoom: calls of one caller that hold their arguments for long, such as
// runs that read them, keep no call of another caller out.
func TestLargeArgumentsOfOneCallerLeaveRoom(t *testing.T) {
	l := newLoad()
	var refused error
	for _, mib := range []int{100, 100, 52, 3, 1, 1, 1, 1, 1, 1, 1, 1} {
		if _, err := l.enter(t.Context(), inCall{caller: "greedy", arguments: mib << 20}); err != nil {
			refused = err
		}
	}
	if sandboxmcp.CodeOf(refused) != sandboxmcp.CodeQueueFull {
		t.Errorf("the last call of a caller with much: got %v, want queue_full", refused)
	}
	if _, err := l.enter(t.Context(), inCall{caller: "other", arguments: 50 << 20}); err != nil {
		t.Errorf("a call of another caller: got %v, want it admitted", err)
	}
}

// TestLargeAnswersOfOneCallerLetOthersPass: a call of another caller is next, however many calls wait. Calls
// whose client has gone wait behind those of all others.
func TestLargeAnswersOfOneCallerLetOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoad()
		gone, cancelled := context.WithCancel(t.Context())
		cancelled()
		var calls []*admitted
		entered := map[string]int{}
		enter := func(caller string, gone <-chan struct{}) {
			go func() {
				in, err := l.enter(t.Context(), inCall{caller: caller, large: true, link: &link{gone: gone, cut: func() {}}})
				if err != nil {
					t.Error(err)
					return
				}
				entered[caller]++
				calls = append(calls, in)
			}()
			synctest.Wait()
		}
		for range maxLarge {
			enter("greedy", nil)
		}
		for range 40 {
			enter("greedy", nil)
		}
		enter("left", gone.Done())
		enter("other", nil)
		for _, want := range []string{"other", "greedy", "greedy"} {
			before := entered[want]
			calls[0].leave()
			calls = calls[1:]
			synctest.Wait()
			if entered[want] != before+1 {
				t.Fatalf("got %v in progress, want one more of %s", entered, want)
			}
		}
		for len(calls) > 0 {
			calls[0].leave()
			calls = calls[1:]
			synctest.Wait()
		}
		if entered["greedy"] != maxLarge+40 || entered["left"] != 1 || l.large.Held()+l.calls.Held() != 0 {
			t.Errorf("got %v at the end, %d places held; want all admitted and none held", entered, l.large.Held())
		}
	})
}

// TestAnswersThatTakeLongLetOthersPass: the work on an answer is cancelled, or its client disconnected, once
// another caller has waited for it. What the same caller sends ends nothing.
func TestAnswersThatTakeLongLetOthersPass(t *testing.T) {
	for _, sending := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLoad()
			var cancelled, cut []*admitted
			calls := make([]*admitted, maxLarge)
			for i := range calls {
				in, err := l.enter(t.Context(), inCall{
					caller: "greedy", large: true, cancel: func() { cancelled = append(cancelled, calls[i]); go calls[i].leave() },
					link: &link{cut: func() { cut = append(cut, calls[i]); go calls[i].leave() }},
				})
				if err != nil {
					t.Fatal(err)
				}
				if calls[i] = in; sending {
					in.sends()
				}
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			if _, err := l.enter(ctx, inCall{caller: "greedy", large: true}); err == nil || len(cancelled)+len(cut) > 0 {
				t.Fatalf("one more of the same caller: got %v, %d calls ended; want none", err, len(cancelled)+len(cut))
			}
			other, err := l.enter(t.Context(), inCall{caller: "other", large: true})
			if err != nil {
				t.Fatal(err)
			}
			ended, not := cancelled, cut
			if sending {
				ended, not = cut, cancelled
			}
			if len(ended) != 1 || len(not) != 0 || ended[0] != calls[0] {
				t.Errorf("sending %v: got %d cancelled and %d disconnected, want the oldest ended", sending, len(cancelled), len(cut))
			}
			if got := sandboxmcp.CodeOf(calls[0].failure(context.Canceled)); got != sandboxmcp.CodeQueueFull {
				t.Errorf("the call that was ended: got %q, want queue_full", got)
			}
			other.leave()
		})
	}
}
