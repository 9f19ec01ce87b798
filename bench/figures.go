//go:build linux

package main

import (
	"crypto/rand"
	"math"
	"math/big"
	"slices"
)

// series holds the measurements of a table row in milliseconds, one per round. NaN means
// that the round has no measurement.
type series struct {
	name   string
	base   string // row that the ratio refers to; empty: no ratio
	reason string // why measurements are missing
	ms     []float64
}

// row is a row of a table.
type row struct {
	Name   string
	Base   string
	Reason string
	N      int
	P50    float64
	P99    float64
	Min    float64
	Ratio  float64 // median over the rounds of the ratio to Base; 0: no ratio
}

// has reports whether the row was measured.
func (r row) has() bool { return r.N > 0 }

// summarize computes the row of a series. all holds the series of the same rounds.
func summarize(s *series, all map[string]*series) row {
	got := present(s.ms)
	r := row{Name: s.name, Base: s.base, Reason: s.reason, N: len(got)}
	if r.N == 0 {
		return r
	}
	r.P50, r.P99, r.Min = quantile(got, 0.5), quantile(got, 0.99), slices.Min(got)
	if base := all[s.base]; base != nil {
		if q := present(pairwise(s.ms, base.ms, func(a, b float64) float64 { return a / b })); len(q) > 0 {
			r.Ratio = quantile(q, 0.5)
		}
	}
	return r
}

// pairwise combines two series round by round.
func pairwise(a, b []float64, join func(a, b float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = join(a[i], b[i])
	}
	return out
}

func present(ms []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(ms), math.IsNaN)
}

// quantile returns the q-quantile of values, which need not be sorted. It interpolates
// linearly between two values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// shuffled returns 0 to n-1 in random order.
func shuffled(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	for i := n - 1; i > 0; i-- {
		k, err := rand.Int(rand.Reader, big.NewInt(int64(i+1)))
		if err != nil {
			continue // the random reader never fails
		}
		j := int(k.Int64())
		order[i], order[j] = order[j], order[i]
	}
	return order
}
