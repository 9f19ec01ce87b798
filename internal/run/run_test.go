package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

const secret = "Kit-5up3r-s3cret-t0ken"

func masker() *redact.Masker {
	return redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
}

// TestOrderOfARun: processes that a program leaves behind are ended before its output is read
// to the end, and what was used is read last.
func TestOrderOfARun(t *testing.T) {
	b := &box{}
	if _, _, err := execute(t.Context(), t, b, config(), false); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"start", "wait", "kill", "drain", "usage"}, b.seen()); d != "" {
		t.Errorf("a sandbox for one run (-want +got):\n%s", d)
	}
	b = &box{usage: []backend.Usage{{CPU: time.Second, OOMKills: 1, Exceeded: []string{"keys"}}, {CPU: 3 * time.Second, OOMKills: 1, Exceeded: []string{"keys"}}}}
	_, o, err := execute(t.Context(), t, b, config(), true)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"usage", "start", "wait", "clear", "drain", "usage"}, b.seen()); d != "" {
		t.Errorf("a sandbox that stays (-want +got):\n%s", d)
	}
	if d := cmp.Diff(backend.Usage{CPU: 2 * time.Second, Exceeded: []string{}}, o.Usage); d != "" {
		t.Errorf("what the run used of a sandbox that stays (-want +got):\n%s", d)
	}
}

// TestTheEndIsBoundedAndNotCancelled: the processes of a cancelled run are still ended, but
// not without a bound.
func TestTheEndIsBoundedAndNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var left time.Duration
		b := &box{program: func(p *process) backend.Exit { cancel(); return p.hang() }}
		b.on = map[string]func(context.Context){"kill": func(ctx context.Context) {
			if ctx.Err() != nil {
				t.Errorf("Kill: got a context with the error %v, want it alive", ctx.Err())
			}
			if end, ok := ctx.Deadline(); ok {
				left = time.Until(end)
			}
		}}
		res := result(ctx, t, b, config())
		if left != run.KillLimit || res.Status != sandboxmcp.StatusCancelled {
			t.Errorf("Kill: got %v and the status %s, want %v and %s", left, res.Status, run.KillLimit, sandboxmcp.StatusCancelled)
		}
	})
}

// TestFailuresOfTheProduct: what is not the program's fault is an error and no result.
func TestFailuresOfTheProduct(t *testing.T) {
	broken := errors.New("broken")
	denied := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "no such user")
	lost := func(*process) backend.Exit { return backend.Exit{Signal: 9, Lost: true} }
	for name, c := range map[string]struct {
		box   *box
		stays bool
		code  sandboxmcp.Code
		text  string // part of the message
		cause error
		calls string
	}{
		"UsageBefore":   {box: &box{fail: map[string]error{"usage": broken}}, stays: true, code: "execution_failed", text: "used", cause: broken, calls: "usage"},
		"UsageAfter":    {box: &box{fail: map[string]error{"usage": broken}}, code: "execution_failed", text: "used", cause: broken, calls: "start wait kill drain usage"},
		"Closed":        {box: &box{fail: map[string]error{"usage": fs.ErrClosed}}, calls: "start wait kill drain usage"}, // nothing was used
		"Start":         {box: &box{fail: map[string]error{"start": broken}}, code: "execution_failed", text: "could not be started: broken", cause: broken, calls: "start"},
		"StartRefused":  {box: &box{fail: map[string]error{"start": denied}}, code: "invalid_argument", text: "no such user", cause: denied, calls: "start"},
		"Wait":          {box: &box{fail: map[string]error{"wait": broken}}, code: "execution_failed", text: "could not be started", cause: broken, calls: "start wait"},
		"WeakWalls":     {box: &box{tier: sandboxmcp.TierL1}, code: "isolation_unavailable", text: "L1", calls: "start wait kill"},
		"WeakWallsStay": {box: &box{tier: sandboxmcp.TierL1}, stays: true, code: "isolation_unavailable", text: "L1", calls: "usage start wait clear"},
		"Kill":          {box: &box{fail: map[string]error{"kill": broken}}, code: "execution_failed", text: "could not be ended", cause: broken, calls: "start wait kill"},
		"Clear":         {box: &box{fail: map[string]error{"clear": broken}}, stays: true, code: "execution_failed", text: "could not be ended", cause: broken, calls: "usage start wait clear"},
		"Drain":         {box: &box{fail: map[string]error{"drain": broken}}, code: "execution_failed", text: "read to the end", cause: broken, calls: "start wait kill drain"},
		"Channel":       {box: &box{frames: []any{}, fail: map[string]error{"read": broken}}, code: "execution_failed", text: "read to the end", cause: broken, calls: "start wait kill drain"},
		"Lost":          {box: &box{program: lost}, code: "execution_failed", text: "ended under the program", calls: "start wait kill drain usage"},
		"LostToMemory":  {box: &box{program: lost, usage: []backend.Usage{{OOMKills: 1}}}, calls: "start wait kill drain usage"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.MinTier = sandboxmcp.TierL2
			_, _, err := execute(t.Context(), t, c.box, cfg, c.stays)
			if got := sandboxmcp.CodeOf(err); got != c.code || err != nil && !strings.Contains(err.Error(), c.text) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("got the code %q and %v, want %q, %q and the cause %v", got, err, c.code, c.text, c.cause)
			}
			if got := strings.Join(c.box.seen(), " "); got != c.calls {
				t.Errorf("got the calls %s, want %s", got, c.calls)
			}
		})
	}
}

