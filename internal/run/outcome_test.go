package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// told is the part of a result that says how the program ended.
type told struct {
	Status sandboxmcp.Status
	Exit   int
	Signal string
	Stderr string
	Meta   map[string]any
}

func tell(res sandboxmcp.Result) told {
	return told{res.Status, res.ExitCode, res.Signal, res.Stderr, res.Metadata}
}

// TestAnExitIsClassified: the status of a program that ended by itself.
func TestAnExitIsClassified(t *testing.T) {
	exit := func(code int) backend.Exit { return backend.Exit{Code: code} }
	signal := func(n int) backend.Exit { return backend.Exit{Signal: n} }
	none := map[string]any{}
	syntax := kernel.Report{Syntax: &kernel.SyntaxError{Name: "SyntaxError", Line: 3, Col: 7, Message: "bad"}}
	rejected := map[string]any{"validation": map[string]any{
		"valid": false, "verdict": "reject", "fixes_applied": []string{}, "language": sandboxmcp.Shell,
		"issues": []map[string]any{{"line": 3, "col": 7, "message": "SyntaxError: bad", "severity": "error", "rule": "syntax"}},
	}}
	fixed := map[string]any{"validation": map[string]any{
		"valid": true, "verdict": "fixed", "fixes_applied": []string{"added import json"}, "language": sandboxmcp.Shell,
		"issues": []map[string]any{},
	}}
	late := "Execution timed out after 60s\n"
	for name, c := range map[string]struct {
		run.Outcome
		display sandboxmcp.Display
		want    told
	}{
		"Exit0":          {Outcome: run.Outcome{Exit: exit(0)}, want: told{"completed", 0, "", "", none}},
		"Fixed":          {Outcome: run.Outcome{Exit: exit(0), Report: kernel.Report{Fixes: []string{"added import json"}}}, want: told{"completed", 0, "", "", fixed}},
		"ResultsCut":     {Outcome: run.Outcome{Exit: exit(0), Report: kernel.Report{Cut: true}}, want: told{"completed", 0, "", "", map[string]any{"results_truncated": true}}},
		"Exit1":          {Outcome: run.Outcome{Exit: exit(1)}, want: told{"failed", 1, "", "", none}},
		"LikeATimeout":   {Outcome: run.Outcome{Exit: exit(124)}, want: told{"failed", 124, "", "", none}},
		"LikeAKill":      {Outcome: run.Outcome{Exit: exit(137)}, want: told{"failed", 137, "", "", none}},
		"Exit255":        {Outcome: run.Outcome{Exit: exit(255)}, want: told{"failed", 255, "", "", none}},
		"SIGHUP":         {Outcome: run.Outcome{Exit: signal(1)}, want: told{"signalled", 129, "SIGHUP", "", none}},
		"SIGKILL":        {Outcome: run.Outcome{Exit: signal(9)}, want: told{"signalled", 137, "SIGKILL", "", none}},
		"SIGSYS":         {Outcome: run.Outcome{Exit: signal(31)}, want: told{"signalled", 159, "SIGSYS", "", none}},
		"WithoutAName":   {Outcome: run.Outcome{Exit: signal(32)}, want: told{"signalled", 160, "SIG32", "", none}},
		"OwnSIGXCPU":     {Outcome: run.Outcome{Exit: signal(24), Usage: backend.Usage{CPU: 62*time.Second - 1}}, want: told{"signalled", 152, "SIGXCPU", "", none}},
		"CPUTime":        {Outcome: run.Outcome{Exit: signal(24), Usage: backend.Usage{CPU: 62 * time.Second}}, want: told{"timed_out", -1, "", late, none}},
		"CPUTimeKilled":  {Outcome: run.Outcome{Exit: signal(9), Usage: backend.Usage{CPU: 62 * time.Second}}, want: told{"timed_out", -1, "", late, none}},
		"CPUTimeExit":    {Outcome: run.Outcome{Exit: exit(1), Usage: backend.Usage{CPU: 62 * time.Second}}, want: told{"failed", 1, "", "", none}},
		"CPUTimeSIGTERM": {Outcome: run.Outcome{Exit: signal(15), Usage: backend.Usage{CPU: 62 * time.Second}}, want: told{"signalled", 143, "SIGTERM", "", none}},
		"OutOfMemory":    {Outcome: run.Outcome{Exit: signal(9), Usage: backend.Usage{OOMKills: 1}}, want: told{"out_of_memory", 137, "SIGKILL", "", none}},
		"MemoryExit1":    {Outcome: run.Outcome{Exit: exit(1), Usage: backend.Usage{OOMKills: 2}}, want: told{"out_of_memory", 137, "SIGKILL", "", none}},
		"ChildKilled":    {Outcome: run.Outcome{Exit: exit(0), Usage: backend.Usage{OOMKills: 2}}, want: told{"completed", 0, "", "", map[string]any{"oom_kills": 2}}},
		"Exceeded": {
			Outcome: run.Outcome{Exit: signal(9), Usage: backend.Usage{OOMKills: 1, Exceeded: []string{"too many sockets"}}},
			want:    told{"out_of_memory", 137, "SIGKILL", "Ended for holding too many sockets\n", map[string]any{"exceeded": "too many sockets"}},
		},
		"Rejected": {Outcome: run.Outcome{Exit: exit(1), Report: syntax}, display: sandboxmcp.DisplayResults, want: told{
			"rejected", 1, "", "Validation failed: [REJECT] 1 issue(s)\n  L3: SyntaxError: bad\n", rejected,
		}},
		"SyntaxWithoutDisplay": {Outcome: run.Outcome{Exit: exit(1), Report: syntax}, display: sandboxmcp.DisplayNone, want: told{"failed", 1, "", "", none}},
		"SyntaxAndSignal":      {Outcome: run.Outcome{Exit: signal(15), Report: syntax}, display: sandboxmcp.DisplayResults, want: told{"signalled", 143, "SIGTERM", "", none}},
		"StoppedByTheCaller":   {Outcome: run.Outcome{Exit: signal(9), Stopped: true, Cause: context.Canceled, Usage: backend.Usage{OOMKills: 1}}, want: told{"cancelled", -1, "", "", map[string]any{"oom_kills": 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.Display = c.display
			r, _ := run.Begin(t.Context(), cfg)
			defer r.Close()
			r.Stop()
			r.End()
			res := r.Result(&c.Outcome)
			if d := cmp.Diff(c.want, tell(res)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if want := c.want.Status == sandboxmcp.StatusCompleted; res.Success != want {
				t.Errorf("success: got %v, want %v", res.Success, want)
			}
		})
	}
}

// TestWhatStopsAProgram: the first reason to stop a program is the one that its result
// names, whatever else happened to it.
func TestWhatStopsAProgram(t *testing.T) {
	hang := (*process).hang
	flood := func(p *process) backend.Exit {
		fmt.Fprint(p.Stderr, strings.Repeat("x", 161))
		return p.hang()
	}
	for name, c := range map[string]struct {
		box    *box
		cancel time.Duration // after which the caller cancels; 0: never
		status sandboxmcp.Status
		took   time.Duration
		stderr string
	}{
		"Timeout":     {box: &box{program: hang}, status: "timed_out", took: time.Minute, stderr: "Execution timed out after 60s\n"},
		"Cancelled":   {box: &box{program: hang}, cancel: time.Second, status: "cancelled", took: time.Second},
		"OutputLimit": {box: &box{program: flood}, cancel: time.Second, status: "output_limit", stderr: "xxxxxxxxxx"},
		"OutOfMemory": {box: &box{program: flood, usage: []backend.Usage{{OOMKills: 1}}}, status: "output_limit", stderr: "xxxxxxxxxx"},
		"JustNot": {
			box: &box{program: func(p *process) backend.Exit {
				_, _ = io.WriteString(p.Stderr, strings.Repeat("x", 160))
				return p.hang()
			}},
			status: "timed_out", took: time.Minute, stderr: "xxxxxxxxxx\nExecution timed out after 60s\n",
		},
		"LateStdout":     {box: &box{late: [2]string{strings.Repeat("x", 161)}}, status: "output_limit"},
		"LateStderr":     {box: &box{late: [2]string{1: strings.Repeat("x", 161)}}, status: "output_limit", stderr: "xxxxxxxxxx"},
		"EndsJustBefore": {box: &box{program: wait(time.Minute - 1)}, status: "completed", took: time.Minute - 1},
		// The clock runs while the process is started, and a timeout does not make the start fail.
		"SlowStart": {
			box:    &box{program: hang, on: map[string]func(context.Context){"start": func(context.Context) { time.Sleep(2 * time.Minute) }}},
			status: "timed_out", took: 2 * time.Minute, stderr: "Execution timed out after 60s\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				cfg := config()
				cfg.Limits.MaxOutputBytes = 10
				res := result(ctx, t, c.box, cfg)
				if res.Status != c.status || res.Stderr != c.stderr || res.Success != (c.status == "completed") {
					t.Errorf("got %s, %v, stderr %q; want %s and %q", res.Status, res.Success, res.Stderr, c.status, c.stderr)
				}
				if got := res.Usage.WallSeconds; got != c.took.Seconds() {
					t.Errorf("got %v s of the test's clock, want %v", got, c.took.Seconds())
				}
			})
		})
	}
}

