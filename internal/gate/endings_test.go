package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// asBefore are statements that let the schema say again what the index of actions was made as.
const asBefore = `PRAGMA writable_schema = ON;
	UPDATE sqlite_schema SET sql = 'CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> ''execute''' WHERE name = 'audit_action';
	UPDATE sqlite_schema SET sql = replace(sql, ' WHERE action <> ''approval''', '') WHERE name = 'covers';
	PRAGMA schema_version = 1000`

// lyingIndex are statements that make an index without rows, which PostgreSQL takes for one of all rows. It is shorter than the
// table, which has removed rows.
const lyingIndex = `INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, prev, hash, mac)
	SELECT 1000 + n, n, 'more', n, '', '', '', '', '', '', repeat('x', 1000), '', '', '', '' FROM generate_series(1, 10000) AS s (n);
	DELETE FROM audit WHERE namespace = 'more';
	CREATE FUNCTION now_true() RETURNS bool IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN false; END';
	CREATE INDEX covers ON audit (action, position) WHERE now_true();
	CREATE OR REPLACE FUNCTION now_true() RETURNS bool IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END'`

// TestAnIndexHidesNoRevocation: a revoked grant stays revoked, whatever indexes a writer of the database has made, and whatever type
// the entry's action has.
func TestAnIndexHidesNoRevocation(t *testing.T) {
	changes := map[string]string{
		"an entry is not in the index of actions": `DROP INDEX audit_action; CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> 'execute' AND action <> 'approval'; `,
		"the action of the entry is a blob": `PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'audit'; PRAGMA schema_version = 900;
			UPDATE audit SET action = CAST(action AS BLOB) WHERE action = 'approval'; UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'audit'; `,
		"an index of all columns lacks the entry": `CREATE INDEX covers ON audit (position, action, request_id, metadata, hash, mac, namespace, seq, timestamp) WHERE action <> 'approval'; `,
	}
	after := asBefore
	if storetest.Postgres() {
		changes, after = map[string]string{"the condition of an index calls a function that changes": lyingIndex}, ""
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
			b.tamper(`CREATE TABLE copies AS SELECT * FROM grants`)
			if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
				t.Fatal(err)
			}
			b.tamper(`DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
			b.tamper(change + after)
			o, log := b.other(secret)
			if got := b.faults(); o.lets(one, "api.example.com") || !strings.Contains(got, "was put back") || !strings.Contains(log.String(), "was put back") {
				t.Errorf("got faults %q and the log %q, want it closed and told", got, log)
			}
		})
	}
}

// TestEndingsAreReadOn: a server that has read the record once learns of later revocations, of other servers as well, and
// does not forget them if their entries are removed.
func TestEndingsAreReadOn(t *testing.T) {
	b := open(t)
	o, _ := b.other(secret)
	restore := func(domain string) {
		t.Helper()
		b.tamper(`DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
		b.ask("other." + domain) // the grants are read again
	}
	for _, domain := range []string{"one.example.com", "two.example.com", "three.example.com"} {
		b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: domain}})
		if !b.lets(one, sandboxmcp.Host(domain)) || !o.lets(one, sandboxmcp.Host(domain)) {
			t.Fatalf("%s: got it closed, want it open", domain)
		}
		b.tamper(`DROP TABLE IF EXISTS copies; CREATE TABLE copies AS SELECT * FROM grants`)
		if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, domain); err != nil {
			t.Fatal(err)
		}
		restore(domain)
		if b.lets(one, sandboxmcp.Host(domain)) || o.lets(one, sandboxmcp.Host(domain)) {
			t.Errorf("%s was revoked and put back: got it open, want it closed in both servers", domain)
		}
	}
	b.tamper(`DELETE FROM audit WHERE action = 'approval'`)
	restore("last.example.com")
	if o.lets(one, "one.example.com") || o.lets(one, "three.example.com") {
		t.Error("the entries were removed: got a grant that this server knows as revoked, want it closed")
	}
}

