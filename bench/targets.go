//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// targets compares a suite with the targets. root is the suite that was measured as root in
// the same run, or nil.
func (s *suite) targets(root *suite) []target {
	v := s.figures()
	var out []target
	for n, i := range s.Interpreters {
		switch i.Lang {
		case sandboxmcp.Python:
			out = append(out, v.python(i)...)
			if n == 0 {
				out = append(out, v.peers(i)...)
				out = append(out, v.forked(i)...)
				out = append(out, v.pandas()...)
				out = append(out, v.sessions(i)...)
				out = append(out, v.empties(i)...)
				out = append(out, v.rootless(i, root))
			}
		case sandboxmcp.Node:
			out = append(out, atMost("in process, ready sandbox, node: × bare", v.ratio(inPooled(i)), 0.25, "%.3f").aim(0.18, "%.3f"))
		case sandboxmcp.Shell:
			out = append(out, atMost("in process, ready sandbox, bash: × bare", v.ratio(inPooled(i)), 1.2, "%.3f"))
		}
	}
	return append(append(out, v.memory()...), v.server()...)
}

func (v figures) python(i interpreter) []target {
	return []target{
		atMost("in process, ready sandbox, "+i.Label+": × bare", v.ratio(inPooled(i)), 1.08, "%.3f"),
		atMost("in process, nothing prepared, "+i.Label+": × bare", v.ratio(inProcess(i)), 1.12, "%.3f"),
		atMost("in process, nothing prepared, "+i.Label+": × bwrap", v.ratio(over(inProcess(i), inBwrap(i))), 0.85, "%.3f").because(v.why(inBwrap(i))),
	}
}

// peers compares a fresh Python program in a ready sandbox with the other products.
func (v figures) peers(i interpreter) []target {
	ours, judge := inPooled(i), inJudge(i)
	why := v.why(judge)
	out := []target{atMost("in process, ready sandbox, python: × go-judge", v.ratio(over(ours, judge)), 0.6, "%.3f").because(why)}
	for _, at := range []struct {
		n    int
		want float64
	}{{1, 1.2}, {2, 1.2}, {8, 1.15}} {
		out = append(out, atLeast(fmt.Sprintf("… operations per second at %d: × go-judge", at.n), v.rate(ours, at.n)/v.rate(judge, at.n), at.want, "%.2f").because(why))
	}
	out = append(out,
		atMost("… CPU time per operation at 2: × go-judge", v.cost(ours, 2)/v.cost(judge, 2), 0.9, "%.2f").because(why),
		atLeast("faster than docker exec: ×", v.ratio(over(rowDockerExec, ours)), 80, "%.0f").because(v.why(rowDockerExec)),
		atLeast("faster than docker run: ×", v.ratio(over(rowDockerRun, ours)), 250, "%.0f").because(v.why(rowDockerRun)),
	)
	for _, p := range []struct {
		row  string
		want float64
	}{{rowRunscRun, 180}, {rowRunscExec, 50}, {rowSrt, 380}} {
		out = append(out, atLeast("faster than "+p.row+": ×", v.ratio(over(p.row, ours)), p.want, "%.0f").because(v.why(p.row)))
	}
	return out
}

