//go:build linux

package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// target is something that was aimed at, and what came of it.
type target struct {
	What     string
	Want     string
	Measured string
	Verdict  string // ok, missed or not measured
}

const notMeasured = "not measured"

// atMost makes a target of a figure that is to be small. A figure of NaN was
// not measured.
func atMost(what string, got, want float64, format string) target {
	t := target{What: what, Want: "≤ " + fmt.Sprintf(format, want), Measured: "–", Verdict: notMeasured}
	if math.IsNaN(got) {
		return t
	}
	t.Measured = fmt.Sprintf(format, got)
	t.Verdict = "missed"
	// As printed: nobody can see more of it.
	var printed float64
	if _, err := fmt.Sscanf(t.Measured, "%f", &printed); err == nil && printed <= want {
		t.Verdict = "ok"
	}
	return t
}

// targets judges a suite.
func (s *suite) targets() []target {
	by := map[string]row{}
	for _, r := range append(s.Rows, s.Facts...) {
		by[r.Name] = r
	}
	ratio := func(name string) float64 {
		if r := by[name]; r.has() && r.Ratio > 0 {
			return r.Ratio
		}
		return math.NaN()
	}
	median := func(name string) float64 {
		if r := by[name]; r.has() {
			return r.P50
		}
		return math.NaN()
	}
	var out []target
	for _, i := range s.Interpreters {
		switch i.Lang {
		case sandboxmcp.Python:
		case sandboxmcp.Shell:
			out = append(out, atMost("in process, ready sandbox, "+i.Label+": × bare", ratio(inPooled(i)), 1.2, "%.3f"))
			continue
		default:
			continue
		}
		out = append(out,
			atMost("in process, nothing prepared, "+i.Label+": × bare", ratio(inProcess(i)), 1.12, "%.3f"),
			atMost("in process, nothing prepared, "+i.Label+": × bwrap", s.overBwrap(by, i), 0.85, "%.3f"),
			atMost("in process, ready sandbox, "+i.Label+": × bare", ratio(inPooled(i)), 1.08, "%.3f"),
			atMost("in process, a session's run, "+i.Label+": × bare", ratio(inSession(i)), 0.02, "%.3f"),
		)
	}
	rss, right := math.NaN(), math.NaN()
	if s.RSS != nil && s.RSS.RSS > 0 {
		rss = mib(s.RSS.RSS)
	}
	if s.Burst != nil {
		right = float64(s.Burst.Requests - s.Burst.Right)
	}
	out = append(out,
		atMost("command line, above the bare run of the same file", median(factCLI), 25, "%.1f ms"),
		atMost("stdio adds to the engine's time", median(rowAdded), 1, "%.2f ms"),
		atMost("server's resident memory after 100 calls and a rest", rss, 30, "%.1f MiB"),
		atMost("64 requests at once: wrong answers", right, 0, "%.0f"),
		s.Leak.target(),
	)
	return out
}

// overBwrap is the median of the rounds' ratios to bwrap.
func (s *suite) overBwrap(by map[string]row, i interpreter) float64 {
	r, ok := by[factBwrap(i)]
	if !ok || !r.has() {
		return math.NaN()
	}
	return r.Ratio
}

// target wants nothing to grow between the two looks, and memory by 5 % at most.
func (l *leak) target() target {
	t := target{What: "held after run 2000 as after run 200", Want: "the same, memory + 5 % at most", Measured: "–", Verdict: notMeasured}
	if l == nil {
		return t
	}
	b, a := l.Before, l.After
	grown := func(name string, before, after int64) {
		if after > before {
			t.Measured += fmt.Sprintf(", %s %d → %d", name, before, after)
		}
	}
	t.Measured = ""
	grown("processes", int64(b.Processes), int64(a.Processes))
	grown("mounts", int64(b.Mounts), int64(a.Mounts))
	grown("network namespaces", int64(b.Namespaces), int64(a.Namespaces))
	grown("cgroups", int64(b.Cgroups), int64(a.Cgroups))
	grown("descriptors", int64(b.Descriptors), int64(a.Descriptors))
	for what, n := range l.Opened {
		t.Measured += fmt.Sprintf(" (%d more of %s)", n, what)
	}
	grown("tmpfs bytes", b.TmpfsBytes, a.TmpfsBytes)
	change := 100 * (float64(a.RSS)/float64(b.RSS) - 1)
	t.Verdict = "ok"
	if t.Measured != "" || change > 5 {
		t.Verdict = "missed"
	}
	if t.Measured == "" {
		t.Measured = ", the same"
	}
	t.Measured = strings.TrimLeft(t.Measured, ", ") + fmt.Sprintf(", memory %+.1f %%", change)
	return t
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
