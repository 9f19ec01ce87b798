package server

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestValuesInLongOutput: a value that the beginning or the end of a long output shows is left out of the list of
// values. What lies between is not searched: each value would cost as much as all of the output.
func TestValuesInLongOutput(t *testing.T) {
	long := strings.Repeat("x", 4*searched)
	res := sandboxmcp.Result{Stdout: "first" + long + "middle" + long + "last"}
	for _, text := range []string{"first", "middle", "last", "xxx"} {
		res.Results = append(res.Results, sandboxmcp.RichResult{"text/plain": text})
	}
	list := (&Server{}).smallResults(res, nil)
	if len(list) != 1 || list[0]["text/plain"] != "middle" {
		t.Errorf("got %v, want the value in the middle alone", list)
	}
}