// forked returns the targets for a fresh Python program that is forked from a zygote.
func (v figures) forked(i interpreter) []target {
	ours, bare, judge := inPooled(i), i.bare(), inJudge(i)
	out := []target{
		atMost("Python code, forked and waiting (ready sandbox): × bare", v.ratio(ours), 0.18, "%.3f").aim(0.12, "%.3f"),
		atMost("… over stdio: × bare", v.ratio(rowServe), 0.23, "%.3f").aim(0.17, "%.3f"),
		atMost("… over HTTP: × bare", v.ratio(rowHTTP), 0.23, "%.3f").aim(0.17, "%.3f").because(v.why(rowHTTP)),
		atMost("Python code, forked on demand (none of its shape ready): × bare", v.ratio(inDemand(i)), 0.45, "%.3f").aim(0.3, "%.3f"),
		atMost("Python code, a memory limit that no request had before: × bare", v.ratio(inUnseen(i)), 0.25, "%.3f").aim(0.2, "%.3f"),
		atMost("Python code, a timeout that no request had before: × bare", v.ratio(inTimed(i)), 0.25, "%.3f").aim(0.2, "%.3f"),
		atMost("Python code, a number of processes that no request had before: × bare", v.ratio(inNumbered(i)), 0.25, "%.3f").aim(0.2, "%.3f"),
		atMost("Python code, CPU time per operation at 2: × bare", v.cost(ours, 2)/v.cost(bare, 2), 0.45, "%.2f").aim(0.33, "%.2f"),
		atMost("command line with a live server: × bare", v.ratio(rowCLIServer), 1, "%.2f").aim(0.8, "%.2f"),
		atMost("private pages of a fork that waits", v.s.forkPages(), 250, "%.0f"),
		atMost("a call after a long rest, python: × bare", v.ratio(rowSparseHello), 0.5, "%.2f").aim(0.2, "%.2f"),
		atMost("first request of a process, known state directory: × bare", v.ratio(rowFirst), 1.3, "%.2f").aim(1.15, "%.2f"),
	}
	for _, at := range []struct {
		n         int
		want, aim float64
	}{{1, 2.5, 3.5}, {2, 2, 3}, {8, 2, 3}} {
		out = append(out, atLeast(fmt.Sprintf("Python code, operations per second at %d: × bare", at.n), v.rate(ours, at.n)/v.rate(bare, at.n), at.want, "%.2f").aim(at.aim, "%.2f"))
	}
	for _, n := range []int{1, 8} {
		out = append(out,
			atLeast(fmt.Sprintf("… over HTTP, operations per second at %d: × bare", n), v.rate(rowHTTP, n)/v.rate(bare, n), 2, "%.2f").because(v.why(rowHTTP)),
			atLeast(fmt.Sprintf("… over HTTP, operations per second at %d: × go-judge", n), v.rate(rowHTTP, n)/v.rate(judge, n), 4.5, "%.2f").because(v.why(rowHTTP)).because(v.why(judge)))
	}
	return append(out, atLeast("… over HTTP, operations per second at 8: × in process", v.rate(rowHTTP, 8)/v.rate(ours, 8), 0.8, "%.2f").because(v.why(rowHTTP)))
}

func (v figures) pandas() []target {
	why := v.s.NoScience
	return []target{
		atMost("pandas, ready sandbox: × bare", v.ratio(rowPandasPooled), 0.028, "%.3f").aim(0.022, "%.3f").because(why),
		atMost("pandas, on demand (none of its shape ready): × bare", v.ratio(rowPandasDemand), 0.05, "%.3f").aim(0.04, "%.3f").because(why),
		atMost("a call after a long rest, pandas: × bare", v.ratio(rowSparsePandas), 0.15, "%.2f").aim(0.06, "%.2f").because(why),
		atLeast("pandas, operations per second at 2: × bare", v.rate(rowPandasPooled, 2)/v.rate(rowPandas, 2), 17, "%.2f").aim(20, "%.2f").because(why),
		atLeast("pandas, operations per second at 2: × go-judge", v.rate(rowPandasPooled, 2)/v.rate(rowPandasJudge, 2), 20, "%.2f").because(why).because(v.why(rowPandasJudge)),
	}
}

func (v figures) sessions(i interpreter) []target {
	ours := inSession(i)
	return []target{
		atMost("in process, a session's run after a pause, python", v.median(ours), 1.2, "%.2f ms").aim(0.9, "%.2f ms"),
		atMost("in process, a session's runs one after the other, python", 1000/v.rate(ours, 1), 0.45, "%.2f ms").aim(0.35, "%.2f ms"),
		atLeast("over HTTP, a session's runs per second at 1: × bare", v.rate(rowHTTPSession, 1)/v.rate(i.bare(), 1), 10, "%.1f").because(v.why(rowHTTPSession)),
	}
}

