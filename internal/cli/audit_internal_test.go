package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// fakeRecord is a record in the memory of a server.
type fakeRecord struct {
	recording sync.Mutex
	entries   []sandboxmcp.AuditEntry // oldest first
	memory    bool
	faults    []sandboxmcp.AuditFault
}

func (f *fakeRecord) Audit(_ context.Context, _ sandboxmcp.Caller, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	f.recording.Lock()
	defer f.recording.Unlock()
	page := sandboxmcp.AuditPage{Entries: []sandboxmcp.AuditEntry{}, Head: sandboxmcp.AuditHead{Size: 7, Root: "memory"}}
	for _, e := range f.entries {
		if e.Seq > q.After {
			page.Entries = append(page.Entries, e)
		}
	}
	page.Total = len(page.Entries)
	return page, nil
}

func (f *fakeRecord) VerifyAudit(context.Context, sandboxmcp.Caller) (sandboxmcp.AuditReport, error) {
	return sandboxmcp.AuditReport{OK: len(f.faults) == 0, Entries: int64(len(f.entries)), Faults: f.faults}, nil
}

func (f *fakeRecord) AuditInMemory() bool { return f.memory }

func (f *fakeRecord) add(e sandboxmcp.AuditEntry) {
	f.recording.Lock()
	defer f.recording.Unlock()
	e.Seq = int64(len(f.entries)) + 1
	f.entries = append(f.entries, e)
}

// recorded makes a state directory with entries, and returns how to add more.
func recorded(t *testing.T, dir string, details ...string) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), s, audit.Config{Signer: key, HeadFile: audit.HeadFile(dir, s.Path()), CheckpointFile: filepath.Join(dir, "second")})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range details {
		e := sandboxmcp.AuditEntry{Action: "execute", Phase: "outcome", Namespace: "default", Actor: "cli", Detail: d}
		if i%3 == 2 {
			e.Action = "create_session"
		}
		if _, err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	l.Close(t.Context())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l.Publish()
}

func TestAuditCommand(t *testing.T) {
	dir := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + dir}
	ask := func(args ...string) sandboxmcp.AuditPage {
		t.Helper()
		got := (&fake{}).cli(t.Context(), t, env, append([]string{"audit", "--json"}, args...)...)
		if got.status != 0 || got.stderr != "" {
			t.Fatalf("%v: got %d and %s, want 0 and nothing on stderr", args, got.status, got.stderr)
		}
		return parsed[sandboxmcp.AuditPage](t, got.stdout)
	}
	if page := ask(); page.Entries == nil || page.Total != 0 {
		t.Errorf("of nothing: got %+v, want no entries", page)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("got %v (%v) in the state directory after a look, want nothing", left, err)
	}
	recorded(t, dir, "one", "two", "three", "four")
	page := ask()
	if len(page.Entries) != 4 || page.Entries[0].Detail != "four" || page.Head.Size != 4 || page.Head.SignedAt == nil {
		t.Errorf("got %+v, want four entries under a checkpoint, the newest first", page)
	}
	if page := ask("--limit", "2"); len(page.Entries) != 2 || page.Total != 4 {
		t.Errorf("--limit: got %+v, want two of four", page)
	}
	if page := ask("--action", "create_session"); len(page.Entries) != 1 || page.Entries[0].Detail != "three" {
		t.Errorf("--action: got %+v, want the one of that action", page)
	}
	if page := ask("--namespace", "other"); len(page.Entries) != 0 {
		t.Errorf("--namespace: got %+v, want none", page)
	}
	for since, want := range map[string]int{"1h": 4, "2999-01-01": 0, "2001-01-01T00:00:00Z": 4} {
		if page := ask("--since", since); len(page.Entries) != want {
			t.Errorf("--since %s: got %d, want %d", since, len(page.Entries), want)
		}
	}
	for _, bad := range [][]string{{"--limit", "0"}, {"--limit", "1001"}, {"--since", "yesterday"}, {"--since", "-5m"}, {"--namespace", "a/b"}} {
		if got := (&fake{}).cli(t.Context(), t, env, append([]string{"audit"}, bad...)...); got.status != 2 || !strings.Contains(got.stderr, "invalid_argument") {
			t.Errorf("%v: got %d and %s, want 2 and invalid_argument", bad, got.status, got.stderr)
		}
	}
	got := (&fake{}).cli(t.Context(), t, env, "audit", "verify")
	if got.status != 0 || !strings.HasPrefix(got.stdout, "SOUND: 4 entries of 1 namespace; signed by checkpoints: 4") {
		t.Errorf("verify: got %+v, want it sound", got)
	}
}

