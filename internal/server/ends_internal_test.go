package server

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestValuesInLongOutput: a value that the beginning or the end of a long output shows is left out of the list of values.
// The middle is not searched, because that would read the whole output for each value.
func TestValuesInLongOutput(t *testing.T) {
	long := strings.Repeat("\nxx", 2*searched)
	var res sandboxmcp.Result
	for _, text := range []string{"first", "middle", "last", "xx\nxx\n"} {
		res.Results = append(res.Results, sandboxmcp.RichResult{"text/plain": text})
	}
	list := (&Server{}).smallResults(res, nil, "first"+long+"\nmiddle"+long+"\nlast")
	if len(list) != 1 || list[0]["text/plain"] != "middle" {
		t.Errorf("got %v, want the value in the middle alone", list)
	}
}

// TestValuesThatStdoutDoesNotShow: a value is in the answer if stdout has it only within a line, or only in the part that is
// cut out.
func TestValuesThatStdoutDoesNotShow(t *testing.T) {
	for stdout, want := range map[string]int{
		"loaded 1422 rows\n": 1, "42\n": 0, "42": 0, "rows\n42\nof 7\n": 0, "": 1,
		strings.Repeat("x", 20_000) + "\n42\n" + strings.Repeat("y", 20_000): 1,
	} {
		res := sandboxmcp.Result{Stdout: stdout, Results: []sandboxmcp.RichResult{{"text/plain": "42"}}}
		shown, _, _, _ := smallStreams(res, func() int { return minStreams })
		if got := len((&Server{}).smallResults(res, nil, shown)); got != want {
			t.Errorf("%.20q: got %d values, want %d", stdout, got, want)
		}
	}
}
