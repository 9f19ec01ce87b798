package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// replicas opens two engines, as on two machines: each has a state directory of its own, and
// they share a PostgreSQL database and the signing key.
func replicas(t *testing.T, change ...func(*engine.Config)) (a, b *engine.Engine) {
	t.Helper()
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dirs := [2]string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	shared := func(c *engine.Config) { c.Postgres = storetest.URL(dirs[0]) }
	a = open(t, &fake{files: map[string]string{"a.txt": "A"}}, append(change, at(dirs[0]), shared)...)
	execute(t, a, shell("echo the key is made"))
	key, err := os.ReadFile(filepath.Join(dirs[0], "signing.key"))
	if err == nil {
		err = os.Mkdir(dirs[1], 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dirs[1], "signing.key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, open(t, &fake{files: map[string]string{"a.txt": "A"}}, append(change, at(dirs[1]), shared)...)
}

// What one server has recorded, the other reads, and both append to one record.
func TestReplicasShareResultsAndTheAudit(t *testing.T) {
	a, b := replicas(t)
	for i := range 10 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		res := execute(t, from, shell("x"))
		got, err := to.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: res.RequestID})
		if err != nil || got.RequestID != res.RequestID || got.Status != res.Status || len(got.Artifacts) != 1 {
			t.Fatalf("run %d on the other server: got %+v, %v, want %+v", i, got, err, res)
		}
	}
	rep, err := b.VerifyAudit(t.Context(), everyone())
	if err != nil || !rep.OK || rep.Entries != 33 {
		t.Errorf("got %+v, %v, want a sound record of 33 entries", rep, err)
	}
}

// Limits and decisions of one server hold in the other at once, and an approval is decided
// once.
func TestReplicasShareLimitsAndApprovals(t *testing.T) {
	a, b := replicas(t)
	before := 0
	for i, on := range []*engine.Engine{a, b, a, b} {
		changed, err := on.SetLimits(t.Context(), sandboxmcp.Caller{}, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100 + i}})
		if err != nil {
			t.Fatal(err)
		}
		if got := changed.Previous.MaxRAMMB; before != 0 && got != before {
			t.Fatalf("change %d: got a limit of %d MiB before it, want the %d that the other server has set", i, got, before)
		}
		before = changed.Current.MaxRAMMB
	}
	asked, err := a.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.site.test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: asked.ApprovalID}); err != nil {
		t.Fatal(err)
	}
	if again, err := a.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.site.test"}); err != nil || !again.Approved {
		t.Errorf("asked again after the other server approved: got %+v, %v, want it approved", again, err)
	}
	if _, err := a.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: asked.ApprovalID, Deny: true}); err == nil {
		t.Error("decided twice: got no error, want a refusal")
	}
}

// A large output is on the machine that wrote it, and the other server says so.
func TestReplicasSayWhereContentIs(t *testing.T) {
	a, b := replicas(t)
	res := execute(t, a, shell("x"))
	if got, err := a.ArtifactContent(t.Context(), sandboxmcp.Caller{}, res.RequestID, "a.txt"); err != nil || string(got.ContentB64) != "A" {
		t.Errorf("on its own server: got %q, %v, want A", got.ContentB64, err)
	}
	_, err := b.ArtifactContent(t.Context(), sandboxmcp.Caller{}, res.RequestID, "a.txt")
	if e := asCode(t, err, sandboxmcp.CodeNotFound); !strings.Contains(e.Message, "not on this server") {
		t.Errorf("on the other server: got %q, want that it is elsewhere", e.Message)
	}
}

// With an object store, each server reads the files and outputs of the others.
func TestReplicasShareFiles(t *testing.T) {
	far := &storetest.Objects{}
	a, b := replicas(t, func(c *engine.Config) { c.Objects = far })
	res := execute(t, a, shell("x"))
	got, err := b.ArtifactContent(t.Context(), sandboxmcp.Caller{}, res.RequestID, "a.txt")
	if err != nil || string(got.ContentB64) != "A" {
		t.Errorf("on the other server: got %q, %v, want A", got.ContentB64, err)
	}
	far.Fail(errors.New("out of order"))
	_, err = a.Execute(t.Context(), sandboxmcp.Caller{}, shell("x"))
	if e := asCode(t, err, sandboxmcp.CodeBackendUnavailable); !strings.Contains(e.Message, "out of order") {
		t.Errorf("with a store that fails: got %q, want its reason", e.Message)
	}
}

// The first secret may be added at any server. The key that it is sealed for is in the state directory of the first server
// from its start, and a server whose keys come from a directory makes none.
func TestReplicasHaveOneKeyOfTheVault(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	first, second, third, alone := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "c"), t.TempDir()
	shared := func(c *engine.Config) { c.Postgres = storetest.URL(first) }
	from := func(dir string) func(*engine.Config) { return func(c *engine.Config) { c.KeysFrom = dir } }
	a := open(t, &fake{}, at(first), shared)
	key, err := os.ReadFile(filepath.Join(first, "signing.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(alone, "signing.key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, c := open(t, &fake{}, at(second), shared, from(first)), open(t, &fake{}, at(third), shared, from(alone))
	secret := func(key string) sandboxmcp.SecretSpec {
		return sandboxmcp.SecretSpec{Key: key, Value: sandboxmcp.NewSecret("hunter22hunter" + key)}
	}
	asCode(t, c.AddSecret(t.Context(), sandboxmcp.Caller{}, secret("NONE")), sandboxmcp.CodeVaultUnavailable)
	for i, e := range []*engine.Engine{b, a} {
		if err = e.AddSecret(t.Context(), sandboxmcp.Caller{}, secret([]string{"ONE", "TWO"}[i])); err != nil {
			t.Errorf("secret %d: %v", i, err)
		}
	}
	for _, e := range []*engine.Engine{a, b} {
		if _, err = e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x")); err != nil {
			t.Errorf("a run with secrets of both servers: %v", err)
		}
	}
	if _, err = os.Stat(filepath.Join(third, "vault.key")); err == nil {
		t.Error("a server made a key of the vault that no other server has")
	}
}
