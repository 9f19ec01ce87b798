package artifact_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// save collects files and keeps a result with them.
func (k *kit) save(t *testing.T, r sandboxmcp.Result, files map[string]string) sandboxmcp.Result {
	t.Helper()
	root := t.TempDir()
	fill(t, root, files)
	r.Artifacts = k.collect(t, artifact.Source{Files: &dir{root: root}, RequestID: r.RequestID, SessionID: r.SessionID}).Artifacts
	for i := range r.Artifacts {
		r.Artifacts[i].Signature = "c2ln"
	}
	save, err := k.Save(t.Context(), artifact.Record{Result: r, CreatedAt: k.now, EndedAt: k.now.Add(time.Second)}, k.dropped.note)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.store.Update(t.Context(), save.Op); err != nil {
		t.Fatal(err)
	}
	if err := k.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func result(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) sandboxmcp.Result {
	return sandboxmcp.Result{RequestID: id, Namespace: ns, Language: "python", Status: sandboxmcp.StatusCompleted, Success: true, Artifacts: []sandboxmcp.Artifact{}}
}

func TestSaveAndLoad(t *testing.T) {
	k := newKit(t, artifact.Config{})
	session := sandboxmcp.SessionID("s")
	r := result("ns", "r1")
	r.SessionID, r.Stdout, r.Stderr, r.ExitCode, r.DurationMS = &session, "out\x00é", strings.Repeat("e", 70<<10), 3, 1.25
	r.Error = &sandboxmcp.ProgramError{Name: "E", Value: "v", Traceback: []string{"a"}}
	r.Results = []sandboxmcp.RichResult{{"text/html": "<b>", "is_main_result": true}}
	r.Metadata = map[string]any{"clamped": []any{"max_ram_mb"}, "skipped": []sandboxmcp.SkippedFile{{Name: "link", Reason: "symbolic link"}}}
	r.Isolation = &sandboxmcp.Isolation{Tier: "L3", Walls: []string{"w"}, Weak: []string{}}
	r.Receipt = &sandboxmcp.Receipt{PayloadType: "t", Payload: "p", Signatures: []sandboxmcp.ReceiptSignature{{KeyID: "k", Sig: "s"}}}
	r.Network = sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}}
	want := k.save(t, r, map[string]string{"a.txt": "A", "d/b.bin": "\x00B"})
	got, err := k.Load(t.Context(), "ns", "r1", true)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got, err = k.Load(t.Context(), "ns", "r1", false)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(sandboxmcp.Artifact{}, "ContentB64")); d != "" {
		t.Error(d)
	}
	for _, a := range got.Artifacts {
		if a.ContentB64 != nil {
			t.Errorf("got content of %s, want none unless it is requested", a.Name)
		}
	}
	for stream, want := range map[string]string{"stdout": r.Stdout, "stderr": r.Stderr} {
		if got, err := k.Output(t.Context(), "ns", "r1", stream); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", stream, len(got), err)
		}
	}
	a, err := k.Content(t.Context(), "ns", "r1", "d/b.bin")
	if d := cmp.Diff(want.Artifacts[1], a); err != nil || d != "" {
		t.Error(err, d)
	}
	if save, err := k.Save(t.Context(), artifact.Record{Result: r}, new(notes).note); err != nil || k.store.Update(t.Context(), save.Op) == nil {
		t.Error("keeping a request twice: got no error, want one")
	}
}