// TestAnAddedUseOpensNothing: an entry that a writer of the database adds does not make a used grant unused.
func TestAnAddedUseOpensNothing(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}, Scope: sandboxmcp.GrantOnce})
	b.tamper(`CREATE TABLE copies AS SELECT * FROM grants`)
	if !b.lets(one, "api.example.com") {
		t.Fatal("got it closed, want it open to the first run")
	}
	b.tamper(`DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
	b.tamper(`INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, metadata, prev, hash, mac)
		SELECT position + 1, id || '1', namespace, seq + 1, timestamp, action, phase, '', session_id, language, detail, actor, metadata, prev, hash, '' FROM audit ORDER BY position DESC LIMIT 1`)
	o, _ := b.other(secret)
	if o.lets(gate.Who{Namespace: "default", RequestID: "r2"}, "api.example.com") {
		t.Error("got it open to a second run, want it closed")
	}
}

// TestATriggerGivesNoSecondUse: two runs that read an unused grant at the same time do not both use it, although a trigger puts
// its row back.
func TestATriggerGivesNoSecondUse(t *testing.T) {
	storetest.SQLite(t)
	b := open(t)
	o, _ := b.other(secret)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}, Scope: sandboxmcp.GrantOnce})
	b.tamper(`CREATE TRIGGER again AFTER UPDATE ON grants BEGIN UPDATE grants SET request_id = OLD.request_id, mac = OLD.mac WHERE id = OLD.id; END`)
	_, second, err := o.Allows(t.Context(), gate.Who{Namespace: "default", RequestID: "r2"}, func(d sandboxmcp.Domain) bool { // it is called after the rows were read
		if !b.lets(one, "api.example.com") {
			t.Error("the first run: got it closed, want it open")
		}
		return d.Host == "api.example.com"
	})
	if second || err != nil {
		t.Errorf("the second run: got %v, %v, want it closed", second, err)
	}
}

// TestAnEntryThatIsRestoredEndsAGrant: a running server learns of a revocation once its entry is as a server has written it,
// although a trigger has changed or removed it before the server could read it, and kept the row of the grant as it was.
func TestAnEntryThatIsRestoredEndsAGrant(t *testing.T) {
	storetest.SQLite(t)
	for name, c := range map[string]struct{ change, restore string }{
		"other metadata": {`UPDATE audit SET metadata = '{}' WHERE position = NEW.position`, `UPDATE audit SET metadata = (SELECT metadata FROM was WHERE was.position = audit.position) WHERE position IN (SELECT position FROM was)`},
		"another action": {`UPDATE audit SET action = 'other' WHERE position = NEW.position`, `UPDATE audit SET action = 'approval' WHERE position IN (SELECT position FROM was)`},
		"none":           {`DELETE FROM audit WHERE position = NEW.position - 1`, `INSERT INTO audit SELECT * FROM was`},
	} {
		for _, more := range []bool{false, true} { // entries follow
			if !more && name == "none" {
				continue
			}
			t.Run(fmt.Sprint(name, more), func(t *testing.T) {
				b := open(t)
				o, _ := b.other(secret)
				b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
				if !b.lets(one, "api.example.com") || !o.lets(one, "api.example.com") {
					t.Fatal("got it closed, want it open")
				}
				when, now := `NEW.action = 'approval'`, c.change
				if name == "none" { // the next entry removes it, because the server that has appended it looks for it
					when = `EXISTS (SELECT 1 FROM audit WHERE position = NEW.position - 1 AND action = 'approval')`
				}
				b.tamper(`CREATE TABLE was AS SELECT * FROM audit WHERE false;
					CREATE TRIGGER stays AFTER UPDATE ON grants BEGIN UPDATE grants SET revoked_at = OLD.revoked_at, mac = OLD.mac WHERE id = OLD.id; END;
					CREATE TRIGGER copy BEFORE INSERT ON audit WHEN NEW.action = 'approval' BEGIN DELETE FROM was; END;
					CREATE TRIGGER lose AFTER INSERT ON audit WHEN ` + when + ` BEGIN INSERT INTO was SELECT * FROM audit WHERE action = 'approval'; ` + now + `; END`)
				if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
					t.Fatal(err)
				}
				if more {
					b.ask("www.example.com")
				}
				o.lets(one, "api.example.com") // it reads the record
				b.tamper(`DROP TRIGGER stays; DROP TRIGGER copy; DROP TRIGGER lose; ` + c.restore)
				for range 2 { // the second time the record has no entries in doubt
					if b.lets(one, "api.example.com") || o.lets(one, "api.example.com") {
						t.Error("restored: got it open, want it closed")
					}
				}
			})
		}
	}
}

// TestEndingsFollowTheRecord: what Follow has read of the record stays, and it reads nothing before the first grant is needed.
func TestEndingsFollowTheRecord(t *testing.T) {
	b := open(t)
	record := recordIn(b.store, func() time.Time { return b.now })
	reader := record.Reader()
	o := gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: b.store, Audit: record, Endings: gate.NewEndings(reader), Approvals: true, Now: func() time.Time { return b.now }})
	opens := func(domain sandboxmcp.Host) bool {
		_, ok, err := o.Allows(t.Context(), one, at(domain, 443))
		return ok && err == nil
	}
	for _, c := range []struct {
		domain sandboxmcp.Host
		read   bool // before
		want   bool // open, once the entry of its revocation is gone and its row is back
	}{{"one.example.com", false, true}, {"two.example.com", true, false}} {
		b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: string(c.domain)}})
		if c.read && !opens(c.domain) {
			t.Fatalf("%s: got it closed, want it open", c.domain)
		}
		b.tamper(`DROP TABLE IF EXISTS copies; CREATE TABLE copies AS SELECT * FROM grants`)
		if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, string(c.domain)); err != nil {
			t.Fatal(err)
		}
		if err := reader.Follow(t.Context(), b.store.DB()); err != nil {
			t.Fatal(err)
		}
		b.tamper(`DELETE FROM audit WHERE action = 'approval'; DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
		b.ask("other." + string(c.domain)) // the grants are read again
		if got := opens(c.domain); got != c.want {
			t.Errorf("%s: got open %v, want %v", c.domain, got, c.want)
		}
	}
}

