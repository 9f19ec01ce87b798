package vault_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// logged opens the vault of another process, with its log.
func logged(t *testing.T, k *kit) (*kit, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	now := k.now
	o := open(t, k.dir, func(c *vault.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	o.now = now
	return o, &log
}

// faults returns what vault.Faults finds wrong with the stored secrets.
func (k *kit) faults(t *testing.T) string {
	t.Helper()
	all, err := vault.Faults(t.Context(), k.store.DB(), k.dir, vault.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// listed returns the keys that a list has.
func (k *kit) listed(t *testing.T) string {
	t.Helper()
	list, err := k.List(t.Context(), "ns")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range list {
		all = append(all, s.Key)
	}
	return strings.Join(all, " ")
}

// blob returns bytes as a constant of SQL.
func blob(b []byte) string {
	if storetest.Postgres() {
		return `decode('` + hex.EncodeToString(b) + `', 'hex')`
	}
	return `x'` + hex.EncodeToString(b) + `'`
}

// forged returns a value that is sealed for the public half of the key, as a writer of the database can do.
func (k *kit) forged(t *testing.T, key, value string) string {
	t.Helper()
	var recipient string
	if err := k.store.DB().QueryRowContext(t.Context(), `SELECT recipient FROM vault_recipient`).Scan(&recipient); err != nil {
		t.Fatal(err)
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	if err == nil {
		_, err = w.Write([]byte("1\x00ns\x00" + key + "\x00" + value))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return blob(b.Bytes())
}

// tamper executes statements as a writer of the database could.
func (k *kit) tamper(t *testing.T, statements string) {
	t.Helper()
	drop := `DROP TRIGGER IF EXISTS secrets_made; DROP TRIGGER IF EXISTS secrets_changed; `
	if storetest.Postgres() {
		drop = `DROP TRIGGER IF EXISTS secrets_made ON secrets; DROP TRIGGER IF EXISTS secrets_changed ON secrets; `
	}
	storetest.Tamper(t, k.dir, drop+statements)
}

// TestAForgedSecretIsNotUsed: a secret that was added or changed in the database is neither used nor listed, is logged once, and
// leaves the other secrets alone.
func TestAForgedSecretIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(k *kit) string
		stays  []string // keys that are still used
	}{
		"a copied MAC": {func(k *kit) string {
			return `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) SELECT namespace, 'BASH_ENV', ` + k.forged(t, "BASH_ENV", "/mnt/data/evil") + `, created_at, expires_at, mac FROM secrets WHERE key = 'A'`
		}, []string{"A", "B"}},
		"an empty MAC": {func(k *kit) string {
			return `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) SELECT namespace, 'C', ` + k.forged(t, "C", "evil-value") + `, created_at, expires_at, '' FROM secrets WHERE key = 'A'`
		}, []string{"A", "B"}},
		"another value": {func(k *kit) string {
			return `UPDATE secrets SET sealed = ` + k.forged(t, "A", "evil-value") + ` WHERE key = 'A'`
		}, []string{"B"}},
		"another key": {func(*kit) string { return `UPDATE secrets SET key = 'C' WHERE key = 'A'` }, []string{"B"}},
		"a value of another": {func(*kit) string {
			return `UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE key = 'B') WHERE key = 'A'`
		}, []string{"B"}},
		"no end": {func(*kit) string { return `UPDATE secrets SET expires_at = '' WHERE key = 'A'` }, []string{"B"}},
		"a later end": {func(*kit) string {
			return `UPDATE secrets SET expires_at = '2099-01-01T00:00:00.000000000Z' WHERE key = 'A'`
		}, []string{"B"}},
		"another creation": {func(*kit) string {
			return `UPDATE secrets SET created_at = '2026-11-01T00:00:00.000000000Z' WHERE key = 'A'`
		}, []string{"B"}},
		"another namespace":   {func(*kit) string { return `UPDATE secrets SET namespace = 'other' WHERE key = 'A'` }, []string{"B"}},
		"a time that is none": {func(*kit) string { return `UPDATE secrets SET created_at = 'x' WHERE key = 'B'` }, []string{"A"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := fresh(t)
			if err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value), TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
			k.add(t, "B", value)
			k.tamper(t, c.change(k))
			o, log := logged(t, k)
			var pairs []string
			for _, key := range c.stays {
				pairs = append(pairs, key, value)
			}
			want(t, o.values(t, "ns"), pairs...)
			want(t, o.values(t, "other"))
			if got := o.listed(t); got != strings.Join(c.stays, " ") {
				t.Errorf("listed: got %q, want %q", got, c.stays)
			}
			k.add(t, "LATER", value) // the rows are read again
			if got := o.values(t, "ns"); len(got) != len(c.stays)+1 || got["LATER"] != value {
				t.Errorf("after another was added: got %v, want it and %v", got, c.stays)
			}
			if err := k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, "LATER"); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("got %d lines in the log, want one:\n%s", n, log)
			}
			if got := k.faults(t); strings.Count(got, "\n") != 0 || !strings.Contains(got, "was not stored by a server") {
				t.Errorf("faults: got %q, want one secret", got)
			}
			if n, err := k.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns"}); n != len(c.stays) || err != nil {
				t.Errorf("rotate: got %d, %v; want %d, the ones that are not forged", n, err, len(c.stays))
			}
			want(t, o.values(t, "ns"), pairs...)
		})
	}
}

