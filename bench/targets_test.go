//go:build linux

package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

var three = []interpreter{{Lang: sandboxmcp.Python, Label: "python"}, {Lang: sandboxmcp.Node, Label: "node"}, {Lang: sandboxmcp.Shell, Label: "bash"}}

// What was not measured is never judged, whatever is divided by whatever.
func TestNothingMeasured(t *testing.T) {
	s := &suite{Interpreters: three}
	all := s.targets(s)
	if len(all) < 40 {
		t.Errorf("targets: got %d, want every one of them, 40 at least", len(all))
	}
	for _, got := range all {
		if got.Verdict != notMeasured || got.Want == "" || got.Measured == "" {
			t.Errorf("%s: got %q, %q, want %q with a reason or a dash", got.What, got.Verdict, got.Measured, notMeasured)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		got      target
		verdict  string
		measured string
	}{
		{atMost("a", 1.0804, 1.08, "%.3f"), "ok", "1.080"},
		{atMost("a", 1.081, 1.08, "%.3f"), "missed", "1.081"},
		{atLeast("a", 79.6, 80, "%.0f"), "ok", "80"},
		{atLeast("a", 3, 80, "%.0f"), "missed", "3"},
		{atLeast("a", math.Inf(1), 80, "%.0f"), notMeasured, "–"},
		{atLeast("a", math.NaN(), 80, "%.0f").because("no docker"), notMeasured, "no docker"},
		{atLeast("a", 90, 80, "%.0f").because("no docker"), "ok", "90"},
	} {
		if tt.got.Verdict != tt.verdict || tt.got.Measured != tt.measured {
			t.Errorf("%+v: got %s, %s, want %s, %s", tt.got, tt.got.Verdict, tt.got.Measured, tt.verdict, tt.measured)
		}
	}
}

// The figures of a suite find the targets that they are for.
func TestTargetsOfFigures(t *testing.T) {
	python := three[0]
	s := &suite{Interpreters: three, Rows: []row{
		{Name: inPooled(python), Base: python.bare(), N: 3, P50: 2, Ratio: 0.03},
		{Name: rowDockerExec, N: 0, Reason: "docker's engine needs root"},
	}, Cells: []cell{
		{Name: inPooled(python), Workers: 2, Done: 300, Seconds: 1, CPU: 0.3},
		{Name: inJudge(python), Workers: 2, Done: 100, Seconds: 1, CPU: 1},
	}}
	by := map[string]target{}
	for _, got := range s.targets(nil) {
		by[got.What] = got
	}
	for what, want := range map[string]string{
		"in process, ready sandbox, python: × bare":               "ok 0.030",
		"Python code, forked and waiting (ready sandbox): × bare": "ok 0.030",
		"… operations per second at 2: × go-judge":                "ok 3.00",
		"… CPU time per operation at 2: × go-judge":               "ok 0.10",
		"faster than docker exec: ×":                              "not measured " + rowDockerExec + ": docker's engine needs root",
	} {
		if got := by[what].Verdict + " " + by[what].Measured; got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
}

func TestGrown(t *testing.T) {
	before := held{Processes: 3, Threads: 10, Descriptors: 20}
	if got := before.grown(held{Processes: 3, Threads: 10 + threadSlack, Descriptors: 19}); got != "" {
		t.Errorf("nothing grew: got %q, want nothing said", got)
	}
	got := before.grown(held{Processes: 4, Threads: 11 + threadSlack, Descriptors: 20, Scratch: 1})
	for _, want := range []string{"processes 3 → 4", "threads 10 → 19", "scratch files 0 → 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("grown: got %q, want %q in it", got, want)
		}
	}
}

// Every peer that cannot run here has a row that says why.
func TestAbsentRows(t *testing.T) {
	s := &suite{Interpreters: three}
	var text strings.Builder
	for _, m := range absentModes() {
		s.Rows = append(s.Rows, summarize(&series{name: m.rows[0], reason: m.skip}, nil))
	}
	s.write(func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }, s)
	for _, name := range []string{rowNsjail} {
		if !strings.Contains(text.String(), "| "+name+" | – | – | – | – | – | not measured: "+whyAbsent(name)) || whyAbsent(name) == "" {
			t.Errorf("%s: got a document without the reason, want why it was not measured", name)
		}
	}
}