// wait returns a program that ends after d.
func wait(d time.Duration) func(*process) backend.Exit {
	return func(*process) backend.Exit { time.Sleep(d); return backend.Exit{} }
}

// TestStopEndsTheClock: after Stop the context has ended, but neither by a timeout nor by
// too much output.
func TestStopEndsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := run.Begin(t.Context(), config())
		defer r.Close()
		begun := time.Now()
		time.Sleep(time.Second)
		if !r.Started().Equal(begun) || ctx.Err() != nil {
			t.Errorf("got the start %v and the context's error %v, want %v and none", r.Started(), ctx.Err(), begun)
		}
		r.Stop()
		time.Sleep(time.Hour)
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) || run.Flooded(ctx) {
			t.Errorf("got the cause %v and flooded %v, want %v", cause, run.Flooded(ctx), context.Canceled)
		}
	})
}

// TestFloodedNamesOneCause: only too much output is a flood.
func TestFloodedNamesOneCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			bytes int
			want  bool
		}{"Timeout": {0, false}, "Flood": {16_001, true}, "JustNot": {16_000, false}} {
			r, ctx := run.Begin(t.Context(), config())
			_, _ = r.Stdout.Write(make([]byte, c.bytes))
			<-ctx.Done()
			if got := run.Flooded(ctx); got != c.want {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
			r.Stop()
			r.Close()
		}
	})
}

