package vault_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

const value = "Kit-0123456789/+"

type kit struct {
	*vault.Vault
	store *store.Store
	audit *audit.Log
	now   time.Time
	dir   string
}

// open opens a vault over a state directory.
func open(t *testing.T, dir string, change func(*vault.Config)) *kit {
	t.Helper()
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k := &kit{store: s, now: time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC), dir: dir}
	cfg := vault.Config{Store: s, Audit: recordIn(s, nil), Now: func() time.Time { return k.now }}
	k.audit = cfg.Audit
	if change != nil {
		change(&cfg)
	}
	if k.Vault, err = vault.Open(cfg); err != nil {
		t.Fatal(err)
	}
	return k
}

func fresh(t *testing.T) *kit {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "state"), nil)
}

func (k *kit) add(t *testing.T, key, value string) {
	t.Helper()
	if err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns", Actor: "tester"}, sandboxmcp.SecretSpec{Key: key, Value: sandboxmcp.NewSecret(value)}); err != nil {
		t.Fatal(err)
	}
}

// values is what a namespace has.
func (k *kit) values(t *testing.T, ns sandboxmcp.Namespace) map[string]string {
	t.Helper()
	set, err := k.Current(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, i := range set.Items {
		m[i.Key] = i.Value.Reveal()
	}
	return m
}

func want(t *testing.T, got map[string]string, pairs ...string) {
	t.Helper()
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	if fmt.Sprint(got) != fmt.Sprint(m) {
		t.Errorf("got %v, want %v", got, m)
	}
}

func wantCode(t *testing.T, err error, code sandboxmcp.Code) {
	t.Helper()
	if got := sandboxmcp.CodeOf(err); got != code {
		t.Errorf("got %v with the code %q, want %q", err, got, code)
	}
}

// kinds are the vaults that can be added to.
func kinds(t *testing.T, test func(t *testing.T, k *kit)) {
	for _, kind := range []string{vault.Sealed, vault.Memory} {
		t.Run(kind, func(t *testing.T) {
			test(t, open(t, filepath.Join(t.TempDir(), "state"), func(c *vault.Config) { c.Kind = kind }))
		})
	}
}

func TestAddListDelete(t *testing.T) {
	kinds(t, func(t *testing.T, k *kit) {
		want(t, k.values(t, "ns"))
		k.add(t, "B", value)
		k.add(t, "A", value+"2")
		want(t, k.values(t, "ns"), "A", value+"2", "B", value)
		want(t, k.values(t, "other"))
		k.add(t, "A", value+"3")
		want(t, k.values(t, "ns"), "A", value+"3", "B", value)
		list, err := k.List(t.Context(), "ns")
		if err != nil || len(list) != 2 || list[0].Key != "A" || list[0].Namespace != "ns" || !list[0].CreatedAt.Equal(k.now) || list[0].ExpiresAt != nil {
			t.Errorf("list: got %+v, %v; want 2 secrets, A of ns first, without an expiry", list, err)
		}
		wantCode(t, k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns", Actor: "tester"}, "C"), sandboxmcp.CodeNotFound)
		wantCode(t, k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "other", Actor: "tester"}, "A"), sandboxmcp.CodeNotFound)
		wantCode(t, k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns", Actor: "tester"}, "A"), "")
		want(t, k.values(t, "ns"), "B", value)
		page, err := k.audit.List(t.Context(), "ns", sandboxmcp.AuditQuery{Action: vault.Action})
		if err != nil {
			t.Fatal(err)
		}
		var details []string
		for _, e := range page.Entries {
			details = append(details, e.Detail)
		}
		if got := strings.Join(details, "; "); got != "delete A; add A; add A; add B" {
			t.Errorf("the record has %q", got)
		}
		if text := fmt.Sprintf("%+v", page.Entries); strings.Contains(text, "Kit-") {
			t.Errorf("the record: got a value in %s, want names alone", text)
		}
	})
}

func TestRefused(t *testing.T) {
	kinds(t, func(t *testing.T, k *kit) {
		for _, tt := range [][2]string{
			{"", value},
			{"1A", value},
			{"A B", value},
			{"A=B", value},
			{"A\nB", value},
			{"Ä", value},
			{strings.Repeat("A", 129), value},
			{"LD_PRELOAD", value},
			{"ld_preload", value},
			{"PATH", value},
			{"HOME", value},
			{"BASH_ENV", value},
			{"NODE_OPTIONS", value},
			{"PYTHONPATH", value},
			{"GIT_SSH", value},
			{"HTTPS_PROXY", value},
			{"https_proxy", value},
			{"A", ""},
			{"A", "1234567"},
			{"A", "12345678\x00"},
			{"A", strings.Repeat("x", 64<<10+1)},
		} {
			err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: tt[0], Value: sandboxmcp.NewSecret(tt[1])})
			wantCode(t, err, sandboxmcp.CodeInvalidArgument)
			if len(tt[1]) >= vault.MinValue && strings.Contains(err.Error(), tt[1]) {
				t.Errorf("the error: got the value in %v, want it left out", err)
			}
		}
		want(t, k.values(t, "ns"))
		k.add(t, "A", strings.Repeat("x", 64<<10))
		k.add(t, "B", strings.Repeat("y", 63<<10))
		wantCode(t, k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "C", Value: sandboxmcp.NewSecret(strings.Repeat("z", 8<<10))}), sandboxmcp.CodeInvalidArgument)
		k.add(t, "B", "smaller-now")
		for n := range 98 {
			k.add(t, fmt.Sprintf("K%d", n), value)
		}
		wantCode(t, k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "LAST", Value: sandboxmcp.NewSecret(value)}), sandboxmcp.CodeInvalidArgument)
	})
}

