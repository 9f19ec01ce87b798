package gate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const everyColumn = `id, namespace, subject, digest, scope, session_id, request_id, approval_id, actor, granted_at, expires_at, revoked_at`

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// other is the gate of another server with the same database, with the log of that server.
func (b *bed) other(key func(string) ([]byte, error)) (*bed, *bytes.Buffer) {
	b.t.Helper()
	var log bytes.Buffer
	o := &bed{t: b.t, dir: b.dir, store: b.store, now: b.now}
	clock := func() time.Time { return b.now }
	o.Gate = gate.New(gate.Config[sandboxmcp.Domain]{
		Kind: gate.Domains(), Key: key, Store: b.store, Audit: recordIn(b.store, clock), Approvals: true, Now: clock, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	return o, &log
}

// faults returns what gate.Faults finds wrong with the stored grants.
func (b *bed) faults() string {
	b.t.Helper()
	all, err := gate.Faults(b.t.Context(), b.store.DB(), secret)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// tamper executes statements as a writer of the database without the signing key could.
func (b *bed) tamper(statements string) {
	b.t.Helper()
	drop := `DROP TRIGGER IF EXISTS grants_made; DROP TRIGGER IF EXISTS grants_changed; `
	if storetest.Postgres() {
		drop = `DROP TRIGGER IF EXISTS grants_made ON grants; DROP TRIGGER IF EXISTS grants_changed ON grants; `
	}
	storetest.Tamper(b.t, b.dir, drop+statements)
}

// TestAForgedGrantOpensNothing: a grant that was made or changed in the database opens nothing, is logged once, and leaves
// the other grants alone.
func TestAForgedGrantOpensNothing(t *testing.T) {
	const text = `{"domain":"evil.example.com","kind":"egress","namespace":"default"}`
	forged := func(mac string) string {
		return `INSERT INTO grants (` + everyColumn + `, mac) SELECT 'grt_forged', namespace, '` + text + `', '` + digestOf(text) + `', scope, session_id, request_id, approval_id, actor, granted_at, expires_at, '', ` + mac + ` FROM grants WHERE subject LIKE '%api.%'`
	}
	for name, c := range map[string]struct {
		statement string
		opened    gate.Who
		host      sandboxmcp.Host
	}{
		"a copied MAC":      {forged("mac"), one, "evil.example.com"},
		"an empty MAC":      {forged("''"), one, "evil.example.com"},
		"no MAC":            {forged("NULL"), one, "evil.example.com"},
		"another id":        {`UPDATE grants SET id = id || '1'`, one, "api.example.com"},
		"another namespace": {`UPDATE grants SET namespace = 'other', subject = replace(subject, 'default', 'other'), digest = '` + digestOf(`{"domain":"api.example.com","kind":"egress","namespace":"other"}`) + `'`, gate.Who{Namespace: "other", RequestID: "r1"}, "api.example.com"},
		"for each session":  {`UPDATE grants SET scope = 'always', expires_at = '' WHERE scope = 'session'`, one, "session.example.com"},
		"another session":   {`UPDATE grants SET session_id = 'b' WHERE scope = 'session'`, gate.Who{Namespace: "default", RequestID: "r1", SessionID: "b"}, "session.example.com"},
		"a later end":       {`UPDATE grants SET expires_at = '2099-01-01T00:00:00.000000000Z' WHERE scope = 'session'`, gate.Who{Namespace: "default", RequestID: "r1", SessionID: "a"}, "session.example.com"},
		"another time":      {`UPDATE grants SET granted_at = '2031-02-03T04:05:05.000000000Z' WHERE scope = 'session'`, gate.Who{Namespace: "default", RequestID: "r1", SessionID: "a"}, "session.example.com"},
		"another person":    {`UPDATE grants SET actor = 'somebody'`, one, "api.example.com"},
		"another question":  {`UPDATE grants SET approval_id = 'apr_1'`, one, "api.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
			b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "session.example.com"}, Scope: sandboxmcp.GrantSession, SessionID: "a"})
			b.tamper(c.statement)
			b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "fine.example.com"}})
			o, log := b.other(secret)
			if o.lets(c.opened, c.host) {
				t.Errorf("%s: got it open, want it closed", c.host)
			}
			if !o.lets(one, "fine.example.com") {
				t.Error("another grant: got it closed, want it open")
			}
			want := "was not made by a server with the signing key"
			if name == "no MAC" {
				want = "grants of an older release"
			} else if got := b.faults(); !strings.Contains(got, want) {
				t.Errorf("faults: got %q, want %q", got, want)
			}
			b.ask("again.example.com") // the grants are read again
			o.lets(one, "fine.example.com")
			if n := strings.Count(log.String(), want); n == 0 || n > 2 || strings.Count(log.String(), "grt_forged") > 3 {
				t.Errorf("got %d lines %q in the log, want one for each grant:\n%s", n, want, log)
			}
		})
	}
}