// TestALifetimeInTheCache: a secret that was used ends at its time, although a writer of the database has removed its end since.
func TestALifetimeInTheCache(t *testing.T) {
	k := fresh(t)
	if err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	k.add(t, "B", value)
	want(t, k.values(t, "ns"), "A", value, "B", value)
	k.tamper(t, `UPDATE secrets SET expires_at = ''`)
	k.now = k.now.Add(2 * time.Hour)
	if got := k.values(t, "ns"); got["A"] != "" {
		t.Errorf("got %v, want the secret A to have ended", got)
	}
}

// TestALifetimeThatNoStatementFinds: a secret ends at its time, although a writer of the database has made that time a blob, which
// SQLite takes for later than any text.
func TestALifetimeThatNoStatementFinds(t *testing.T) {
	storetest.SQLite(t)
	k := fresh(t)
	if err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	k.add(t, "B", value)
	k.tamper(t, `CREATE TABLE copies AS SELECT version, namespace, key, sealed, created_at, CAST(expires_at AS BLOB) AS expires_at, mac FROM secrets;
		DROP TABLE secrets; ALTER TABLE copies RENAME TO secrets`)
	want(t, k.values(t, "ns"), "A", value, "B", value)
	k.now = k.now.Add(2 * time.Hour)
	want(t, k.values(t, "ns"), "B", value)
	if got := k.listed(t); got != "B" {
		t.Errorf("listed: got %q, want B", got)
	}
	o, _ := logged(t, k)
	want(t, o.values(t, "ns"), "B", value)
}

// TestALargeSecretIsNotRead: a row that is larger than a server makes it is not read, and the other secrets are used.
func TestALargeSecretIsNotRead(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	k.tamper(t, `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) SELECT namespace, 'B', `+blob(make([]byte, 1<<17))+`, created_at, expires_at, mac FROM secrets`)
	o, log := logged(t, k)
	want(t, o.values(t, "ns"), "A", value)
	if log.Len() > 0 {
		t.Errorf("got the log %q, want the row not to be read", log)
	}
	if got := k.faults(t); got != "1 rows of table secrets are larger than a server makes them and were not read" {
		t.Errorf("got faults %q", got)
	}
}

// TestADeletedSecretInTheCache: a deleted secret is not used, although a writer of the database has put another row in its place.
func TestADeletedSecretInTheCache(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	k.add(t, "B", value)
	running := open(t, k.dir, nil)
	want(t, running.values(t, "ns"), "A", value, "B", value)
	var version int
	if err := k.store.DB().QueryRowContext(t.Context(), `SELECT version FROM secrets WHERE key = 'A'`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if err := k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, "A"); err != nil {
		t.Fatal(err)
	}
	override := ""
	if storetest.Postgres() {
		override = "OVERRIDING SYSTEM VALUE "
	}
	k.tamper(t, fmt.Sprintf(`INSERT INTO secrets (version, namespace, key, sealed, created_at, expires_at, mac) %sSELECT %d, namespace, 'A', sealed, created_at, expires_at, mac FROM secrets`, override, version))
	want(t, running.values(t, "ns"), "B", value)
}

