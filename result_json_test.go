package sandboxmcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestResultOfARunThatGoesOn: a running result has neither succeeded nor failed. Its fields have
// the names and the order of every other result.
func TestResultOfARunThatGoesOn(t *testing.T) {
	r := sandboxmcp.Result{RequestID: "id", ExitCode: sandboxmcp.ExitStopped, Stdout: "<so far>", Status: sandboxmcp.StatusRunning}
	running, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"request_id":"id","success":null,"exit_code":null,"stdout":"\u003cso far\u003e"`; !strings.HasPrefix(string(running), want) {
		t.Errorf("got %.100s, want %s", running, want)
	}
	r.Status = sandboxmcp.StatusCancelled
	ended, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"request_id":"id","success":false,"exit_code":-1,"stdout"`; !strings.HasPrefix(string(ended), want) {
		t.Errorf("got %.100s, want %s", ended, want)
	}
	same := strings.NewReplacer(`"success":null,"exit_code":null`, `"success":false,"exit_code":-1`, `"running"`, `"cancelled"`)
	if diff := cmp.Diff(string(ended), same.Replace(string(running))); diff != "" {
		t.Errorf("other fields (-ended +running):\n%s", diff)
	}
	var back sandboxmcp.Result
	if err := json.Unmarshal(ended, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("decoded again (-want +got):\n%s", diff)
	}
}
