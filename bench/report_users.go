//go:build linux

package main

import (
	"fmt"
	"strings"
)

// users returns the page for users: one table that compares this program with others. All
// other figures are in the page for developers.
func (d *document) users() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Benchmarks\n")
	p("How long a program takes, from the request until its output is there. The median of")
	p("%d rounds; in each round every way ran once, in random order. *p99* is the time that", d.Suites[0].Rounds)
	p("one run in a hundred exceeds. *× plain* is the median ratio to the same program")
	p("without a sandbox.\n")
	p("| way | program | median, ms | p99, ms | × plain |")
	p("|---|---|---|---|---|")
	by := map[string]row{}
	for _, r := range d.Suites[0].Rows {
		by[r.Name] = r
	}
	for _, w := range d.Suites[0].ways() {
		r := by[w.row]
		if !r.has() {
			continue
		}
		ratio := "1"
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		p("| %s | %s | %.1f | %.1f | %s |", w.name, w.program, r.P50, r.P99, ratio)
	}
	m := d.Machine
	p("\n%s with %d cores (%s), %s, %s. %s; %s; %s.", "A machine", m.Cores, m.CPU, m.Kernel, m.System, m.Bwrap, strings.Join(d.Peers, "; "), d.peer())
	p("This program ran as root; `bubblewrap`, `docker`, `runsc` and `srt` with their default walls. Load of the")
	p("machine in the minute before the run: %s; above 0.2 the figures are noisy.\n", m.Load)
	p("%s All figures, with the targets and those that were missed: [for developers](dev/benchmarks.md).", d.measured())
	return b.String()
}

// way is a row of the table for users.
type way struct{ name, program, row string }

// ways returns the rows of the table for users in their order.
func (s *suite) ways() []way {
	var all []way
	for _, i := range s.Interpreters {
		program := i.Label + ", one line"
		all = append(all,
			way{"plain, without a sandbox", program, i.bare()},
			way{"**sandboxmcp**, next run of a session", program, inSession(i)},
			way{"**sandboxmcp**, prepared sandbox", program, inPooled(i)},
			way{"**sandboxmcp**, nothing prepared", program, inProcess(i)},
		)
		if i.Label == "python" {
			all = append(all,
				way{"**sandboxmcp**, MCP over stdio", program, rowServe},
				way{"**sandboxmcp**, MCP over HTTP", program, rowHTTP},
				way{"**sandboxmcp**, command line", program, rowCLI},
				way{"**sandboxmcp**, command line, a server runs", program, rowCLIServer},
			)
		}
		all = append(all, way{"bubblewrap", program, inBwrap(i)})
		if i.Label == "python" {
			all = append(all,
				way{"go-judge, HTTP", program, "go-judge, HTTP, python"},
				way{"docker exec, running container", program, rowDockerExec},
				way{"docker run", program, rowDockerRun},
				way{"gVisor, runsc exec, running container", program, rowRunscExec},
				way{"gVisor, runsc run", program, rowRunscRun},
				way{"srt", program, rowSrt},
				way{"sandboxmcp (the Python project), MCP over stdio", program, rowS1MCP},
				way{"sandboxmcp (the Python project), command line", program, rowS1CLI},
			)
		}
	}
	const pandas = "python with pandas"
	return append(all,
		way{"plain, without a sandbox", pandas, rowPandas},
		way{"**sandboxmcp**, next run of a session", pandas, rowPandasSession},
		way{"**sandboxmcp**, prepared sandbox", pandas, rowPandasPooled},
		way{"**sandboxmcp**, nothing prepared", pandas, rowPandasFresh},
		way{"bubblewrap", pandas, rowPandasBwrap},
		way{"go-judge, HTTP", pandas, rowPandasJudge},
	)
}

// measured describes when, at which commit and how the figures were measured.
func (d *document) measured() string {
	command := "bin/bench"
	if d.Command != "" {
		command += " " + d.Command
	}
	at := ""
	if d.Commit != "" {
		at = " at commit " + d.Commit
	}
	return fmt.Sprintf("Measured on %s%s by `%s`.", d.At.Format("2 January 2006, 15:04 UTC"), at, command)
}