// TestSecretsOfAnOlderReleaseLapse: secrets without a MAC are not used, and the log says so. A person can add them again.
func TestSecretsOfAnOlderReleaseLapse(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	k.add(t, "B", value)
	k.tamper(t, `UPDATE secrets SET mac = NULL`)
	o, log := logged(t, k)
	for range 2 {
		want(t, o.values(t, "ns"))
	}
	if got := k.faults(t); strings.Count(log.String(), "of an older release") != 2 || got != "" {
		t.Errorf("got faults %q and the log %q, want two lines and no faults", got, log)
	}
	k.add(t, "A", value+"2")
	want(t, o.values(t, "ns"), "A", value+"2")
	if err := k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, "B"); err != nil {
		t.Errorf("delete: got %v, want no error", err)
	}
}

// TestOlderServersAreRefused: the database refuses secrets and rotations of a server whose release has no MACs.
func TestOlderServersAreRefused(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	for _, q := range []string{
		`INSERT INTO secrets (namespace, key, sealed, created_at, expires_at) SELECT namespace, 'B', sealed, created_at, expires_at FROM secrets`,
		`UPDATE secrets SET sealed = ` + blob([]byte("another")),
	} {
		if err := k.store.Update(t.Context(), execute(q)); err == nil || !strings.Contains(err.Error(), "older release") {
			t.Errorf("%s: got %v, want a refusal", q, err)
		}
	}
	want(t, k.values(t, "ns"), "A", value)
}

// TestARotationEndsCopies: a deleted secret that was put back is used again, but not after the key was replaced.
func TestARotationEndsCopies(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	k.tamper(t, `CREATE TABLE copies AS SELECT * FROM secrets`)
	for _, again := range []bool{true, false} {
		if err := k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, "A"); err != nil {
			t.Fatal(err)
		}
		if !again {
			if _, err := k.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns"}); err != nil {
				t.Fatal(err)
			}
			k.add(t, "B", value)
		}
		k.tamper(t, `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) SELECT namespace, key, sealed, created_at, expires_at, mac FROM copies`)
		if got := open(t, k.dir, nil).values(t, "ns")["A"] != ""; got != again {
			t.Errorf("put back, rotated %t: got it used %t, want %t", !again, got, again)
		}
	}
}

// TestAnotherKey: with another key than that of the secrets, nothing is lost: a rotation is refused, and a list has all secrets.
func TestAnotherKey(t *testing.T) {
	k, other := fresh(t), fresh(t)
	k.add(t, "A", value)
	other.add(t, "A", value)
	text, err := os.ReadFile(filepath.Join(other.dir, vault.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.dir, vault.KeyFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	o := open(t, k.dir, nil)
	_, err = o.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns"})
	wantCode(t, err, sandboxmcp.CodeVaultUnavailable)
	_, err = o.Current(t.Context(), "ns")
	wantCode(t, err, sandboxmcp.CodeVaultUnavailable)
	if got := o.listed(t); got != "A" {
		t.Errorf("listed: got %q, want A", got)
	}
}

// TestAReusedNumberKeepsNoValue: a server that has read a secret uses its new value, although a writer of the database has given the
// new row the number of the one before.
func TestAReusedNumberKeepsNoValue(t *testing.T) {
	storetest.SQLite(t)
	k := fresh(t)
	k.add(t, "A", "the old value")
	want(t, k.values(t, "ns"), "A", "the old value")
	k.tamper(t, `CREATE TRIGGER again AFTER DELETE ON secrets BEGIN UPDATE sqlite_sequence SET seq = OLD.version - 1 WHERE name = 'secrets'; END`)
	k.add(t, "A", "the new value")
	want(t, k.values(t, "ns"), "A", "the new value")
}