// TestARevokedGrantStaysRevoked: neither clearing revoked_at nor putting back a copy of the row opens the subject again.
func TestARevokedGrantStaysRevoked(t *testing.T) {
	b := open(t)
	domain := sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}}
	b.grant(domain)
	b.tamper(`CREATE TABLE copies AS SELECT * FROM grants`)
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
		t.Fatal(err)
	}
	b.tamper(`UPDATE grants SET revoked_at = ''`)
	o, _ := b.other(secret)
	if got := b.faults(); o.lets(one, "api.example.com") || !strings.Contains(got, "signing key") {
		t.Errorf("revoked_at was cleared: got faults %q, want it closed and a fault", got)
	}
	b.tamper(`DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
	o, log := b.other(secret)
	if got := b.faults(); o.lets(one, "api.example.com") || !strings.Contains(got, "was put back") || !strings.Contains(log.String(), "was put back") {
		t.Errorf("the row was put back: got faults %q and the log %q, want it closed and told", got, log)
	}
	b.grant(domain) // a person opens it again
	if o.lets(one, "api.example.com") != true {
		t.Error("opened again: got it closed, want it open")
	}
}

// TestAUsedGrantStaysUsed: a grant for one run cannot be used again by putting its row back.
func TestAUsedGrantStaysUsed(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}, Scope: sandboxmcp.GrantOnce})
	b.tamper(`CREATE TABLE copies AS SELECT * FROM grants`)
	if !b.lets(one, "api.example.com") || b.faults() != "" {
		t.Fatalf("got it closed or %q, want it open to the first run", b.faults())
	}
	b.tamper(`DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
	o, _ := b.other(secret)
	second := gate.Who{Namespace: "default", RequestID: "r2"}
	if got := b.faults(); o.lets(second, "api.example.com") || !strings.Contains(got, "was put back") {
		t.Errorf("got faults %q, want it closed to a second run and a fault", got)
	}
	b.tamper(`UPDATE grants SET request_id = 'r2'`)
	o, _ = b.other(secret)
	if o.lets(second, "api.example.com") {
		t.Error("given to a second run by hand: got it open, want it closed")
	}
}

// TestServersShareTheKey: servers with the same signing key accept each other's grants. A server with another key does not
// accept them. A server without a key makes no grants and accepts none.
func TestServersShareTheKey(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	for name, c := range map[string]struct {
		key  func(string) ([]byte, error)
		want bool
	}{
		"the same key": {secret, true},
		"another key":  {func(string) ([]byte, error) { return []byte("another"), nil }, false},
		"no key":       {nil, false},
	} {
		o, _ := b.other(c.key)
		if got := o.lets(one, "api.example.com"); got != c.want {
			t.Errorf("%s: got open %t, want %t", name, got, c.want)
		}
	}
	o, _ := b.other(nil)
	if _, _, err := o.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "new.example.com"}}); err == nil {
		t.Error("a grant without the key: got no error")
	}
	if o.lets(one, "new.example.com") || b.lets(one, "new.example.com") {
		t.Error("a grant without the key: got it open, want it closed")
	}
}

// TestGrantsOfAnOlderReleaseLapse: grants without a MAC open nothing, and one line of the log says so. A model may ask
// again, and a person can open the subject again or revoke the grant.
func TestGrantsOfAnOlderReleaseLapse(t *testing.T) {
	b := open(t)
	who := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	asked := b.ask("asked.example.com")
	if _, _, err := b.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: asked.ID}); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: fmt.Sprintf("old%d.example.com", n)}})
	}
	b.tamper(`UPDATE grants SET mac = NULL`)
	o, log := b.other(secret)
	for range 3 {
		if o.lets(one, "old1.example.com") || o.lets(one, "asked.example.com") {
			t.Error("got it open, want it closed")
		}
		b.ask("other.example.com")
	}
	if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "count=4") {
		t.Errorf("got the log %q, want one line about 4 grants", log)
	}
	if a := b.ask("asked.example.com"); a.ID == asked.ID || a.Status != sandboxmcp.ApprovalPending {
		t.Errorf("asked again: got %+v, want a new question", a)
	}
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "old1.example.com"}})
	if !o.lets(one, "old1.example.com") {
		t.Error("opened again: got it closed, want it open")
	}
	if done, err := b.Revoke(t.Context(), who, "old2.example.com"); err != nil || done.Revoked != 1 {
		t.Errorf("revoke: got %+v, %v, want one grant", done, err)
	}
}

