//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// document holds the content of the two pages of benchmarks.
type document struct {
	At        time.Time
	Commit    string // commit that was measured; empty: not in a repository
	Command   string
	Machine   machine
	LoadAfter string
	Peer      string   // versions of sandboxmcp (Python)
	Peers     []string // versions of other peers
	Suites    []suite
}

// markdown returns the page for developers, with all figures and the targets.
func (d *document) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Benchmarks, for developers\n")
	p("Written by `make bench`; a change by hand is lost.\n")
	m := d.Machine
	p("%s\n", d.measured())
	p("- machine: %d cores (%s), %s, %s, cgroup %s", m.Cores, m.CPU, m.Kernel, m.System, m.Cgroups)
	p("- load of the minute before: %s; of the last minute of the run: %s. If other programs caused a load above about 0.2, the figures are noisy.", m.Load, d.LoadAfter)
	p("- %s; %s; %s; %s", m.Go, m.Bwrap, strings.Join(d.Peers, "; "), d.peer())
	p("\nEvery table is of one run. Each round measured every mode once, in an order drawn")
	p("anew, on the same interpreters and the same warm file cache. Times are in ms, from")
	p("before the start until the program has ended and its output is there. *ratio* is the")
	p("median of the rounds' ratios to the row named beside it; *n* is the number of correct answers.")
	for i := range d.Suites {
		d.Suites[i].write(p, &d.Suites[0])
	}
	d.limits(p)
	return b.String()
}

func (d *document) peer() string {
	if d.Peer == "" {
		return "sandboxmcp (Python) is not installed"
	}
	return d.Peer
}

// write prints the section of a suite.
func (s *suite) write(p func(string, ...any), root *suite) {
	p("\n## As %s\n", s.User)
	p("Isolation tier %s. Walls: %s.\n", s.Isolation.Tier, strings.Join(s.Isolation.Walls, ", "))
	if len(s.Isolation.Weak) > 0 {
		p("Weak: %s.\n", strings.Join(s.Isolation.Weak, "; "))
	}
	for _, i := range s.Interpreters {
		p("- %s: %s %s", i.Label, home(i.Path), i.Version)
	}
	if s.Science != "" {
		p("- package set science: %s", s.Science)
	}
	p("\n### Targets\n")
	p("| what | target | aim | measured | |")
	p("|---|---|---|---|---|")
	for _, t := range s.targets(root) {
		p("| %s | %s | %s | %s | %s |", t.What, t.Want, cmp.Or(t.Aim, "–"), t.Measured, t.Verdict)
	}
	s.beside(p)
	p("\n### One program printing one line, %d rounds\n", s.Rounds)
	p("| mode | p50 | p99 | min | ratio | to | n |")
	p("|---|---|---|---|---|---|---|")
	for _, r := range s.Rows {
		writeRow(p, r)
	}
	p("\n| difference within a round | p50 | p99 | min | n |")
	p("|---|---|---|---|---|")
	for _, r := range s.Facts {
		if r.has() && r.Base == "" {
			p("| %s | %.2f | %.2f | %.2f | %d |", r.Name, r.P50, r.P99, r.Min, r.N)
		}
	}
	p("\n| ratio within a round, median | |")
	p("|---|---|")
	for _, r := range s.Facts {
		if r.has() && r.Base != "" {
			p("| %s | %.3f |", r.Name, r.Ratio)
		}
	}
	if s.ServerP50 > 0 {
		p("\nAccording to the server's own `sandbox_stats`, the median of the engine's part of its requests was %.2f ms.", s.ServerP50)
	}
	s.writeCells(p)
	s.writePublished(p)
	s.writeIdle(p)
	s.writeRest(p)
}

func writeRow(p func(string, ...any), r row) {
	if !r.has() {
		p("| %s | – | – | – | – | – | not measured: %s |", r.Name, oneLine(r.Reason))
		return
	}
	ratio, to := "–", "–"
	if r.Ratio > 0 {
		ratio, to = fmt.Sprintf("%.3f", r.Ratio), r.Base
	}
	n := strconv.Itoa(r.N)
	if r.Reason != "" {
		n += " (" + oneLine(r.Reason) + ")"
	}
	p("| %s | %.2f | %.2f | %.2f | %s | %s | %s |", r.Name, r.P50, r.P99, r.Min, ratio, to, n)
}

// home replaces the user's home directory in a path by ~.
func home(path string) string {
	dir, err := os.UserHomeDir()
	if rest, ok := strings.CutPrefix(path, dir+"/"); ok && err == nil {
		return "~/" + rest
	}
	return path
}

// oneLine makes a text fit into a table cell.
func oneLine(s string) string {
	return strings.NewReplacer("\n", " ", "|", "/").Replace(strings.TrimSpace(s))
}

