//go:build linux

package main

import (
	"fmt"
	"math"
)

// target is a required figure and the measured one.
type target struct {
	What     string
	Want     string
	Aim      string // a stricter target that is optional; empty if the row has none
	Measured string // the figure, or the reason why it is missing
	Verdict  string // ok, missed or not measured
}

const notMeasured = "not measured"

// atMost makes a target for a figure that must not exceed want. NaN means not measured.
func atMost(what string, got, want float64, format string) target {
	return target{What: what, Want: "≤ " + fmt.Sprintf(format, want)}.judged(got, format, func(got float64) bool { return got <= want })
}

// atLeast makes a target for a figure that must reach want.
func atLeast(what string, got, want float64, format string) target {
	return target{What: what, Want: "≥ " + fmt.Sprintf(format, want)}.judged(got, format, func(got float64) bool { return got >= want })
}

func (t target) judged(got float64, format string, good func(float64) bool) target {
	t.Measured, t.Verdict = "–", notMeasured
	if math.IsNaN(got) || math.IsInf(got, 0) {
		return t
	}
	t.Measured = fmt.Sprintf(format, got)
	t.Verdict = "missed"
	// Compare the rounded figure, as it is printed.
	var printed float64
	if _, err := fmt.Sscanf(t.Measured, "%f", &printed); err == nil && good(printed) {
		t.Verdict = "ok"
	}
	return t
}

// aim adds the figure that is hoped for.
func (t target) aim(want float64, format string) target {
	t.Aim = fmt.Sprintf(format, want)
	return t
}

// because sets the reason of a target that was not measured.
func (t target) because(why string) target {
	if t.Verdict == notMeasured && why != "" {
		t.Measured = oneLine(why)
	}
	return t
}

// figures looks up the figures of a suite by the names of rows and loads. A missing figure
// is NaN.
type figures struct {
	s     *suite
	rows  map[string]row
	cells map[string]map[int]cell
}

func (s *suite) figures() figures {
	v := figures{s: s, rows: map[string]row{}, cells: map[string]map[int]cell{}}
	for _, r := range append(append([]row{}, s.Rows...), s.Facts...) {
		v.rows[r.Name] = r
	}
	for _, c := range s.Cells {
		if v.cells[c.Name] == nil {
			v.cells[c.Name] = map[int]cell{}
		}
		v.cells[c.Name][c.Workers] = c
	}
	return v
}

// ratio returns the median over the rounds of the ratio to the row's base.
func (v figures) ratio(name string) float64 {
	if r := v.rows[name]; r.has() && r.Ratio > 0 {
		return r.Ratio
	}
	return math.NaN()
}

func (v figures) median(name string) float64 {
	if r := v.rows[name]; r.has() {
		return r.P50
	}
	return math.NaN()
}

// rate returns the operations per second.
func (v figures) rate(name string, workers int) float64 {
	if c := v.cells[name][workers]; c.has() {
		return c.rate()
	}
	return math.NaN()
}

// cost returns the CPU time per operation in ms.
func (v figures) cost(name string, workers int) float64 {
	if c := v.cells[name][workers]; c.has() {
		return c.cost()
	}
	return math.NaN()
}

// why returns why a row or load has no figure. It uses the first name that has a reason.
func (v figures) why(names ...string) string {
	for _, name := range names {
		if r := v.rows[name]; !r.has() && r.Reason != "" {
			return name + ": " + r.Reason
		}
		for _, c := range v.cells[name] {
			if !c.has() && c.Reason != "" {
				return name + ": " + c.Reason
			}
		}
	}
	return ""
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
