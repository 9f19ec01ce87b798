package backendtest

import (
	"bytes"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Output runs a program in a sandbox, waits for its end and returns its stdout and stderr. It ends the
// test if the program cannot be started or its output cannot be read.
func Output(t testing.TB, sb backend.Sandbox, argv ...string) string {
	t.Helper()
	var out bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &out})
	if err == nil {
		_, err = r.Wait(t.Context())
	}
	if err == nil {
		err = r.Drain(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
