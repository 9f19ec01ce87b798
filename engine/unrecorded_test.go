package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestLockedRecord: while another process keeps the database locked for longer than the busy
// timeout, each run is refused with one clear error and nothing starts. Afterwards runs
// succeed.
func TestLockedRecord(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir), direct)
	execute(t, e, shell("true"))
	before, _ := f.starts()
	db := database(t, dir)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true"))
			got := sandboxmcp.AsError(err)
			if got.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(got.Message, "locked") || got.Hint == "" {
				t.Errorf("got %v (%s), want backend_unavailable that says that the database is locked", err, got.Hint)
			}
		})
	}
	wg.Wait()
	if started, _ := f.starts(); started != before {
		t.Errorf("programs started: got %d, want none", started-before)
	}
	eventually(t, "no sandbox is left", func() bool { _, left := f.starts(); return left == 0 })
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	execute(t, e, shell("true"))
	if got := len(rows(t, dir, "default")); got != 4 {
		t.Errorf("%d entries, want those of the two runs that ran", got)
	}
}

// TestUnwritableRecord: while the record takes no entry, for whatever reason, no program runs.
func TestUnwritableRecord(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir), direct)
	if _, err := database(t, dir).ExecContext(t.Context(), `CREATE TRIGGER never BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'not today'); END`); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true")); err == nil {
		t.Error("Execute without a record: got no error, want a refusal")
	}
	if _, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell}); err == nil {
		t.Error("CreateSession without a record: got no error, want a refusal")
	}
	if started, _ := f.starts(); started != 0 {
		t.Errorf("programs started: got %d, want none", started)
	}
	eventually(t, "no sandbox is left", func() bool { _, left := f.starts(); return left == 0 })
}

// Records that wait for the database are not lost if it takes none: from then on no program runs
// until they are in.
func TestRecordsThatDoNotReachTheDatabase(t *testing.T) {
	t.Parallel()
	storetest.SQLite(t)
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir))
	db := database(t, dir)
	do(t, db, `CREATE TRIGGER never BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'not today'); END`)
	ran := 0
	eventually(t, "a run is refused", func() bool {
		_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true"))
		if err == nil {
			ran++
			return false
		}
		wantCode(t, err, sandboxmcp.CodeBackendUnavailable)
		return true
	})
	if started, _ := f.starts(); started < ran || started > ran+1 {
		t.Errorf("programs started: got %d for %d results", started, ran)
	}
	if _, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{}); err == nil {
		t.Error("the audit without its newest entries: got no error, want one")
	}
	do(t, db, `DROP TRIGGER never`)
	execute(t, e, shell("true"))
	done := 0
	for _, r := range rows(t, dir, "default") {
		if r.Success != nil && *r.Success {
			done++
		}
	}
	if done != ran+1 {
		t.Errorf("outcomes on record: got %d, want %d", done, ran+1)
	}
}

// If the file for records cannot be written, no program runs.
func TestNoFileForRecords(t *testing.T) {
	t.Parallel()
	storetest.SQLite(t)
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir))
	if err := os.WriteFile(filepath.Join(dir, "sandboxmcp.db-notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true"))
	wantCode(t, err, sandboxmcp.CodeBackendUnavailable)
	if started, _ := f.starts(); started != 0 {
		t.Errorf("programs started: got %d, want none", started)
	}
}

// A run whose result cannot be kept fails, and the failure says that the program ran: a
// caller that repeats the request runs it twice.
func TestAFailureAfterTheRunSaysThatItRan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir), direct)
	if _, err := database(t, dir).ExecContext(t.Context(), `CREATE TRIGGER never BEFORE INSERT ON executions BEGIN SELECT RAISE(ABORT, 'not today'); END`); err != nil {
		t.Fatal(err)
	}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true"))
	if got := sandboxmcp.AsError(err); err == nil || !strings.Contains(got.Message, "the program ran") {
		t.Errorf("got %v, want a failure that says that the program ran", err)
	}
	if started, _ := f.starts(); started != 1 {
		t.Errorf("%d programs were started, want 1", started)
	}
}

// TestAuditOfEngine: the engine returns its record, by namespace, and the record verifies.
// After Close all of it is under a checkpoint, in the second file too.
func TestAuditOfEngine(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	place := filepath.Join(t.TempDir(), "checkpoints")
	e := open(t, &fake{files: map[string]string{"a": "b"}}, at(dir), func(c *engine.Config) { c.Server, c.AuditCheckpointFile = true, place })
	execute(t, e, shell("true"))
	execute(t, e, shell("true"), of("other"))
	page, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{})
	if err != nil || page.Total != 4 || page.Entries[0].Action != "artifact_signed" || page.Entries[3].Action != "server_start" {
		t.Errorf("got %+v and %v", page, err)
	}
	if e.AuditInMemory() {
		t.Error("AuditInMemory: got true, want false")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, &fake{}, at(dir), func(c *engine.Config) { c.AuditCheckpointFile = place })
	rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{})
	if err != nil || !rep.OK || rep.Entries != 8 || rep.Tail.Entries != 0 || rep.Second.Size != 8 || rep.Head.SignedAt == nil || time.Since(*rep.Head.SignedAt) > time.Hour {
		t.Errorf("got %+v and %v", rep, err)
	}
}

