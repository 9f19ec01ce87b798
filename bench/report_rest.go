//go:build linux

package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// writeCells prints operations per second, a line for each load.
func (s *suite) writeCells(p func(string, ...any)) {
	if len(s.Cells) == 0 {
		return
	}
	v := s.figures()
	p("\n### Operations per second\n")
	p("By so many at once, each number of them measured in %d pieces spread over the whole time. *CPU/op* is in ms, at 2", pieces)
	p("at once: %s, divided by the operations. Each engine has a process of its own, as in a server.\n", s.CPUHow)
	p("| what | 1 | 2 | 8 | 32 | CPU/op | p50 at 2, ms | p99 at 8, ms |")
	p("|---|---|---|---|---|---|---|---|")
	seen := map[string]bool{}
	for _, c := range s.Cells {
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		at := v.cells[c.Name]
		if why := v.why(c.Name); why != "" && !at[2].has() {
			p("| %s | – | – | – | – | – | – | not measured: %s |", c.Name, oneLine(strings.TrimPrefix(why, c.Name+": ")))
			continue
		}
		figure := func(n int, format string, get func(cell) float64) string {
			if !at[n].has() {
				return "–"
			}
			return fmt.Sprintf(format, get(at[n]))
		}
		rate := func(n int) string { return figure(n, "%.1f", cell.rate) }
		p("| %s | %s | %s | %s | %s | %s | %s | %s |", c.Name, rate(1), rate(2), rate(8), rate(32), figure(2, "%.2f", cell.cost),
			figure(2, "%.2f", func(c cell) float64 { return c.P50 }), figure(8, "%.2f", func(c cell) float64 { return c.P99 }))
	}
}

// writeIdle prints the memory of idle sessions.
func (s *suite) writeIdle(p func(string, ...any)) {
	if len(s.Idle) == 0 {
		return
	}
	p("\n### Memory of sandboxes that wait\n")
	p("In MiB, beyond what two runs before them had left there. A session has run one program.")
	p("*PSS* counts a page that n processes share as 1/n of it; *kernel* is what the kernel")
	p("accounts to their control groups for itself. *Stays* is the memory that remains when the first is")
	p("closed, and in the PSS of all: the interpreter that sessions are forked from, and empty")
	p("sandboxes that the engine has ready.\n")
	p("| what | PSS of the first | stays | n | PSS of all | PSS of each | private of each | kernel of each | ready |")
	p("|---|---|---|---|---|---|---|---|---|")
	unreadable := 0
	for _, i := range s.Idle {
		one, kernel := i.Many.per(i.N), "–"
		if one.Kernel >= 0 {
			kernel = fmt.Sprintf("%.2f", mib(one.Kernel))
		}
		p("| %s | %.2f | %.2f | %d | %.1f | %.2f | %.2f | %s | %d |", i.Label, mib(i.One.PSS), mib(i.Kept.PSS), i.N, mib(i.Many.PSS), mib(one.PSS), mib(one.Private), kernel, i.Ready)
		unreadable += i.Many.Unreadable
	}
	if n := s.forkPages(); !math.IsNaN(n) {
		p("\nA fork of the Python interpreter that waits for a program: %.0f private pages, %.2f MiB.", n, n*float64(os.Getpagesize())/(1<<20))
	}
	for _, i := range s.Idle {
		if i.Bare > 0 {
			p("\nBare Python processes that have used pandas, %d of them: PSS of each %.1f MiB.", i.N, mib(i.Bare))
		}
	}
	if unreadable > 0 {
		p("\n%d processes could not be read, and are missing above.", unreadable)
	}
}

// writeDrained prints the results of bursts with more requests than ready sandboxes.
func (s *suite) writeDrained(p func(string, ...any)) {
	d := s.Drained
	if d == nil {
		return
	}
	p("\n### More requests at once than ready sandboxes\n")
	p("%d bursts of %d requests where %d sandboxes were ready: %d with an error; p50 %.1f ms, p99 %.1f ms.", d.Bursts, d.Requests, d.Ready, d.Failed, d.P50, d.P99)
	p("The same bursts with nothing prepared: p50 %.1f ms, p99 %.1f ms.", d.FreshP50, d.FreshP99)
	if d.Refilled {
		p("By `sandbox_stats` as many were ready again %.0f ms after the last answer at the latest.", d.RefillMS)
	} else {
		p("By `sandbox_stats` there were not as many ready again %s after the last answer.", readyWithin)
	}
	if d.Wrong != "" {
		p("\nWrong: %s", oneLine(d.Wrong))
	}
}

