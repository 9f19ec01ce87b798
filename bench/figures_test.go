//go:build linux

package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 2, 3}, 0.5, 2.5},
		{[]float64{5}, 0.99, 5},
		{[]float64{0, 100}, 0.99, 99},
		{[]float64{1, 2, 3}, 1, 3},
	} {
		if got := quantile(tt.values, tt.q); got != tt.want {
			t.Errorf("quantile(%v, %v): got %v, want %v", tt.values, tt.q, got, tt.want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing: got %v, want NaN", got)
	}
}

// A ratio is taken round by round: the median of ratios, not the ratio of medians.
func TestSummarize(t *testing.T) {
	nan := math.NaN()
	base := &series{name: "bare", ms: []float64{10, 20, 40, nan, 10}}
	s := &series{name: "ours", base: "bare", ms: []float64{20, 30, 40, 99, nan}, reason: "1 of 5 failed"}
	got := summarize(s, map[string]*series{"bare": base, "ours": s})
	want := row{Name: "ours", Base: "bare", Reason: "1 of 5 failed", N: 4, P50: 35, Min: 20, Ratio: 1.5}
	want.P99 = quantile([]float64{20, 30, 40, 99}, 0.99)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summarize (-want +got):\n%s", diff)
	}
	if got := summarize(&series{name: "absent", base: "bare", reason: "not installed"}, nil); got.has() || got.Reason != "not installed" {
		t.Errorf("summarize of nothing: got %+v, want no figures and the reason", got)
	}
}

func TestShuffled(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		got := shuffled(4)
		key := ""
		for _, i := range got {
			key += string(rune('0' + i))
		}
		seen[key] = true
		slices.Sort(got)
		if diff := cmp.Diff([]int{0, 1, 2, 3}, got); diff != "" {
			t.Fatalf("not an order (-want +got):\n%s", diff)
		}
	}
	if len(seen) < 5 {
		t.Errorf("50 orders of 4: got %d different ones, want at least 5", len(seen))
	}
}

// TestThePagesSayWhichCommit: tools/tree looks for it and refuses an old one.
func TestThePagesSayWhichCommit(t *testing.T) {
	d := document{At: time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC), Commit: "0123456789ab", Suites: []suite{{}}}
	want := "\nMeasured on 1 May 2026, 10:00 UTC at commit 0123456789ab by `bin/bench`."
	for _, page := range []string{d.users(), d.markdown()} {
		if !strings.Contains(page, want) {
			t.Errorf("got %q, want %q in it", page[:min(len(page), 300)], want)
		}
	}
}

// TestUsersSeeOurTimesBesideOthers: what was not measured has no line.
func TestUsersSeeOurTimesBesideOthers(t *testing.T) {
	python := interpreter{Label: "python"}
	d := document{Suites: []suite{{Rounds: 30, Interpreters: []interpreter{python}, Rows: []row{
		{Name: python.bare(), N: 30, P50: 14.2, P99: 19},
		{Name: inPooled(python), N: 30, P50: 4.7, P99: 11.8, Ratio: 0.356},
		{Name: rowDockerRun, N: 5, P50: 301, P99: 339, Ratio: 20.2},
		{Name: rowS1MCP, Reason: "not installed"},
	}}}}
	got := d.users()
	for _, line := range []string{
		"| plain, without a sandbox | python, one line | 14.2 | 19.0 | 1 |\n", "| **sandboxmcp**, prepared sandbox | python, one line | 4.7 | 11.8 | 0.36 |\n",
		"| docker run | python, one line | 301.0 | 339.0 | 20.20 |\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("got %s, want the line %s", got, line)
		}
	}
	if strings.Contains(got, "Python project), MCP") {
		t.Errorf("got %s, want no line for what was not measured", got)
	}
}

func TestMedianInterval(t *testing.T) {
	values := make([]float64, 401)
	for i := range values {
		values[i] = float64(i) - 150
	}
	low, high := medianInterval(values)
	if low < 20 || low > 49 || high < 51 || high > 80 { // the median is 50, its standard error 10 or so
		t.Errorf("got [%v, %v], want an interval around 50", low, high)
	}
}