// TestAuditFindsForgedEntries: the engine finds an entry that a writer of the database has appended without the
// key, and puts no checkpoint over it.
func TestAuditFindsForgedEntries(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, &fake{}, at(dir))
	execute(t, e, shell("true"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), s, audit.Config{}) // it has no key
	if err == nil {
		_, err = l.Append(t.Context(), sandboxmcp.AuditEntry{Action: "execute", Phase: "outcome", Namespace: "default", Detail: "forged"})
	}
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	e = open(t, &fake{}, at(dir))
	execute(t, e, shell("true"))
	if err = e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, &fake{}, at(dir))
	rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{})
	if err != nil || rep.Head.Size != 2 || rep.Entries != 5 || len(rep.Faults) != 2 || rep.Faults[0].Kind != "found" || rep.Faults[1].Kind != "forged" || rep.Faults[1].Row != 3 {
		t.Errorf("got a checkpoint over %d of %d entries, %+v and %v, want 2 of 5, row 3 to be forged, and that the server has found it", rep.Head.Size, rep.Entries, rep.Faults, err)
	}
}

// TestAuditInMemory: a record in memory is signed and verifies while the engine lives. It has
// no second checkpoint file.
func TestAuditInMemory(t *testing.T) {
	t.Parallel()
	memory := func(c *engine.Config) { c.SQLitePath = ":memory:" }
	e := open(t, &fake{}, memory)
	execute(t, e, shell("true"))
	eventually(t, "a checkpoint", func() bool {
		page, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{})
		return err == nil && page.Head.Size == 2
	})
	if rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{}); err != nil || !rep.OK || rep.Entries != 2 || !e.AuditInMemory() {
		t.Errorf("got %+v and %v", rep, err)
	}
	_, err := engine.New(t.Context(), engine.Config{StateDir: t.TempDir(), SQLitePath: ":memory:", AuditCheckpointFile: filepath.Join(t.TempDir(), "x"), Backends: []backend.Backend{&fake{}}})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
}

// TestAuditIsKeptSoLong: entries are dropped at their age, and the rest verifies.
func TestAuditIsKeptSoLong(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	now := time.Now()
	clock := func(c *engine.Config) { c.Now = func() time.Time { return now }; c.AuditKeep = 24 * time.Hour }
	e := open(t, &fake{}, at(dir), clock)
	execute(t, e, shell("true"))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(48 * time.Hour)
	e = open(t, &fake{}, at(dir), clock)
	execute(t, e, shell("true"))
	if err := e.Close(); err != nil { // which sweeps
		t.Fatal(err)
	}
	e = open(t, &fake{}, at(dir))
	rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{})
	if err != nil || !rep.OK || rep.Dropped == nil || rep.Dropped.Size != 2 || rep.Entries < 2 {
		t.Errorf("got %+v and %v", rep, err)
	}
}

// TestForgedGrants: a writer of the database cannot let callers execute commands of the host, and VerifyAudit names the row.
func TestForgedGrants(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	host := func(c *engine.Config) { c.HostAccess = true }
	e := open(t, &fake{}, at(dir), host)
	me := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	if _, err := e.DecideHostAccess(t.Context(), me, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: "true"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	const text = `{"kind":"host","namespace":"default","pattern":"false"}`
	sum := sha256.Sum256([]byte(text))
	storetest.Run(t, dir, `INSERT INTO grants (id, namespace, subject, digest, scope, session_id, request_id, approval_id, actor, granted_at, expires_at, revoked_at, mac)
		SELECT 'grt_forged', namespace, '`+text+`', '`+hex.EncodeToString(sum[:])+`', scope, session_id, request_id, approval_id, actor, granted_at, expires_at, revoked_at, mac FROM grants`)
	e = open(t, &fake{}, at(dir), host)
	if _, err := e.ExecHost(t.Context(), me, sandboxmcp.HostCommand{Command: "true"}); err != nil {
		t.Errorf("a command that a person has allowed: got %v", err)
	}
	if _, err := e.ExecHost(t.Context(), me, sandboxmcp.HostCommand{Command: "false"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostAccessDenied {
		t.Errorf("a forged grant: got %v, want %s", err, sandboxmcp.CodeHostAccessDenied)
	}
	rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{})
	if err != nil || rep.OK || len(rep.Faults) != 1 || rep.Faults[0].Kind != "forged" || !strings.Contains(rep.Faults[0].Reason, "grt_forged") {
		t.Errorf("got %+v and %v, want the forged grant", rep, err)
	}
}

// TestForgedSecrets: a writer of the database cannot give programs a variable, and VerifyAudit names the row.
func TestForgedSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, &fake{}, at(dir))
	if err := e.VaultAdd(t.Context(), "default", "TOKEN", sandboxmcp.NewSecret("hunter22hunter"), 0); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, dir, `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) SELECT namespace, 'OTHER', sealed, created_at, expires_at, mac FROM secrets`)
	list, err := e.Secrets(t.Context(), sandboxmcp.Caller{})
	if err != nil || len(list.Secrets) != 1 || list.Secrets[0].Key != "TOKEN" {
		t.Errorf("got %+v and %v, want TOKEN alone", list, err)
	}
	rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{})
	if err != nil || rep.OK || len(rep.Faults) != 1 || rep.Faults[0].Kind != "forged" || !strings.Contains(rep.Faults[0].Reason, `secret "OTHER"`) {
		t.Errorf("got %+v and %v, want the forged secret", rep, err)
	}
}