func TestExpiry(t *testing.T) {
	kinds(t, func(t *testing.T, k *kit) {
		k.add(t, "STAYS", value)
		if err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "GOES", Value: sandboxmcp.NewSecret(value), TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		want(t, k.values(t, "ns"), "GOES", value, "STAYS", value)
		if list, _ := k.List(t.Context(), "ns"); list[0].ExpiresAt == nil || !list[0].ExpiresAt.Equal(k.now.Add(time.Minute)) {
			t.Errorf("list: got %+v, want an expiry in a minute", list)
		}
		k.now = k.now.Add(time.Minute)
		want(t, k.values(t, "ns"), "STAYS", value)
		n, err := k.Sweep(t.Context())
		if k.Kind() == vault.Sealed && n != 1 || err != nil {
			t.Errorf("a sweep: got %d removed, %v; want 1 of a sealed vault", n, err)
		}
		if n, err = k.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("a second sweep: got %d removed, %v; want none", n, err)
		}
	})
}

// Every process that has the directory sees what another one adds.
func TestShared(t *testing.T) {
	a := fresh(t)
	b := open(t, a.dir, nil)
	want(t, b.values(t, "ns"))
	a.add(t, "A", value)
	want(t, b.values(t, "ns"), "A", value)
	b.add(t, "A", value+"2")
	want(t, a.values(t, "ns"), "A", value+"2")
	wantCode(t, a.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, "A"), "")
	want(t, b.values(t, "ns"))
}

func TestSealedOnDisk(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	k.values(t, "ns")
	err := filepath.WalkDir(k.dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))[:20], hex.EncodeToString([]byte(value))} {
			if strings.Contains(string(data), form) {
				t.Errorf("%s: got the value in it, want it nowhere on disk", p)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(k.dir, vault.KeyFile))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key file: got %v, %v; want mode 0600", fi, err)
	}
}