// TestStartThatIsCancelled: a request that ends while its program is started has not run.
func TestStartThatIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller is gone")
	b := &box{fail: map[string]error{"start": context.Canceled}, on: map[string]func(context.Context){"start": func(context.Context) { cancel(gone) }}}
	_, _, err := execute(ctx, t, b, config(), false)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled || !errors.Is(err, gone) {
		t.Errorf("got %v, want %s because of %v", err, sandboxmcp.CodeCancelled, gone)
	}
}

// TestOutputThatHasNoEnd: a channel that is never closed does not hold up the run forever.
func TestOutputThatHasNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		defer close(held)
		b := &box{frames: []any{}, held: held}
		begun := time.Now()
		_, _, err := execute(t.Context(), t, b, config(), false)
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeExecutionFailed || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %s because of %v", err, sandboxmcp.CodeExecutionFailed, context.DeadlineExceeded)
		}
		if got := time.Since(begun); got != run.KillLimit {
			t.Errorf("got %v of the test's clock, want %v", got, run.KillLimit)
		}
	})
}

// writer collects what a caller is passed while the program runs.
type writer struct{ values []sandboxmcp.RichResult }

func (w *writer) WriteResult(v sandboxmcp.RichResult) { w.values = append(w.values, v) }

// TestReportOfADriver: what a driver reports is in the result, and its values are also passed
// on while the program runs, masked.
func TestReportOfADriver(t *testing.T) {
	var shown writer
	cfg := config()
	cfg.Display, cfg.Shown = sandboxmcp.DisplayResults, &shown
	cfg.Mask = func(v sandboxmcp.RichResult) sandboxmcp.RichResult { v["text/plain"] = "masked"; return v }
	b := &box{program: func(*process) backend.Exit { return backend.Exit{Code: 1} }, frames: []any{
		map[string]any{"type": "start"},
		map[string]any{"type": "display", "data": map[string]any{"text/plain": "one"}},
		map[string]any{"type": "error", "name": "ValueError", "value": "two"},
	}}
	res := result(t.Context(), t, b, cfg)
	if res.Status != sandboxmcp.StatusFailed || res.Error == nil || res.Error.Name != "ValueError" || len(res.Results) != 1 || res.Results[0]["text/plain"] != "one" {
		t.Errorf("got %s, %+v and %v; want failed, a ValueError and one value", res.Status, res.Error, res.Results)
	}
	if len(shown.values) != 1 || shown.values[0]["text/plain"] != "masked" {
		t.Errorf("shown meanwhile: got %v, want the masked value", shown.values)
	}
	if res = result(t.Context(), t, &box{}, config()); res.Results == nil || len(res.Results) != 0 {
		t.Errorf("without a driver: got %#v, want an empty list", res.Results)
	}
}