// empties returns the targets for opening and closing sandboxes.
func (v figures) empties(i interpreter) []target {
	why := v.why(rowEmpty, rowEmpty0)
	out := []target{
		atMost(rowEmpty+", CPU time at 1: × bare python", v.cost(rowEmpty, 1)/v.cost(i.bare(), 1), 0.1, "%.3f").because(why),
		atMost(rowEmpty+", CPU time at 1", v.cost(rowEmpty, 1), 1.1, "%.2f ms").aim(0.9, "%.2f ms").because(why),
	}
	for _, n := range []int{1, 2, 8} {
		out = append(out, atLeast(fmt.Sprintf("… per second at %d: × with everything made anew", n), v.rate(rowEmpty, n)/v.rate(rowEmpty0, n), 1.8, "%.2f").because(why))
	}
	return out
}

// rootless compares an unprivileged user's ratio to bare with root's.
func (v figures) rootless(i interpreter, root *suite) target {
	got := math.NaN()
	if root != nil && root != v.s {
		got = v.ratio(inPooled(i)) / root.figures().ratio(inPooled(i))
	}
	return atMost("as an unprivileged user, ready sandbox, python: × root's ratio to bare", got, 1.05, "%.3f").because("compared in the part of the unprivileged user")
}

func (v figures) memory() []target {
	find := func(label string) (idle, bool) {
		n := slices.IndexFunc(v.s.Idle, func(i idle) bool { return i.Label == label })
		if n < 0 {
			return idle{}, false
		}
		return v.s.Idle[n], true
	}
	together, private, slot, pandas := math.NaN(), math.NaN(), math.NaN(), math.NaN()
	if i, ok := find("python"); ok {
		together, private = mib(i.Many.PSS-i.Kept.PSS), mib(i.Many.per(i.N).Private)
	}
	if i, ok := find(idleEmpty); ok {
		one := i.Many.per(i.N)
		slot = mib(one.PSS + max(one.Kernel, 0))
	}
	if i, ok := find(idlePandas); ok && i.Bare > 0 {
		pandas = float64(i.Many.less(i.Kept).per(i.N).PSS) / float64(i.Bare)
	}
	return []target{
		atMost(fmt.Sprintf("%d idle sessions of python together, beyond what stays of one that is closed", idleMany), together, 30, "%.1f MiB"),
		atMost("… private memory of each", private, 1, "%.2f MiB"),
		atMost("a session that has used pandas, beyond the same: PSS × that of the bare interpreter", pandas, 1.0/6, "%.3f").because(v.s.NoScience),
		atMost("an empty sandbox, kernel's memory included", slot, 0.4, "%.2f MiB"),
	}
}

// server returns the targets for the interfaces, and for what a server holds.
func (v figures) server() []target {
	s := v.s
	rss, wrong, failed, refill := math.NaN(), math.NaN(), math.NaN(), math.NaN()
	if s.RSS != nil && s.RSS.RSS > 0 {
		rss = mib(s.RSS.RSS)
	}
	if s.Burst != nil {
		wrong = float64(s.Burst.Requests - s.Burst.Right)
	}
	if d := s.Drained; d != nil {
		failed, refill = float64(d.Failed), d.RefillMS/1000
		if !d.Refilled {
			refill = math.Inf(1)
		}
	}
	out := []target{
		atMost("command line, above the bare run of the same file", v.median(factCLI), 25, "%.1f ms"),
		atMost("stdio adds to the engine's time", v.median(rowAdded), 1, "%.2f ms"),
		atMost("HTTP adds to the engine's time", v.median(rowHTTPAdded), 0.5, "%.2f ms").because(v.why(rowHTTP)),
		atMost("HTTP adds to the engine's time of a session's run", v.median(rowHTTPSessionAdded), 0.5, "%.2f ms").because(v.why(rowHTTPSession)),
		atMost("server's resident memory after 100 calls and a rest", rss, 30, "%.1f MiB"),
		atMost("64 requests at once: wrong answers", wrong, 0, "%.0f"),
		atMost("three times as many requests as ready sandboxes: bursts with an error", failed, 0, "%.0f"),
		atMost("… as many are ready again after", refill, readyWithin.Seconds(), "%.2f s"),
		s.Leak.target(),
	}
	if math.IsInf(refill, 1) {
		out[7].Verdict, out[7].Measured = "missed", "not within that time"
	}
	return append(out, s.Leftovers.targets()...)
}