func TestKeyFile(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	path := filepath.Join(k.dir, vault.KeyFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := fresh(t)
	other.add(t, "A", value)
	foreign, err := os.ReadFile(filepath.Join(other.dir, vault.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"open to others": func() error { return os.Chmod(path, 0o644) },
		"not there":      func() error { return os.Remove(path) },
		"another":        func() error { return os.WriteFile(path, foreign, 0o600) },
		"broken":         func() error { return os.WriteFile(path, []byte("AGE-SECRET-KEY-1QQQ\n"), 0o600) },
		"a link": func() error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			again := open(t, k.dir, nil)
			_, err := again.Current(t.Context(), "ns")
			wantCode(t, err, sandboxmcp.CodeVaultUnavailable)
			if err != nil && strings.Contains(err.Error(), "AGE-SECRET") {
				t.Errorf("the error: got the key in %v, want it left out", err)
			}
			if name != "not there" {
				wantCode(t, again.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "B", Value: sandboxmcp.NewSecret(value)}), sandboxmcp.CodeVaultUnavailable)
			}
			want(t, k.values(t, "ns"), "A", value) // a process that has it open goes on
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, text, 0o600), os.Chmod(path, 0o600)); err != nil {
				t.Fatal(err)
			}
			want(t, open(t, k.dir, nil).values(t, "ns"), "A", value)
		})
	}
}

// A row that was moved to another name is not used.
func TestMovedRow(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	if err := k.store.Update(t.Context(), execute(`UPDATE secrets SET key = 'B'`)); err != nil {
		t.Fatal(err)
	}
	want(t, open(t, k.dir, nil).values(t, "ns"))
}

// TestRenamedRow: if a writer of the database changes the key in a row, the cached value is not used for the new key.
func TestRenamedRow(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	want(t, k.values(t, "ns"), "A", value)
	storetest.Tamper(t, k.dir, `UPDATE secrets SET key = 'B' WHERE key = 'A'`)
	k.add(t, "C", value+"c")
	want(t, k.values(t, "ns"), "C", value+"c")
}