// Another server stores a result under the random id of a run that goes on here. The note of that
// run must not fail, because later notes would wait for it for ever.
func TestANoteOfATakenID(t *testing.T) {
	k := newKit(t, artifact.Config{})
	record := func(named bool, stdout string) store.Note {
		r := result("ns", "r1")
		r.Stdout = stdout
		save, err := k.Save(t.Context(), artifact.Record{Result: r, CreatedAt: k.now, EndedAt: k.now, Named: named}, k.dropped.note)
		if err != nil {
			t.Fatal(err)
		}
		return save
	}
	note := record(false, "note")
	made, err := artifact.Notes()[note.Kind](note.Data)
	if err == nil {
		err = k.store.Update(t.Context(), record(true, "named").Op, note.Op, made)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.Load(t.Context(), "ns", "r1", false); err != nil || got.Stdout != "named" {
		t.Errorf("got %q and %v, want the first result", got.Stdout, err)
	}
	for id, want := range map[sandboxmcp.RequestID]bool{"r1": true, "r2": false} {
		if got, err := k.Stored(t.Context(), "ns", id); err != nil || got != want {
			t.Errorf("%s: got stored %v and %v, want %v", id, got, err, want)
		}
	}
	if again := record(true, "again"); again.Kind != "" || k.store.Update(t.Context(), again.Op) == nil {
		t.Error("a named result of a taken id: got a note or no error, want neither")
	}
}

func TestWhatIsNotThere(t *testing.T) {
	k := newKit(t, artifact.Config{})
	k.save(t, result("ns", "r1"), map[string]string{"a": "A"})
	type question struct {
		ns   sandboxmcp.Namespace
		id   sandboxmcp.RequestID
		name string
		want sandboxmcp.Code
	}
	for _, q := range []question{
		{"ns", "r2", "a", sandboxmcp.CodeRequestNotFound},
		{"other", "r1", "a", sandboxmcp.CodeRequestNotFound},
		{"ns", "r1", "b", sandboxmcp.CodeNotFound},
		{"ns", "r1", "", sandboxmcp.CodeNotFound},
		{"ns", "r1", "../a", sandboxmcp.CodeNotFound},
		{"ns", "r1", "' OR 1=1 --", sandboxmcp.CodeNotFound},
	} {
		if _, err := k.Content(t.Context(), q.ns, q.id, q.name); sandboxmcp.CodeOf(err) != q.want {
			t.Errorf("content of %+v: got %v, want its code", q, err)
		}
		if q.want != sandboxmcp.CodeRequestNotFound {
			continue
		}
		if _, err := k.Load(t.Context(), q.ns, q.id, true); sandboxmcp.CodeOf(err) != q.want {
			t.Errorf("load %+v: got %v, want its code", q, err)
		}
		if _, err := k.Output(t.Context(), q.ns, q.id, "stdout"); sandboxmcp.CodeOf(err) != q.want {
			t.Errorf("output of %+v: got %v, want its code", q, err)
		}
	}
	if _, err := k.Output(t.Context(), "ns", "r1", "stdin"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("output stdin: got %v, want invalid_argument", err)
	}
}

// blobFiles lists what lies in the state directory besides the database.
func (k *kit) blobFiles(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(k.store.Dir(), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && len(d.Name()) >= 60 {
			found = append(found, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSpoiledContentIsNotServed(t *testing.T) {
	k := newKit(t, artifact.Config{})
	k.save(t, result("ns", "r1"), map[string]string{"a": "AAAA"})
	blobs := k.blobFiles(t)
	if len(blobs) != 1 {
		t.Fatalf("got blobs %v, want one", blobs)
	}
	_ = os.Chmod(blobs[0], 0o600)
	if err := os.WriteFile(blobs[0], []byte("BBBB"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := k.Content(t.Context(), "ns", "r1", "a"); err == nil {
		t.Errorf("got content %q, want an error", a.ContentB64)
	}
	if err := os.Remove(blobs[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Content(t.Context(), "ns", "r1", "a"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
		t.Errorf("got %v, want not_found", err)
	}
}

func TestNoFileForARunWithoutArtifacts(t *testing.T) {
	k := newKit(t, artifact.Config{})
	r := result("ns", "r1")
	r.Stdout = strings.Repeat("x", 64<<10)
	k.save(t, r, nil)
	if blobs := k.blobFiles(t); len(blobs) != 0 {
		t.Errorf("got files %v, want none written", blobs)
	}
}