// TestOutputIsMaskedBeforeItIsCut: a secret is masked wherever the writes split it, and what
// is cut is the masked text.
func TestOutputIsMaskedBeforeItIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		limit int64
		say   []string
		want  string
		cut   bool
	}{
		"Split":    {limit: 100, say: []string{"a " + secret[:5], secret[5:12], secret[12:] + " b"}, want: "a ***REDACTED*** b"},
		"Cut":      {limit: 10, say: []string{secret + secret}, want: "***REDACTE", cut: true},
		"Fits":     {limit: 14, say: []string{secret}, want: "***REDACTED***"}, // the limit counts what is shown
		"HeldBack": {limit: 100, say: []string{"a " + secret[:5]}, want: "a " + secret[:5]},
	} {
		t.Run(name, func(t *testing.T) {
			var out, err bytes.Buffer
			cfg := config()
			cfg.Masker, cfg.Stdout, cfg.Stderr, cfg.Limits.MaxOutputBytes = masker(), &out, &err, c.limit
			b := &box{program: func(p *process) backend.Exit {
				for _, s := range c.say {
					fmt.Fprint(p.Stdout, s)
					fmt.Fprint(p.Stderr, s)
				}
				return backend.Exit{}
			}}
			res := result(t.Context(), t, b, cfg)
			if res.Stdout != c.want || res.Stderr != c.want || res.StdoutTruncated != c.cut || res.StderrTruncated != c.cut {
				t.Errorf("got %q (cut %v) and %q (cut %v), want %q (cut %v)", res.Stdout, res.StdoutTruncated, res.Stderr, res.StderrTruncated, c.want, c.cut)
			}
			if out.String() != c.want || err.String() != c.want {
				t.Errorf("meanwhile: got %q and %q, want %q", out.String(), err.String(), c.want)
			}
		})
	}
}

// TestMasksNoteHalfASecret: the masks of both streams say which secrets were written in part.
func TestMasksNoteHalfASecret(t *testing.T) {
	cfg := config()
	cfg.Masker = masker()
	b := &box{program: func(p *process) backend.Exit { fmt.Fprint(p.Stderr, secret[:len(secret)-2]); return backend.Exit{} }}
	r, _, err := execute(t.Context(), t, b, cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	var got [2][]string
	for i, m := range r.Masks() {
		got[i] = m.Partial()
	}
	if d := cmp.Diff([2][]string{1: {"TOKEN"}}, got); d != "" {
		t.Errorf("of stdout and stderr (-want +got):\n%s", d)
	}
	r, _, _ = execute(t.Context(), t, &box{}, config(), false)
	for _, m := range r.Masks() {
		if m.Partial() != nil {
			t.Errorf("without a mask: got %v, want nothing", m.Partial())
		}
	}
}

// stuck is a writer that takes nothing until it is released.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.release; return len(p), nil }

// TestAWriterDelaysNoRun: a caller's writer that is stuck delays neither the program nor its
// result. Only Flush waits for it, until its context ends.
func TestAWriterDelaysNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := stuck{make(chan struct{})}
		cfg := config()
		cfg.Stdout = to
		b := &box{program: func(p *process) backend.Exit { fmt.Fprint(p.Stdout, "x"); return backend.Exit{} }}
		r, o, err := execute(t.Context(), t, b, cfg, false)
		if err != nil || r.Result(&o).Stdout != "x" {
			t.Fatalf("got %v and %q, want the result", err, r.Result(&o).Stdout)
		}
		r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Flush(ctx)
		if ctx.Err() == nil {
			t.Error("Flush: got an end before the writer has everything, want it to wait")
		}
		close(to.release)
		r.Flush(t.Context())
	})
}

// TestARunThatNeverBegan: Close and Flush of a nil Run do nothing.
func TestARunThatNeverBegan(t *testing.T) {
	var r *run.Run
	r.Close()
	r.Flush(t.Context())
}
