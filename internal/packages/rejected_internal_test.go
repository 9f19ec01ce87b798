package packages

import (
	"strconv"
	"testing"
)

// TestRejectionsAreBounded: an index may list thousands of versions without a wheel of each of 2000 packages. What explains a
// failure, and packages that were asked for, are remembered all the same.
func TestRejectionsAreBounded(t *testing.T) {
	g := &Gateway{rejected: map[string][]rejection{}, order: Order{Specs: []Spec{{Name: "asked"}}}, rejections: maxRejected - 15}
	for n := range 30 {
		g.reject("one", strconv.Itoa(n), "only source", false)
	}
	g.reject("two", "1.0", "only source", false)
	g.reject("asked", "1.0", "only source", false)
	g.reject("three", "1.0", "it is no wheel", true)
	for name, want := range map[string]int{"one": 15, "two": 0, "asked": 1, "three": 1} {
		if got := len(g.rejected[name]); got != want {
			t.Errorf("got %d rejections of %s, want %d", got, name, want)
		}
	}
}