// TestOlderServersAreRefused: the database refuses grants, uses and revocations of a server whose release has no MACs.
func TestOlderServersAreRefused(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	for _, q := range []string{
		`INSERT INTO grants (` + everyColumn + `) SELECT 'grt_1', namespace, subject, digest, scope, session_id, request_id, approval_id, actor, granted_at, expires_at, revoked_at FROM grants`,
		`UPDATE grants SET request_id = 'r1'`,
		`UPDATE grants SET revoked_at = '2031-02-03T04:05:05.000000000Z'`,
	} {
		err := b.store.Update(context.WithoutCancel(t.Context()), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, q)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "older release") {
			t.Errorf("%s: got %v, want a refusal", q, err)
		}
	}
	if !b.lets(one, "api.example.com") {
		t.Error("got it closed, want it open")
	}
}

// TestStoredGrantsKeepTheirForm: a fixed row with a fixed MAC is in force, so later releases accept the grants of this one.
func TestStoredGrantsKeepTheirForm(t *testing.T) {
	b := open(t)
	const text, sum, mac = `{"domain":"api.example.com","kind":"egress","namespace":"default"}`, "970079dc080e0a4792c9e95aa57d7190d58315783d7b23f2aaa57dc241487b85", "fb571f89b4ea4354d689de48490b44990f33a8635c88f3d4d83f2f573cde3d47"
	storetest.Tamper(t, b.dir, `INSERT INTO grants (`+everyColumn+`, mac) VALUES ('grt_1', 'default', ?, ?, 'always', '', '', '', 'cli', '2031-01-01T00:00:00.000000000Z', '', '', ?)`, text, sum, mac)
	b.ask("other.example.com") // announces a change of the tables
	if !b.lets(one, "api.example.com") {
		t.Error("a stored grant: got it closed, want it open")
	}
}

// TestRevocationWithALoweredVersion: a revocation takes effect in every server, even if a writer of the database has lowered
// the version of the tables before.
func TestRevocationWithALoweredVersion(t *testing.T) {
	b := open(t)
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: b.dir}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	second := &bed{t: t, store: s, Gate: gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: s, Audit: recordIn(s, nil), Approvals: true, Now: func() time.Time { return b.now }})}
	for range 5 {
		b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "other.example.com"}, Scope: sandboxmcp.GrantOnce})
	}
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	if !b.lets(one, "api.example.com") || !second.lets(one, "api.example.com") {
		t.Fatal("got it closed, want it open")
	}
	storetest.Run(t, b.dir, `UPDATE signals SET version = 1`)
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
		t.Fatal(err)
	}
	if b.lets(one, "api.example.com") {
		t.Error("the server that has revoked it: got it open, want it closed")
	}
	testkit.Until(t, "closed in the other server", func() bool { return !second.lets(one, "api.example.com") })
}

// TestAChangedQuestionIsNotAnswered: a person who names a question by its id grants what a server has asked, and not what a
// writer of the database has put in its place.
func TestAChangedQuestionIsNotAnswered(t *testing.T) {
	b := open(t)
	subject := func(ns, domain string) (text, digest string) {
		text = `{"domain":"` + domain + `","kind":"egress","namespace":"` + ns + `"}`
		return text, digestOf(text)
	}
	everyone := sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: "cli"}
	for name, to := range map[string][2]string{"another domain": {"default", "evil.example"}, "another namespace": {"other", "api.example.com"}} {
		asked := b.ask("api.example.com")
		text, digest := subject(to[0], to[1])
		b.tamper(`UPDATE approvals SET namespace = '` + to[0] + `', subject = '` + text + `', digest = '` + digest + `' WHERE id = '` + asked.ID + `'`)
		if _, n, err := b.Decide(t.Context(), everyone, sandboxmcp.AccessDecision{ID: asked.ID}); n != nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
			t.Errorf("%s: got the grant %+v and %v, want none and access_denied", name, n, err)
		}
		if _, _, err := b.Decide(t.Context(), everyone, sandboxmcp.AccessDecision{ID: asked.ID, Deny: true}); err != nil {
			t.Errorf("%s: denied: got %v, want no error", name, err)
		}
	}
	inSession := b.ask("session.example.com")
	b.tamper(`UPDATE approvals SET session_id = 'another' WHERE id = '` + inSession.ID + `'`)
	if _, n, err := b.Decide(t.Context(), everyone, sandboxmcp.AccessDecision{ID: inSession.ID, Scope: sandboxmcp.GrantSession}); n != nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
		t.Errorf("another session: got the grant %+v and %v, want none and access_denied", n, err)
	}
	asked := b.ask("both.example.com") // its entry in the record is changed, too
	text, digest := subject("default", "evil.example")
	b.tamper(`UPDATE approvals SET subject = '` + text + `', digest = '` + digest + `' WHERE id = '` + asked.ID + `'; UPDATE audit SET metadata = replace(metadata, '` + asked.SHA256 + `', '` + digest + `')`)
	if _, n, err := b.Decide(t.Context(), everyone, sandboxmcp.AccessDecision{ID: asked.ID}); n != nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
		t.Errorf("with its entry: got the grant %+v and %v, want none and access_denied", n, err)
	}
	asked = b.ask("www.example.com")
	b.tamper(`UPDATE approvals SET id = 'apr_madeup', asked_at = '2020-01-01T00:00:00.000000000Z' WHERE id = '` + asked.ID + `'`)
	if _, n, err := b.Decide(t.Context(), everyone, sandboxmcp.AccessDecision{ID: "apr_madeup"}); n != nil || err == nil {
		t.Errorf("a question that no server has asked: got the grant %+v and %v, want none and an error", n, err)
	}
}