// TestUsageOfAResult: what a result says of the program's use.
func TestUsageOfAResult(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, _ := run.Begin(t.Context(), config())
	defer r.Close()
	r.Stop()
	isolation := &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2}
	shown := []sandboxmcp.RichResult{{"text/plain": "1"}}
	failure := &sandboxmcp.ProgramError{Name: "ValueError"}
	res := r.Result(&run.Outcome{
		Report: kernel.Report{Results: shown, Error: failure}, StateLost: true, Isolation: isolation, Started: begun, Ended: begun.Add(1500 * time.Millisecond),
		Usage: backend.Usage{PeakMemory: 3<<20 + 1<<18 + 1<<10, CPU: 250 * time.Millisecond, PeakTasks: 7},
	})
	want := sandboxmcp.ResourceUsage{PeakRAMMB: 3.25, CPUSeconds: 0.25, WallSeconds: 1.5, PeakTasks: 7, MaxTasks: 64}
	if d := cmp.Diff(want, res.Usage); d != "" {
		t.Errorf("usage (-want +got):\n%s", d)
	}
	if d := cmp.Diff(shown, res.Results); d != "" || res.Error != failure || res.Isolation != isolation || !res.StateLost || res.Language != sandboxmcp.Shell {
		t.Errorf("got %+v, want what the outcome holds (-want +got): %s", res, d)
	}
}

