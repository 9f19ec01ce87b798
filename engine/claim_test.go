package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestAWriterOfTheDatabaseReadsNoContent: an attacker can write the database and may call as one namespace. The attacker changes
// rows so that files and long outputs of another namespace seem to belong to the own one. The server does not return them.
func TestAWriterOfTheDatabaseReadsNoContent(t *testing.T) {
	for name, change := range map[string]string{
		"the namespace of the result":                `UPDATE executions SET namespace = 'thief' WHERE namespace = 'owner'`,
		"and its receipt":                            `UPDATE executions SET receipt = (SELECT receipt FROM executions WHERE namespace = 'thief') WHERE namespace = 'owner'; UPDATE executions SET namespace = 'thief'`,
		"and no receipt":                             `UPDATE executions SET namespace = 'thief', receipt = NULL`,
		"the contents of an own result":              `UPDATE artifacts SET sha256 = (SELECT sha256 FROM artifacts WHERE request_id = 'theirs'), size_bytes = 6; UPDATE executions SET stdout_blob = (SELECT stdout_blob FROM executions WHERE namespace = 'owner')`,
		"the contents of an own result, and receipt": `UPDATE artifacts SET sha256 = (SELECT sha256 FROM artifacts WHERE request_id = 'theirs'), size_bytes = 6; UPDATE executions SET receipt = (SELECT receipt FROM executions WHERE namespace = 'owner'), stdout_blob = (SELECT stdout_blob FROM executions WHERE namespace = 'owner')`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			text := ""
			f := &fake{}
			f.program = func(r *fakeRun) backend.Exit {
				fmt.Fprint(r.Stdout, strings.Repeat(text, 50_000)) // kept outside of the database
				return backend.Exit{}
			}
			e := open(t, f, at(dir))
			for _, run := range []struct {
				id, ns, text string
			}{{"theirs", "owner", "secret"}, {"mine", "thief", "nothing"}} {
				text, f.files = run.text, map[string]string{"a.txt": run.text}
				execute(t, e, sandboxmcp.Request{ID: sandboxmcp.RequestID(run.id), Code: "x"}, of(sandboxmcp.Namespace(run.ns)))
			}
			read := func(id sandboxmcp.RequestID, ns sandboxmcp.Namespace) string {
				a, _ := e.ArtifactContent(t.Context(), of(ns), id, "a.txt")
				out, _ := e.Output(t.Context(), of(ns), id, "stdout")
				res, _ := e.Lookup(t.Context(), of(ns), sandboxmcp.Lookup{RequestID: id, Content: true})
				got := string(a.ContentB64) + string(out) + res.Stdout
				for _, a := range res.Artifacts {
					got += string(a.ContentB64)
				}
				return got
			}
			if got := read("mine", "thief"); !strings.Contains(got, "nothing") || strings.Contains(got, "secret") {
				t.Fatalf("before: got %d bytes, want its own content", len(got))
			}
			storetest.Tamper(t, dir, change)
			if got := read("theirs", "thief") + read("mine", "thief"); strings.Contains(got, "secret") {
				t.Errorf("got %d bytes with the content of another namespace, want none", len(got))
			}
		})
	}
}

// TestLongOutputsAfterAnotherKey: the server says which key a long output of an earlier result needs. Short outputs are shown.
func TestLongOutputsAfterAnotherKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	text := ""
	f := &fake{program: func(r *fakeRun) backend.Exit {
		fmt.Fprint(r.Stdout, text)
		return backend.Exit{}
	}}
	e := open(t, f, at(dir))
	for id, out := range map[string]string{"short": "hi", "long": strings.Repeat("x", 100_000)} {
		text = out
		execute(t, e, sandboxmcp.Request{ID: sandboxmcp.RequestID(id), Code: "x"}, of("owner"))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"signing.key", "signing.pub"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	e = open(t, f, at(dir))
	if res, err := e.Lookup(t.Context(), of("owner"), sandboxmcp.Lookup{RequestID: "short"}); err != nil || res.Stdout != "hi" {
		t.Errorf("got %q and %v, want the short output", res.Stdout, err)
	}
	_, err := e.Lookup(t.Context(), of("owner"), sandboxmcp.Lookup{RequestID: "long"})
	const want = "no receipt of this server's key names them"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(sandboxmcp.AsError(err).Hint, "signing.key was replaced") {
		t.Errorf("got %v, want that %s", err, want)
	}
}