// beside prints the figures of the Python original next to those of this program.
func (s *suite) beside(p func(string, ...any)) {
	by := map[string]row{}
	for _, r := range s.Rows {
		by[r.Name] = r
	}
	cell := func(name string) string {
		r := by[name]
		if !r.has() {
			return "not measured: " + oneLine(r.Reason)
		}
		return fmt.Sprintf("%.1f ms, %.2f × %s", r.P50, r.Ratio, r.Base)
	}
	p("\n| hello in Python | this program | sandboxmcp (Python) |")
	p("|---|---|---|")
	p("| through a warm MCP server | %s | %s |", cell(rowServe), cell(rowS1MCP))
	p("| by the command line | %s | %s |", cell(rowCLI), cell(rowS1CLI))
}

// writeRest prints figures that were not measured in rounds.
func (s *suite) writeRest(p func(string, ...any)) {
	if b := s.Burst; b != nil {
		p("\n### %d requests at once\n", b.Requests)
		p("Through one engine: %d correct answers, all within %.0f ms. The process that held", b.Right, b.WallMS)
		p("the engine had %.1f MiB resident before and %.1f MiB at its peak; with everything below", mib(b.RSS), mib(b.MaxRSS))
		p("it %.0f MiB were seen, where a page that several processes share counts for each of them.", mib(b.MaxTree))
		if b.Wrong != "" {
			p("\nWrong: %s", oneLine(b.Wrong))
		}
	}
	s.writeDrained(p)
	if m := s.RSS; m != nil {
		p("\n### Memory of the server\n")
		p("`sandboxmcp serve`, the process alone: %.1f MiB resident after the handshake, %.1f MiB", mib(m.Fresh), mib(m.RSS))
		p("%s after %d calls (%.1f MiB of it not backed by a file), %.1f MiB at the peak. Below it", m.Rested.Round(time.Second), m.Calls, mib(m.Anon), mib(m.Peak))
		p("stood %d processes with %.1f MiB resident together.", m.Helpers, mib(m.HelperRSS))
	}
	if l := s.Leak; l != nil {
		p("\n### What one server holds\n")
		p("Programs of every language in turn, some of which fail, leave files or leave a process behind.\n")
		writeHeld(p, []string{fmt.Sprintf("after run %d", l.First), fmt.Sprintf("after run %d", l.Last)}, l.Before, l.After)
	}
	s.writeLeftovers(p)
	for _, f := range s.Failed {
		p("\nNot measured: %s", oneLine(f))
	}
}

// limits prints what the numbers do not show.
func (d *document) limits(p func(string, ...any)) {
	p(`
## What these numbers do not say

- *In process* means an engine that has run before: its template of the file system
  and its spawners stand. No sandbox, network namespace or cgroup of the request
  existed before it. Clearing the sandbox away comes after the answer and is in no
  row; the rest between two measurements leaves it room.
- *First request of a process* leaves out the start of the process itself; the command
  line's rows hold it. A new state directory means that the database, the key and the
  list of interpreters are made, too.
- What stdio adds is taken call by call: the client's round trip less the engine's
  whole request, by a clock in the server around the engine. That server is the
  product's, in a process of the benchmark's own program.
- bwrap sets namespaces only: no cgroup, no Landlock, no seccomp filter, no limits, no
  record, no files out. sandboxmcp (Python) sets fewer walls than that. A ratio
  compares times, not walls.
- sandboxmcp (Python) runs code with the interpreter that it is installed for, and its
  ratio is to that one, bare.
- This program starts Python without its "site" module, whose work it does when a
  program first needs it. The bare rows and the peers do it at every start; how much it
  is depends on what is installed; the rows with -S leave it out, too.
- Bare programs and bwrap start in an environment of three variables. A user's own may
  slow an interpreter down by more than a sandbox does.
- What is held after run 200 and run 2000 is that of a server which keeps nothing for
  later sandboxes (sandbox_pool is false). What is kept otherwise is bounded, goes when
  it is not used, and stands in sandbox_stats.
- go-judge runs as its HTTP server with eight containers ready, which it keeps from
  program to program; so does docker exec. Ours are destroyed after each program.
  go-judge loads no seccomp filter here.
- docker's engine is the bench's own, without bridges and packet filters; its image
  holds the same release of the system as its package archive has it.
- runsc runs without docker, on its platform systrap and without a network, in the root
  file system of docker's image. srt runs bubblewrap and a proxy for each program.
- Operations per second include the program that makes the load, on the same cores. A
  run that was begun is waited for. With pandas, rows have a third of the rounds, docker
  exec a third and docker run a sixth.
- Rows in process with ready sandboxes have one engine for each language. One that is
  asked for several in turn shares what it has ready among them.
- *none of its shape ready* asks for another size of /tmp each time, *a new memory limit*,
  *a new timeout* and *a new number of processes* for a limit that no earlier request had.
- Memory in pages that processes share counts for each of them.`)
}

// summary returns a short report for the terminal.
func (d *document) summary() string {
	var b strings.Builder
	for i := range d.Suites {
		s := &d.Suites[i]
		fmt.Fprintf(&b, "as %s, tier %s:\n", s.User, s.Isolation.Tier)
		for _, t := range s.targets(&d.Suites[0]) {
			fmt.Fprintf(&b, "  %-13s %s: %s (%s)\n", t.Verdict, t.What, t.Measured, t.Want)
		}
	}
	return b.String()
}