func TestUsageBetweenTwoRuns(t *testing.T) {
	before := backend.Usage{PeakMemory: 10, CPU: 2 * time.Second, PeakTasks: 3, OOMKills: 1, Exceeded: []string{"keys"}}
	for name, c := range map[string]struct{ after, want backend.Usage }{
		"nothing": {before, backend.Usage{PeakMemory: 10, PeakTasks: 3, Exceeded: []string{}}},
		"more": {
			backend.Usage{PeakMemory: 20, CPU: 3 * time.Second, PeakTasks: 4, OOMKills: 3, Exceeded: []string{"keys", "pipes"}},
			backend.Usage{PeakMemory: 20, CPU: time.Second, PeakTasks: 4, OOMKills: 2, Exceeded: []string{"pipes"}},
		},
		"counted less": {backend.Usage{}, backend.Usage{}}, // the sandbox was closed meanwhile
	} {
		if d := cmp.Diff(c.want, run.Since(before, c.after)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestCPUTime(t *testing.T) {
	for _, c := range []struct {
		limits sandboxmcp.Limits
		want   time.Duration
	}{
		{sandboxmcp.Limits{TimeoutSeconds: 60, MaxCPUCores: 1}, 62 * time.Second},
		{sandboxmcp.Limits{TimeoutSeconds: 60, MaxCPUCores: 0.5}, 62 * time.Second}, // half a core cannot use more
		{sandboxmcp.Limits{TimeoutSeconds: 60, MaxCPUCores: 2.5}, 152 * time.Second},
		{sandboxmcp.Limits{TimeoutSeconds: 0.05, MaxCPUCores: 1}, 2 * time.Second},
	} {
		if got := run.CPUTime(c.limits); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.limits, got, c.want)
		}
	}
}

// TestWallsThatWereObserved: weaker walls than required are an error, and walls that could
// not be read are never reported.
func TestWallsThatWereObserved(t *testing.T) {
	refused := sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "no")
	for name, c := range map[string]struct {
		seen run.Observation
		want sandboxmcp.Isolation
		code sandboxmcp.Code
	}{
		"as required": {seen: run.Observation{Walls: sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Walls: []string{"seccomp"}}}, want: sandboxmcp.Isolation{Tier: sandboxmcp.TierL2, Walls: []string{"seccomp"}}},
		"stronger":    {seen: run.Observation{Walls: sandboxmcp.Isolation{Tier: sandboxmcp.TierL3}}, want: sandboxmcp.Isolation{Tier: sandboxmcp.TierL3}},
		"weaker":      {seen: run.Observation{Walls: sandboxmcp.Isolation{Tier: sandboxmcp.TierL1}}, code: sandboxmcp.CodeIsolationUnavailable},
		"refused":     {seen: run.Observation{Err: refused}, code: sandboxmcp.CodeIsolationUnavailable},
		"ended before": {
			seen: run.Observation{Walls: sandboxmcp.Isolation{Tier: sandboxmcp.TierL3, Backend: "b", Walls: []string{"seccomp"}}, Err: errors.New("gone")},
			want: sandboxmcp.Isolation{Tier: sandboxmcp.TierL0, Backend: "b", Walls: []string{}, Weak: []string{"the sandbox ended before its walls could be read"}},
		},
	} {
		got, err := c.seen.Isolation(sandboxmcp.TierL2)
		if code := sandboxmcp.CodeOf(err); code != c.code || (got == nil) != (c.code != "") {
			t.Errorf("%s: got %+v and %v, want the code %q", name, got, err, c.code)
			continue
		}
		if got != nil {
			if d := cmp.Diff(c.want, *got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	}
}
