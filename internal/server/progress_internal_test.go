package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

func TestProgressTellsWhatIsNew(t *testing.T) {
	got := toldOf(t, func(req *sandboxmcp.Request) {
		fmt.Fprint(req.Stdout, "one\n")
		fmt.Fprint(req.Stdout, "tw")
		time.Sleep(300 * time.Millisecond) // told at 0.25
		fmt.Fprint(req.Stdout, "o")
		fmt.Fprint(req.Stderr, "bad\n")
		fmt.Fprint(req.Stderr, "worse\n")
		fmt.Fprint(req.Stdout, "three")
		req.Shown.WriteResult(sandboxmcp.RichResult{"text/plain": "secret", "image/png": "secret", "is_main_result": true})
		time.Sleep(2100 * time.Millisecond) // told at 0.5; then the time at 1 and 2
		fmt.Fprint(req.Stdout, "last")
	})
	want := []string{"one\ntw", "o\n[stderr] bad\nworse\n[stdout] three\n[display image/png, text/plain]\n", "1 s", "2 s"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("told are\n%q, want\n%q", got, want)
	}
}

// TestProgressRepairsText: a character in two halves is whole, and what is none
// is replaced.
func TestProgressRepairsText(t *testing.T) {
	got := toldOf(t, func(req *sandboxmcp.Request) {
		fmt.Fprint(req.Stdout, "a\xe2\x82")
		fmt.Fprint(req.Stderr, "\xf0\x9f")
		time.Sleep(600 * time.Millisecond)
		fmt.Fprint(req.Stdout, "\xac\xff\x00b")
		fmt.Fprint(req.Stderr, "\x98\x80")
		time.Sleep(600 * time.Millisecond)
	})
	want := []string{"a", "\u20ac\ufffd\x00b\n[stderr] \U0001f600", "1 s"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("told are %q, want %q", got, want)
	}
}

// TestProgressIsBounded: at most four a second, each small, and of a flood the
// beginning alone; then the time.
func TestProgressIsBounded(t *testing.T) {
	const seconds = 30
	got := toldOf(t, func(req *sandboxmcp.Request) {
		for range seconds * 100 {
			fmt.Fprint(req.Stdout, strings.Repeat("\u20ac\n", 5000)+"\xe2")
			fmt.Fprint(req.Stderr, "x")
			req.Shown.WriteResult(sandboxmcp.RichResult{"text/plain": "v"})
			time.Sleep(10 * time.Millisecond)
		}
	})
	all, times := "", 0
	for _, m := range got {
		if strings.HasSuffix(m, " s") {
			times++
			continue
		}
		all += m
	}
	flood, ok := strings.CutSuffix(all, "\n"+outputGoesOn)
	if len(got) > 4*seconds || times < seconds/2 || !ok || len(flood) > maxToldAll || len(flood) < maxToldAll-utf8.UTFMax {
		t.Errorf("got %d messages, %d of them times, and %d bytes that end in %q, want all within their bounds", len(got), times, len(flood), all[max(0, len(all)-50):])
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
		held := cap(p.text)
		p.mu.Unlock()
		if held > 4*maxToldAll {
			t.Errorf("got %d bytes held, want at most %d", held, 4*maxToldAll)
		}
		close(taken)
		<-ended // it does not go on without a client
	})
}