// TestADenialAsksNothing: the entry of a denial is not taken for that of a question, although both may have one action. It
// names what the row said, and a writer of the database can have changed that, with the time of the question.
func TestADenialAsksNothing(t *testing.T) {
	b := open(t)
	kind := lines()
	kind.Asked, kind.Opened, kind.Denied = "line", "line", "line"
	g := gate.New(gate.Config[line]{Kind: kind, Key: secret, Store: b.store, Audit: recordIn(b.store, func() time.Time { return b.now }), Approvals: true, Now: func() time.Time { return b.now }})
	person := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	asked, _, err := g.Request(t.Context(), person, "echo hello", gate.Ask{})
	if err != nil {
		t.Fatal(err)
	}
	b.pass(5 * time.Minute)
	const text = `{"kind":"line","namespace":"default","pattern":"evil"}`
	b.tamper(`UPDATE approvals SET subject = '` + text + `', digest = '` + digestOf(text) + `', asked_at = '` + store.FormatTime(b.now) + `'`)
	if _, _, err = g.Decide(t.Context(), person, sandboxmcp.AccessDecision{ID: asked.ID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	b.tamper(`UPDATE approvals SET state = 'pending'`)
	if _, n, err := g.Decide(t.Context(), person, sandboxmcp.AccessDecision{ID: asked.ID}); n != nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
		t.Errorf("got the grant %+v and %v, want none and access_denied", n, err)
	}
}

// TestALargeGrantIsNotRead: neither a grant nor a question is read that is larger than a server makes it.
func TestALargeGrantIsNotRead(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	asked := b.ask("www.example.com")
	long := `replace('` + strings.Repeat("x", 1<<10) + `', 'x', '` + strings.Repeat("y", 1<<7) + `')`
	b.tamper(`INSERT INTO grants (` + everyColumn + `, mac) SELECT 'grt_large', namespace, subject, ` + long + `, scope, session_id, request_id, approval_id, actor, granted_at, expires_at, revoked_at, mac FROM grants;
		UPDATE approvals SET reason = ` + long)
	o, log := b.other(secret)
	if !o.lets(one, "api.example.com") || log.Len() > 0 {
		t.Errorf("got the log %q, want the whole grant open and the large one not read", log)
	}
	if got := b.faults(); got != "1 rows of table grants are larger than a server makes them and were not read" {
		t.Errorf("got faults %q", got)
	}
	_, err := o.Find(t.Context(), "default", asked.ID)
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
}

// TestAGrantInABlobIsRevoked: a grant that is in force can be revoked, and ends at its time, although a writer of the database has
// made its namespace and its end blobs, which SQLite takes for another namespace and for a later time.
func TestAGrantInABlobIsRevoked(t *testing.T) {
	storetest.SQLite(t)
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "www.example.com"}, Scope: sandboxmcp.GrantDuration, For: time.Hour})
	b.tamper(`CREATE TABLE copies AS SELECT id, CAST(namespace AS BLOB) AS namespace, subject, digest, scope, session_id, request_id, approval_id, actor, granted_at,
		CASE WHEN expires_at = '' THEN '' ELSE CAST(expires_at AS BLOB) END AS expires_at, revoked_at, mac FROM grants;
		DROP TABLE grants; ALTER TABLE copies RENAME TO grants`)
	o, _ := b.other(secret)
	if !o.lets(one, "api.example.com") || !o.lets(one, "www.example.com") {
		t.Fatal("before: got one closed, want both open")
	}
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil || o.lets(one, "api.example.com") {
		t.Errorf("revoked: got %v, want it closed", err)
	}
	b.pass(2 * time.Hour)
	if list, err := b.List(t.Context(), ""); err != nil || len(list.Granted) > 0 || b.lets(one, "www.example.com") {
		t.Errorf("after its end: got %+v, %v, want none", list.Granted, err)
	}
}