// What an entry says is no line and no command of a terminal's.
func TestAuditIsEscaped(t *testing.T) {
	dir := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + dir}
	recorded(t, dir, "a\x1b[2Jb\r\n9  2031-01-01  execute  outcome  forged\u202e\u2028")
	for _, args := range [][]string{{"audit"}, {"audit", "--json"}} {
		got := (&fake{}).cli(t.Context(), t, env, args...)
		lines := strings.Count(got.stdout, "\n")
		if got.status != 0 || strings.ContainsAny(got.stdout, "\x1b\r") || len(args) == 1 && (lines != 2 || strings.ContainsAny(got.stdout, "\u202e\u2028")) {
			t.Errorf("%v: got %q, want 0 and no control characters", args, got.stdout)
		}
	}
}

// verify says what is wrong and where, with 1, and changes nothing.
func TestAuditVerifyCommand(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	env := []string{"SANDBOXMCP_STATE_DIR=" + dir}
	recorded(t, dir, "one", "two", "three")
	second, err := os.ReadFile(filepath.Join(dir, "second"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(elsewhere, second, 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(args ...string) (int, sandboxmcp.AuditReport) {
		t.Helper()
		got := (&fake{}).cli(t.Context(), t, env, append([]string{"audit", "verify", "--json"}, args...)...)
		return got.status, parsed[sandboxmcp.AuditReport](t, got.stdout)
	}
	if status, rep := verify("--checkpoints", elsewhere); status != 0 || !rep.OK || rep.Second.Notes != 1 || rep.Key == "" {
		t.Errorf("got %d and %+v, want 0, sound, with one note in the second place", status, rep)
	}
	// The same with a public key that was kept elsewhere.
	public, err := os.ReadFile(filepath.Join(dir, sign.PublicFile))
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "kept.pub")
	if err := os.WriteFile(kept, public, 0o600); err != nil {
		t.Fatal(err)
	}
	// All is made anew, with a new key: sound in itself, and not against what is elsewhere.
	for _, f := range []string{"sandboxmcp.db", "sandboxmcp.head", "second", sign.PrivateFile, sign.PublicFile} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	recorded(t, dir, "four", "five", "six", "seven")
	if status, rep := verify(); status != 0 || !rep.OK {
		t.Errorf("the forgery: got %d and %+v, want it sound", status, rep)
	}
	if status, rep := verify("--checkpoints", elsewhere); status != 1 || rep.OK || rep.Faults[0].Kind != "checkpoint" || !strings.Contains(rep.Faults[0].Reason, "another key") {
		t.Errorf("against the second place: got %d and %+v, want 1 and another key named", status, rep)
	}
	if status, rep := verify("--key", kept); status != 1 || rep.OK {
		t.Errorf("with the key of before: got %d and %+v, want 1", status, rep)
	}
	if err := os.Remove(filepath.Join(dir, sign.PublicFile)); err != nil {
		t.Fatal(err)
	}
	if status, rep := verify(); status != 1 || rep.Faults[0].Kind != "key" {
		t.Errorf("without a key: got %d and %+v, want 1 and the key missed", status, rep)
	}
	got := (&fake{}).cli(t.Context(), t, env, "audit", "verify")
	if got.status != 1 || !strings.HasPrefix(got.stdout, "NOT SOUND: 4 entries") || !strings.Contains(got.stdout, "\nkey ") {
		t.Errorf("in words: got %+v, want 1 and the fault in words", got)
	}
	if got := (&fake{}).cli(t.Context(), t, env, "audit", "verify", "--key", elsewhere); got.status != 2 {
		t.Errorf("a key that is none: got %+v, want 2", got)
	}
}

// An entry that a writer of the database appends is found with the private key. The public half alone
// finds no fault, and needs no private key.
func TestAuditVerifyFindsForgedEntries(t *testing.T) {
	dir := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + dir}
	recorded(t, dir, "one", "two")
	s, err := store.Open(t.Context(), store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), s, audit.Config{}) // it has no key
	if err == nil {
		_, err = l.Append(t.Context(), sandboxmcp.AuditEntry{Action: "execute", Phase: "outcome", Namespace: "default", Actor: "cli", Detail: "forged"})
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	verify := func(args ...string) (int, sandboxmcp.AuditReport) {
		t.Helper()
		got := (&fake{}).cli(t.Context(), t, env, append([]string{"audit", "verify", "--json"}, args...)...)
		return got.status, parsed[sandboxmcp.AuditReport](t, got.stdout)
	}
	if status, rep := verify(); status != 1 || len(rep.Faults) != 1 || rep.Faults[0].Kind != "forged" || rep.Faults[0].Row != 3 {
		t.Errorf("got %d and %+v, want 1 and row 3 to be forged", status, rep.Faults)
	}
	if err := os.Remove(filepath.Join(dir, sign.PrivateFile)); err != nil {
		t.Fatal(err)
	}
	if status, rep := verify(); status != 0 || !rep.OK {
		t.Errorf("with the public key alone: got %d and %+v, want 0 and no fault", status, rep.Faults)
	}
	if status, rep := verify("--key", filepath.Join(dir, sign.PublicFile)); status != 0 || !rep.OK {
		t.Errorf("with --key: got %d and %+v, want 0 and no fault", status, rep.Faults)
	}
}

// A record in a server's memory is read over its socket, and shown with
// that of the state directory.
func TestAuditOfServers(t *testing.T) {
	memory, disk := &fake{}, &fake{}
	memory.memory = true
	memory.add(sandboxmcp.AuditEntry{ID: "m", Action: "execute", Detail: "in memory", Timestamp: time.Now().Add(time.Hour)})
	disk.add(sandboxmcp.AuditEntry{ID: "d", Action: "execute", Detail: "is on disk", Timestamp: time.Now()})
	env := servers(t, memory, disk)
	recorded(t, strings.TrimPrefix(env[0], "SANDBOXMCP_STATE_DIR="), "here")
	page := parsed[sandboxmcp.AuditPage](t, (&fake{}).cli(t.Context(), t, env, "audit", "--json").stdout)
	if len(page.Entries) != 2 || page.Entries[0].Detail != "in memory" || page.Entries[1].Detail != "here" || page.Total != 2 || page.Head.Size != 1 {
		t.Errorf("got %+v, want the entries of memory and disk, the newest first", page)
	}
	env = append(env, "SANDBOXMCP_AUDIT=memory")
	page = parsed[sandboxmcp.AuditPage](t, (&fake{}).cli(t.Context(), t, env, "audit", "--json").stdout)
	if len(page.Entries) != 1 || page.Entries[0].Detail != "in memory" || page.Head.Root != "memory" {
		t.Errorf("in memory alone: got %+v, want those of memory alone", page)
	}
	if got := (&fake{}).cli(t.Context(), t, env, "audit", "verify", "--json"); got.status != 0 {
		t.Errorf("verify: got %+v, want 0", got)
	}
	memory.faults = []sandboxmcp.AuditFault{{Kind: "edited"}}
	if got := (&fake{}).cli(t.Context(), t, env[:1], "audit", "verify", "--json"); got.status != 1 || !strings.Contains(got.stdout, memory.id) {
		t.Errorf("verify, with a fault in a server: got %+v, want 1 and the server named", got)
	}
	none := []string{"SANDBOXMCP_STATE_DIR=" + t.TempDir(), "SANDBOXMCP_AUDIT=memory"}
	if got := (&fake{}).cli(t.Context(), t, none, "audit", "verify"); got.status == 0 || !strings.Contains(got.stderr, "no server is running") {
		t.Errorf("verify of nothing: got %+v, want a failure and no server", got)
	}
}

func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSuffix(b.buf.String(), "\n"), "\n")
}