// TestARunUsesItsGrantTwiceAtOnce: a grant for one run opens its domain to two connections of the run that are decided at the
// same time.
func TestARunUsesItsGrantTwiceAtOnce(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}, Scope: sandboxmcp.GrantOnce})
	_, second, err := b.Allows(t.Context(), one, func(d sandboxmcp.Domain) bool { // it is called after the rows were read
		return b.lets(one, "api.example.com") && d.Host == "api.example.com"
	})
	if !second || err != nil {
		t.Errorf("got %v, %v, want it open to both", second, err)
	}
}

// TestAGapHidesNoRevocation: a server that has read the record does not take a revocation for one that was not made, because a
// writer of the database has added an entry far behind the end.
func TestAGapHidesNoRevocation(t *testing.T) {
	storetest.SQLite(t)
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	if !b.lets(one, "api.example.com") {
		t.Fatal("got it closed, want it open")
	}
	b.tamper(`CREATE TABLE copies AS SELECT * FROM grants;
		INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, metadata, prev, hash, mac)
		SELECT position + 2000, id || '1', 'far', 1, timestamp, 'other', phase, '', session_id, language, detail, actor, metadata, prev, 'x', '' FROM audit ORDER BY position DESC LIMIT 1`)
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
		t.Fatal(err)
	}
	b.tamper(`DELETE FROM grants; INSERT INTO grants SELECT * FROM copies`)
	if _, ok, err := b.Allows(t.Context(), one, at("api.example.com", 443)); ok {
		t.Errorf("got it open, %v, want it closed", err)
	}
}

