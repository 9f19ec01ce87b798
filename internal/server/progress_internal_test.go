package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// toldOf runs program with a progress, on a fake clock, and returns the messages that the
// progress sent.
func toldOf(t *testing.T, program func(req *sandboxmcp.Request)) (messages []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProgress()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		last := 0.0
		go func() {
			defer close(ended)
			p.tell(ctx, func(value float64, message string) error {
				if value <= last {
					t.Errorf("got %v after %v, want what is larger", value, last)
				}
				if len(message) > maxTold || !utf8.ValidString(message) || message == "" {
					t.Errorf("got %d bytes, %.80q, want 1 to %d of UTF-8", len(message), message, maxTold)
				}
				last = value
				messages = append(messages, message)
				return nil
			})
		}()
		req := sandboxmcp.Request{}
		p.follow(&req)
		program(&req)
		synctest.Wait()
		cancel()
		<-ended
	})
	return messages
}

// TestProgressTellsTheNewestLine: of all output since the last notification it is the newest line
// that is sent, also one that has not ended.
func TestProgressTellsTheNewestLine(t *testing.T) {
	got := toldOf(t, func(req *sandboxmcp.Request) {
		fmt.Fprint(req.Stdout, "one\ntw")
		time.Sleep(300 * time.Millisecond) // told at 0.25
		fmt.Fprint(req.Stdout, "o\n\n")
		time.Sleep(250 * time.Millisecond) // told at 0.5
		fmt.Fprint(req.Stderr, "bad\nworse\n")
		time.Sleep(250 * time.Millisecond) // told at 0.75
		fmt.Fprint(req.Stdout, "10%\r20%\r")
		time.Sleep(250 * time.Millisecond) // told at 1
		req.Shown.WriteResult(sandboxmcp.RichResult{"text/plain": "secret", "image/png": "secret", "is_main_result": true})
		time.Sleep(2100 * time.Millisecond) // told at 1.25; then the time at 2 and 3
		fmt.Fprint(req.Stdout, "last")
	})
	want := []string{"tw", "two", "[stderr] worse", "20%", "[display image/png, text/plain]", "2 s", "3 s"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("told are\n%q, want\n%q", got, want)
	}
}

// TestProgressIsPlainText: a character in two halves is whole, what is none is replaced, and what a
// terminal would act upon is left out.
func TestProgressIsPlainText(t *testing.T) {
	got := toldOf(t, func(req *sandboxmcp.Request) {
		fmt.Fprint(req.Stdout, "a\xe2\x82")
		time.Sleep(300 * time.Millisecond)
		fmt.Fprint(req.Stdout, "\xac\xff\x00b")
		time.Sleep(250 * time.Millisecond)
		fmt.Fprint(req.Stdout, "\n\x1b[31mred\x1b[0m \x1b]52;c;cm0=\x07end\u202e\x1b")
		time.Sleep(250 * time.Millisecond)
	})
	want := []string{"a", "a\u20ac\ufffdb", "red end"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("told are %q, want %q", got, want)
	}
}

// TestProgressIsBounded: at most four a second, each small, and of a flood only the first lines;
// then the time.
func TestProgressIsBounded(t *testing.T) {
	const seconds = 300
	got := toldOf(t, func(req *sandboxmcp.Request) {
		for range seconds * 4 {
			fmt.Fprint(req.Stdout, strings.Repeat("\u20ac", 5000)+"\n")
			fmt.Fprint(req.Stdout, strings.Repeat("\u20ac", 5000))
			time.Sleep(progressEvery)
		}
	})
	all, times := 0, 0
	for _, m := range got {
		if strings.HasSuffix(m, " s") {
			times++
		} else {
			all += len(m)
		}
	}
	if len(got) > 4*seconds || times < seconds/2 || all > maxToldAll || all < maxToldAll-maxTold {
		t.Errorf("got %d messages, %d of them times, and %d bytes, want all within their bounds", len(got), times, all)
	}
}