// --follow prints each entry once, the oldest first, whichever process appends it.
func TestAuditFollow(t *testing.T) {
	memory := &fake{}
	memory.memory = true
	env := servers(t, memory)
	dir := strings.TrimPrefix(env[0], "SANDBOXMCP_STATE_DIR=")
	recorded(t, dir, "one", "two")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, ended := &buffer{}, make(chan int, 1)
	go func() {
		ended <- (&fake{}).call(append(env, "HOME="+dir), out, &bytes.Buffer{}).main(ctx, []string{"sandboxmcp", "audit", "--follow", "--json"})
	}()
	details := func() string {
		var all []string
		for _, line := range out.lines() {
			var e sandboxmcp.AuditEntry
			if json.Unmarshal([]byte(line), &e) == nil {
				all = append(all, e.Detail)
			}
		}
		return strings.Join(all, " ")
	}
	await := func(want string) {
		t.Helper()
		testkit.UntilEqual(t, "details of the entries shown", want, details)
	}
	await("one two")
	recorded(t, dir, "three", "four")
	await("one two three four")
	memory.add(sandboxmcp.AuditEntry{ID: "m", Detail: "five"})
	await("one two three four five")
	recorded(t, dir, "six")
	await("one two three four five six")
	stop()
	if status := <-ended; status != 0 {
		t.Errorf("got status %d, want 0", status)
	}
}