// target requires that nothing grows between the two measurements, except memory by at
// most 5 %.
func (l *leak) target() target {
	t := target{What: "held after run 2000 as after run 200", Want: sameHeld, Measured: "–", Verdict: notMeasured}
	if l == nil {
		return t
	}
	var grown strings.Builder
	grown.WriteString(l.Before.grown(l.After))
	for what, n := range l.Opened {
		fmt.Fprintf(&grown, " (%d more of %s)", n, what)
	}
	return t.held(grown.String(), l.Before, l.After)
}

const sameHeld = "the same, memory + 5 % at most"

// held compares two measurements and sets the verdict.
func (t target) held(grown string, before, after held) target {
	change := 100 * (float64(after.RSS)/float64(before.RSS) - 1)
	t.Verdict = "ok"
	if grown != "" || change > 5 {
		t.Verdict = "missed"
	}
	if grown == "" {
		grown = "the same"
	}
	t.Measured = strings.TrimLeft(grown, ", ") + fmt.Sprintf(", memory %+.1f %%", change)
	return t
}

// grown names the counts that have grown.
func (h held) grown(after held) string {
	var out strings.Builder
	for _, c := range h.counts(after) {
		if c.after > c.before+c.slack {
			fmt.Fprintf(&out, ", %s %d → %d", c.name, c.before, c.after)
		}
	}
	return out.String()
}

type count struct {
	name                 string
	before, after, slack int64
}

// threadSlack is how many additional threads a Go program may have in the second
// measurement, if more of them happened to be in the kernel at once.
const threadSlack = 8

// counts returns two measurements side by side.
func (h held) counts(after held) []count {
	return []count{
		{"processes", int64(h.Processes), int64(after.Processes), 0},
		{"mounts", int64(h.Mounts), int64(after.Mounts), 0},
		{"network namespaces", int64(h.Namespaces), int64(after.Namespaces), 0},
		{"cgroups", int64(h.Cgroups), int64(after.Cgroups), 0},
		{"descriptors", int64(h.Descriptors), int64(after.Descriptors), 0},
		{"threads", int64(h.Threads), int64(after.Threads), threadSlack},
		{"tmpfs bytes", h.TmpfsBytes, after.TmpfsBytes, 0},
		{"scratch files", int64(h.Scratch), int64(after.Scratch), 0},
	}
}

// targets requires that nothing grows with the number of runs, and that nothing is left
// after the engine was closed.
func (l *leftovers) targets() []target {
	if l == nil {
		return []target{{What: "what 10000 runs of a session and 5000 fresh ones leave", Want: sameHeld, Measured: "–", Verdict: notMeasured}}
	}
	var out []target
	for _, k := range l.Kinds {
		t := target{What: fmt.Sprintf("held after %d %s as after %d", k.Last, k.What, k.First), Want: sameHeld}
		out = append(out, t.held(k.Before.grown(k.After), k.Before, k.After))
	}
	t := target{What: "held after the engine was closed as before it was opened", Want: "the same", Verdict: "ok", Measured: "the same"}
	closed := l.Closed
	closed.Descriptors -= runtimeDescriptors
	if grown := l.Start.grown(closed); grown != "" {
		t.Verdict, t.Measured = "missed", strings.TrimLeft(grown, ", ")
	}
	return append(out, t)
}

// runtimeDescriptors is the number of descriptors that the Go runtime opens when it first
// polls.
const runtimeDescriptors = 2