// TestProgressTellsWhatTheServerDoes: each second, until the program is queued or writes.
func TestProgressTellsWhatTheServerDoes(t *testing.T) {
	got := toldOf(t, func(req *sandboxmcp.Request) {
		req.Note("looking for " + strings.Repeat("six ", 100))
		time.Sleep(2100 * time.Millisecond)
		req.Note("compiling 2 modules")
		time.Sleep(time.Second)
		req.Queued(func() int { return 0 })
		time.Sleep(time.Second)
		req.Note("looking for demo")
		fmt.Fprintln(req.Stdout, "done")
		time.Sleep(1200 * time.Millisecond)
	})
	for i, m := range got {
		got[i], _, _ = strings.Cut(m, " six")
	}
	if want := []string{"looking for", "1 s, looking for", "2 s, looking for", "compiling 2 modules", "3 s, compiling 2 modules", "4 s", "done", "5 s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProgressTellsThePlace: a call that waits says its place in the queue until it runs.
func TestProgressTellsThePlace(t *testing.T) {
	var place atomic.Int32
	place.Store(2)
	got := toldOf(t, func(req *sandboxmcp.Request) {
		req.Queued(func() int { return int(place.Load()) })
		time.Sleep(1100 * time.Millisecond)
		place.Store(1)
		time.Sleep(time.Second)
		place.Store(0)
		time.Sleep(time.Second)
	})
	want := []string{"1 s, place 2 in the queue", "2 s, place 1 in the queue", "3 s"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("told are %q, want %q", got, want)
	}
}

// TestSlowClientHoldsNothingUp: while the client takes no message, a program's writes return
// at once, and the memory that is held is bounded.
func TestSlowClientHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgress()
		taken, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			p.tell(t.Context(), func(float64, string) error {
				<-taken
				return errors.New("it is gone")
			})
		}()
		req := sandboxmcp.Request{}
		p.follow(&req)
		begun := time.Now()
		for range 1000 {
			if n, err := req.Stdout.Write(make([]byte, 64<<10)); n != 64<<10 || err != nil {
				t.Fatalf("got %d and %v from Write, want all bytes", n, err)
			}
			req.Shown.WriteResult(sandboxmcp.RichResult{"text/plain": "v"})
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(begun); took != time.Second { // time stands still in here but for the sleeps
			t.Errorf("got a program that was held up for %v, want no wait", took)
		}
		p.mu.Lock()
		held := cap(p.begun[stdout]) + cap(p.begun[stderr]) + len(p.newest)
		p.mu.Unlock()
		if held > 8*maxTold {
			t.Errorf("got %d bytes held, want at most %d", held, 8*maxTold)
		}
		close(taken)
		<-ended // it does not go on without a client
	})
}

// stored is an engine with one request.
type stored struct {
	Engine
	res sandboxmcp.Result
}

func (s stored) Lookup(context.Context, sandboxmcp.Caller, sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	return s.res, nil
}

// TestWaitingForABackgroundRunTellsItsNewestLine: so does a run that is not the call's own.
func TestWaitingForABackgroundRunTellsItsNewestLine(t *testing.T) {
	for _, c := range []struct {
		res  sandboxmcp.Result
		want string
	}{
		{sandboxmcp.Result{Status: sandboxmcp.StatusRunning, Stdout: "one\ntwo \x1b[1m2\n"}, "two 2"},
		{sandboxmcp.Result{Status: sandboxmcp.StatusRunning, Metadata: map[string]any{"queue_place": 3}}, "place 3 in the queue"},
		{sandboxmcp.Result{Status: sandboxmcp.StatusRunning}, ""},
		{sandboxmcp.Result{Status: sandboxmcp.StatusCompleted, Stdout: "one\n"}, ""},
	} {
		if got := New(Config{Engine: stored{res: c.res}}).lookOf(sandboxmcp.Caller{}, "r")(t.Context()); got != c.want {
			t.Errorf("%q: got %q, want %q", c.res.Stdout, got, c.want)
		}
	}
}