// TestAMissingPlaceHidesNoRevocation: a running server goes on to look for an entry in doubt, although the entry up to which it
// has read the record was missing meanwhile.
func TestAMissingPlaceHidesNoRevocation(t *testing.T) {
	storetest.SQLite(t)
	b := open(t)
	o, _ := b.other(secret)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	if !o.lets(one, "api.example.com") {
		t.Fatal("got it closed, want it open")
	}
	b.tamper(`CREATE TRIGGER stays AFTER UPDATE ON grants BEGIN UPDATE grants SET revoked_at = OLD.revoked_at, mac = OLD.mac WHERE id = OLD.id; END;
		CREATE TRIGGER lose AFTER INSERT ON audit WHEN NEW.action = 'approval' BEGIN UPDATE audit SET action = 'other' WHERE position = NEW.position; END`)
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
		t.Fatal(err)
	}
	b.ask("www.example.com")
	o.lets(one, "api.example.com") // the revocation is in doubt
	b.tamper(`CREATE TABLE was AS SELECT * FROM audit ORDER BY position DESC LIMIT 1; DELETE FROM audit WHERE position = (SELECT position FROM was)`)
	o.lets(one, "api.example.com")
	b.tamper(`DROP TRIGGER stays; DROP TRIGGER lose; INSERT INTO audit SELECT * FROM was; UPDATE audit SET action = 'approval' WHERE action = 'other'`)
	b.ask("later.example.com") // the grants are read again
	for range 2 {
		if o.lets(one, "api.example.com") {
			t.Error("restored: got it open, want it closed")
		}
	}
}

// TestALoweredVersionHidesNoRevocation: servers notice a revocation, although a trigger takes back the version that tells them of
// a change.
func TestALoweredVersionHidesNoRevocation(t *testing.T) {
	storetest.SQLite(t)
	b := open(t)
	o, _ := b.other(secret)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	if !b.lets(one, "api.example.com") || !o.lets(one, "api.example.com") {
		t.Fatal("got it closed, want it open")
	}
	b.tamper(`CREATE TRIGGER back AFTER UPDATE ON signals BEGIN UPDATE signals SET version = OLD.version WHERE topic = OLD.topic; END`)
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
		t.Fatal(err)
	}
	for n, server := range []*bed{b, o} {
		if server.lets(one, "api.example.com") {
			t.Errorf("server %d: got it open, want it closed", n)
		}
	}
}

// TestAServerKnowsWhatItHasRecorded: a server closes what was revoked or used there, although triggers keep the row as it was and
// remove the entry of the record.
func TestAServerKnowsWhatItHasRecorded(t *testing.T) {
	storetest.SQLite(t)
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "once.example.com"}, Scope: sandboxmcp.GrantOnce})
	if !b.lets(one, "api.example.com") {
		t.Fatal("got it closed, want it open")
	}
	b.tamper(`CREATE TRIGGER stays AFTER UPDATE ON grants BEGIN UPDATE grants SET revoked_at = OLD.revoked_at, request_id = OLD.request_id, mac = OLD.mac WHERE id = OLD.id; END;
		CREATE TRIGGER lose AFTER INSERT ON audit WHEN NEW.action = 'approval' BEGIN DELETE FROM audit WHERE position = NEW.position; END`)
	if !b.lets(one, "once.example.com") {
		t.Error("the first run: got it closed, want it open")
	}
	if _, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com"); err != nil {
		t.Fatal(err)
	}
	if b.lets(one, "api.example.com") {
		t.Error("revoked: got it open, want it closed")
	}
	if b.lets(gate.Who{Namespace: "default", RequestID: "r2"}, "once.example.com") {
		t.Error("used: got it open to a second run, want it closed")
	}
}

// TestAGrantForOneRunEndsWithTheRun: a later run with the id of the one that has used the grant does not use it again, at this
// server or at another one. Its caller may have chosen the id.
func TestAGrantForOneRunEndsWithTheRun(t *testing.T) {
	var seen *gate.Endings
	b := open(t, func(c *gate.Config[sandboxmcp.Domain]) {
		seen = gate.NewEndings(c.Audit.Reader())
		c.Endings = seen
	})
	o, _ := b.other(secret)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}, Scope: sandboxmcp.GrantOnce})
	for range 2 {
		if !b.lets(one, "api.example.com") {
			t.Fatal("the run: got it closed, want it open")
		}
	}
	if o.lets(one, "api.example.com") {
		t.Error("another server: got it open, want it closed")
	}
	seen.Over("another")
	if !b.lets(one, "api.example.com") {
		t.Error("another run has ended: got it closed, want it open")
	}
	seen.Over(one.RequestID)
	if b.lets(one, "api.example.com") {
		t.Error("a later run of the id: got it open, want it closed")
	}
}