func TestRotate(t *testing.T) {
	k := fresh(t)
	k.add(t, "A", value)
	running := open(t, k.dir, nil)
	want(t, running.values(t, "ns"), "A", value)
	path := filepath.Join(k.dir, vault.KeyFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := k.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns", Actor: "tester"})
	if n != 1 || err != nil {
		t.Fatalf("rotate: got %d, %v; want 1", n, err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(after), "AGE-SECRET-KEY-") != 1 || string(after) == string(before) {
		t.Error("the key file: got the old key or more than one, want a new one")
	}
	running.add(t, "B", value+"2")
	want(t, running.values(t, "ns"), "A", value, "B", value+"2")
	want(t, open(t, k.dir, nil).values(t, "ns"), "A", value, "B", value+"2")
	// Two keys are what a rotation leaves that did not come to its end.
	if err := os.WriteFile(path, append(before, after...), 0o600); err != nil {
		t.Fatal(err)
	}
	left, other := filepath.Join(k.dir, ".vault-"+rand.Text()), filepath.Join(k.dir, ".vault-of-a-person")
	for _, name := range []string{left, other} {
		if err := os.WriteFile(name, before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(k.dir, ".vault-"+rand.Text(), "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	half := open(t, k.dir, nil)
	half.add(t, "C", value)
	want(t, half.values(t, "ns"), "A", value, "B", value+"2", "C", value)
	if n, err = half.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns", Actor: "tester"}); n != 3 || err != nil {
		t.Errorf("rotate again: got %d, %v; want 3", n, err)
	}
	if _, err = os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file with the old key that a killed process left: got %v, want it gone", err)
	}
	if _, err = os.Lstat(other); err != nil {
		t.Errorf("a file that no write made: got %v, want it left alone", err)
	}
	want(t, open(t, k.dir, nil).values(t, "ns"), "A", value, "B", value+"2", "C", value)
	_, err = open(t, filepath.Join(t.TempDir(), "m"), func(c *vault.Config) { c.Kind = vault.Memory }).Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns"})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
}

// Keys are replaced and secrets added by several at a time, and nothing is lost.
func TestRotateAtOnce(t *testing.T) {
	k := fresh(t)
	k.add(t, "FIRST", value)
	var wg sync.WaitGroup
	for n := range 4 {
		other := open(t, k.dir, nil)
		wg.Go(func() {
			if n%2 == 0 {
				if _, err := other.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns"}); err != nil {
					t.Error(err)
				}
				return
			}
			if err := other.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: fmt.Sprintf("K%d", n), Value: sandboxmcp.NewSecret(value)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want(t, open(t, k.dir, nil).values(t, "ns"), "FIRST", value, "K1", value, "K3", value)
}

func TestUse(t *testing.T) {
	kinds(t, func(t *testing.T, k *kit) {
		use := func() (asked []string, set *vault.Set, err error) {
			e, get, err := k.Use(t.Context(), "ns", func(keys []string) (*sandboxmcp.AuditEntry, error) {
				if asked = keys; len(keys) == 0 {
					return nil, nil
				}
				return &sandboxmcp.AuditEntry{Action: vault.Action, Phase: sandboxmcp.PhaseIntent, Namespace: "ns", Detail: vault.Detail("use", keys)}, nil
			})
			if err == nil && e != nil {
				_, err = k.audit.Append(t.Context(), *e)
			}
			if err != nil {
				return nil, nil, err
			}
			set, err = get()
			return asked, set, err
		}
		if asked, set, err := use(); len(asked) != 0 || len(set.Items) != 0 || err != nil {
			t.Errorf("an empty namespace: got %v, %v, %v; want nothing", asked, set, err)
		}
		k.add(t, "A", value)
		for range 2 {
			asked, set, err := use()
			if err != nil || len(asked) != 1 || len(set.Items) != 1 || set.Items[0].Value.Reveal() != value {
				t.Fatalf("got %v, %v, %v", asked, set, err)
			}
		}
		page, err := k.audit.List(t.Context(), "ns", sandboxmcp.AuditQuery{})
		if err != nil || len(page.Entries) != 3 || page.Entries[0].Detail != "use A" {
			t.Errorf("the record: got %+v, %v; want 3 entries, the first for the use of A", page.Entries, err)
		}
	})
}

func TestEnv(t *testing.T) {
	env := []string{"SANDBOXMCP_SECRET_NS_API_KEY=" + value, "SANDBOXMCP_SECRET_PROD_OTHER=" + value, "SANDBOXMCP_SECRET_MY_TEAM_1_x=" + value + "2", "PATH=/bin", "SANDBOXMCP_SECRET_NS_API_KEY=" + value + "last"}
	k := open(t, filepath.Join(t.TempDir(), "state"), func(c *vault.Config) {
		c.Kind, c.Env, c.Namespaces = vault.Env, env, []sandboxmcp.Namespace{"ns", "my-team.1"}
	})
	want(t, k.values(t, "ns"), "API_KEY", value+"last")
	want(t, k.values(t, "my-team.1"), "x", value+"2")
	want(t, k.values(t, "none"))
	wantCode(t, k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value)}), sandboxmcp.CodeInvalidArgument)
	wantCode(t, k.Delete(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, "API_KEY"), sandboxmcp.CodeInvalidArgument)
	for name, tt := range map[string]struct {
		env        string
		namespaces []sandboxmcp.Namespace
	}{
		"short":     {"SANDBOXMCP_SECRET_A_TOKEN=short", []sandboxmcp.Namespace{"a"}},
		"steers":    {"SANDBOXMCP_SECRET_A_LD_PRELOAD=" + value, []sandboxmcp.Namespace{"a"}},
		"ambiguous": {"SANDBOXMCP_SECRET_A_B_TOKEN=" + value, []sandboxmcp.Namespace{"a", "a-b"}},
		"same name": {"SANDBOXMCP_SECRET_A_B_TOKEN=" + value, []sandboxmcp.Namespace{"a.b", "a-b"}},
	} {
		_, err := vault.Open(vault.Config{Kind: vault.Env, Store: k.store, Env: []string{tt.env}, Namespaces: tt.namespaces})
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		if err != nil && (strings.Contains(err.Error(), "Kit-") || !strings.Contains(err.Error(), "SANDBOXMCP_SECRET_A_")) {
			t.Errorf("%s: got %v, want the variable named and no value", name, err)
		}
	}
}

// TestEnvOfUnnamedNamespaces: the secret TOKEN of team-a has the variable of A_TOKEN of team. Which of them
// is in use is not known if no setting names them, so neither gets it.
func TestEnvOfUnnamedNamespaces(t *testing.T) {
	k := open(t, filepath.Join(t.TempDir(), "state"), func(c *vault.Config) {
		c.Kind, c.Namespaces = vault.Env, []sandboxmcp.Namespace{"ns"}
		c.Env = []string{"SANDBOXMCP_SECRET_TEAM_A_TOKEN=" + value, "SANDBOXMCP_SECRET_NS_KEY=" + value}
	})
	for _, ns := range []sandboxmcp.Namespace{"team-a", "team", "team.a", "TEAM_A", "NS"} {
		set, err := k.Current(t.Context(), ns)
		if wantCode(t, err, sandboxmcp.CodeInvalidArgument); err == nil {
			t.Errorf("%s has %d secrets", ns, len(set.Items))
		}
	}
	want(t, k.values(t, "other"))
	want(t, k.values(t, "ns"), "KEY", value)
	if err := k.SetNamespaces([]sandboxmcp.Namespace{"ns", "team-a"}); err != nil {
		t.Fatal(err)
	}
	want(t, k.values(t, "team-a"), "TOKEN", value)
}

func TestNoPlaceForIt(t *testing.T) {
	k := open(t, filepath.Join(t.TempDir(), "state"), func(c *vault.Config) { c.Volatile = true })
	wantCode(t, k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value)}), sandboxmcp.CodeVaultUnavailable)
	_, err := k.Rotate(t.Context(), sandboxmcp.Caller{Namespace: "ns"})
	wantCode(t, err, sandboxmcp.CodeVaultUnavailable)
}