// writeLeftovers prints what remains after very many runs.
func (s *suite) writeLeftovers(p func(string, ...any)) {
	l := s.Leftovers
	if l == nil {
		return
	}
	p("\n### What very many runs leave\n")
	p("The rows show one engine with its default settings. Before each measurement, it closes what it keeps ready")
	p("and collects garbage, so the memory is what the engine still needs.\n")
	titles, looks := []string{"before it was opened"}, []held{l.Start}
	for _, k := range l.Kinds {
		titles = append(titles, fmt.Sprintf("after %d %s", k.First, k.What), fmt.Sprintf("after %d", k.Last))
		looks = append(looks, k.Before, k.After)
	}
	writeHeld(p, append(titles, "after it was closed"), append(looks, l.Closed)...)
	for _, k := range l.Kinds {
		if k.Last < k.Wanted {
			p("\nOf %d %s the time of %s was enough for %d.", k.Wanted, k.What, leftTime.Round(time.Second), k.Last)
		}
	}
}

// writeHeld prints several measurements of a process side by side.
func writeHeld(p func(string, ...any), titles []string, looks ...held) {
	p("| | %s |", strings.Join(titles, " | "))
	p("|---|%s", strings.Repeat("---|", len(titles)))
	line := func(name string, get func(held) string) {
		var cells []string
		for _, h := range looks {
			cells = append(cells, get(h))
		}
		p("| %s | %s |", name, strings.Join(cells, " | "))
	}
	number := func(name string, get func(held) int64) {
		line(name, func(h held) string { return strconv.FormatInt(get(h), 10) })
	}
	number("processes below it", func(h held) int64 { return int64(h.Processes) })
	number("its threads", func(h held) int64 { return int64(h.Threads) })
	number("mounts, in all their mount tables", func(h held) int64 { return int64(h.Mounts) })
	number("network namespaces", func(h held) int64 { return int64(h.Namespaces) })
	number("cgroup directories", func(h held) int64 { return int64(h.Cgroups) })
	number("descriptors, of all of them", func(h held) int64 { return int64(h.Descriptors) })
	number("bytes in their tmpfs", func(h held) int64 { return h.TmpfsBytes })
	number("files left where temporary ones go", func(h held) int64 { return int64(h.Scratch) })
	line("resident MiB of the process alone", func(h held) string { return fmt.Sprintf("%.1f", mib(h.RSS)) })
	unreadable := 0
	for _, h := range looks {
		unreadable += h.Unreadable
	}
	if unreadable > 0 {
		p("\n%d times not everything of a process could be read, and what it holds is missing above.", unreadable)
	}
}

// writePublished prints the figures that Zeroboot publishes, beside those measured here. Zeroboot copies virtual machines.
func (s *suite) writePublished(p func(string, ...any)) {
	v := s.figures()
	figure := func(n float64, format string) string {
		if math.IsNaN(n) {
			return notMeasured
		}
		return fmt.Sprintf(format, n)
	}
	ready := notMeasured
	if len(s.Interpreters) > 0 {
		ready = figure(v.median(inPooled(s.Interpreters[0])), "%.2f ms")
	}
	page := float64(os.Getpagesize()) / 1000
	p("\n### Published by Zeroboot\n")
	p("Zeroboot's figures are from another machine and were not measured here, so the table does not compare the two.\n")
	p("| operation at Zeroboot | time or memory | operation here | time or memory |")
	p("|---|---|---|---|")
	p("| a copy of a virtual machine | 0.79 ms | an empty sandbox made and ended, one after the other | %s |", figure(1000/v.rate(rowEmpty, 1), "%.2f ms"))
	p("| a Python program's answer | 8 ms | a Python program in a ready sandbox | %s |", ready)
	p("| memory of a copy | 265 kB | private memory of a waiting fork | %s |", figure(s.forkPages()*page, "%.0f kB"))
	p("| 1000 copies | 815 ms | 1000 empty sandboxes made and ended, 8 at once (by calculation) | %s |", figure(1e6/v.rate(rowEmpty, 8), "%.0f ms"))
}