// Without a desktop no keyring is asked for a key, and the error says so.
func TestNoKeyring(t *testing.T) {
	for _, env := range [][]string{nil, {"DBUS_SESSION_BUS_ADDRESS=autolaunch:"}, {"XDG_RUNTIME_DIR=/nowhere"}} {
		k := open(t, filepath.Join(t.TempDir(), "state"), func(c *vault.Config) { c.Keyring, c.Env = true, env })
		want(t, k.values(t, "ns"))
		err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value)})
		wantCode(t, err, sandboxmcp.CodeVaultUnavailable)
		if e := sandboxmcp.AsError(err); !strings.Contains(e.Hint, "SANDBOXMCP_VAULT_KEY=file") {
			t.Errorf("got hint %q, want the setting that keeps the key in a file", e.Hint)
		}
	}
}

// A failure of the record is one of the access.
func TestNotRecorded(t *testing.T) {
	kinds(t, func(t *testing.T, k *kit) {
		storetest.Refuse(t, k.store.Dir())
		if err := k.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: "A", Value: sandboxmcp.NewSecret(value)}); err == nil {
			t.Error("Add that cannot be recorded: got no error, want a refusal")
		}
		want(t, k.values(t, "ns"))
	})
}

func BenchmarkUse(b *testing.B) {
	for _, n := range []int{0, 1, 50} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := store.Open(context.WithoutCancel(b.Context()), storetest.On(store.Config{Dir: b.TempDir()}))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			v, err := vault.Open(vault.Config{Store: s, Audit: recordIn(s, nil)})
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				if err := v.Add(b.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: fmt.Sprintf("K%d", i), Value: sandboxmcp.NewSecret(value)}); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				_, get, err := v.Use(b.Context(), "ns", func([]string) (*sandboxmcp.AuditEntry, error) { return nil, nil })
				if err != nil {
					b.Fatal(err)
				}
				if _, err := get(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// recordIn is the audit record of a store, without a signer.
func recordIn(s *store.Store, now func() time.Time) *audit.Log {
	l, err := audit.Open(context.Background(), s, audit.Config{Now: now})
	if err != nil {
		panic(err) // only what is signed is looked at
	}
	return l
}
