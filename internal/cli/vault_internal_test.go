package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// heldSecret is a secret in a fake vault, and who put it there.
type heldSecret struct {
	sandboxmcp.SecretSpec

	who sandboxmcp.Caller
}

func (f *fakeSessions) AddSecret(_ context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(s.Value.Reveal()) < 8 {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value of %s is too short", s.Key)
	}
	f.secrets = append(f.secrets, heldSecret{s, c})
	return nil
}

func (f *fakeSessions) DeleteSecret(_ context.Context, c sandboxmcp.Caller, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.secrets)
	f.secrets = slices.DeleteFunc(f.secrets, func(s heldSecret) bool { return s.who.Namespace == c.Namespace && s.Key == key })
	if len(f.secrets) == n {
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no secret %s", key)
	}
	return nil
}

func (f *fakeSessions) Secrets(_ context.Context, c sandboxmcp.Caller) (sandboxmcp.VaultList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []sandboxmcp.SecretInfo{}
	for _, s := range f.secrets {
		if s.who.Namespace == c.Namespace {
			list = append(list, sandboxmcp.SecretInfo{Key: s.Key, Namespace: c.Namespace, CreatedAt: time.Unix(60, 0)})
		}
	}
	return sandboxmcp.VaultList{Kind: cmp.Or(f.kind, "sealed"), Secrets: list}, nil
}

func (f *fakeSessions) Reload() (app.Reloaded, error) { return app.Reloaded{}, nil }

func (f *fakeSessions) RotateVault(context.Context, sandboxmcp.Caller) (int, error) {
	f.rotated++
	return len(f.secrets), nil
}

const secretValue = "hunter2-hunter2"

func TestVaultAdd(t *testing.T) {
	for _, tt := range []struct {
		stdin string
		args  []string
		want  string // the value; empty: refused as a wrong command line
		warns bool
	}{
		{"", []string{"KEY", secretValue}, secretValue, true},
		{secretValue + "\n", []string{"KEY", "-"}, secretValue, false},
		{secretValue + "\n\n", []string{"KEY", "-"}, secretValue + "\n", false},
		{secretValue, []string{"KEY", "-", "--ttl", "90s", "--namespace", "team"}, secretValue, false},
		{secretValue, []string{"KEY"}, "", false}, // nobody can be asked
		{secretValue, []string{}, "", false},
		{secretValue, []string{"KEY", "-", "more"}, "", false},
		{secretValue, []string{"KEY", "-", "--ttl", "soon"}, "", false},
		{secretValue, []string{"KEY", "-", "--ttl", "-5m"}, "", false},
		{secretValue, []string{"KEY", "-", "--server", "1-x"}, "", false},
		{"short", []string{"KEY", "-"}, "", false},
		{strings.Repeat("x", 64<<10+3), []string{"KEY", "-"}, "", false},
	} {
		f := &fake{}
		var out, errs strings.Builder
		a := f.call([]string{"HOME=" + t.TempDir()}, &out, &errs)
		a.Stdin = strings.NewReader(tt.stdin)
		status := a.main(t.Context(), append([]string{"sandboxmcp", "vault", "add"}, tt.args...))
		if strings.Contains(out.String()+errs.String(), "hunter2") {
			t.Errorf("%q: got the value in %s%s, want it nowhere", tt.args, &out, &errs)
		}
		if tt.want == "" {
			if status != 2 || len(f.secrets) != 0 {
				t.Errorf("%q: got status %d and %d secrets, want 2 and none: %s", tt.args, status, len(f.secrets), &errs)
			}
			continue
		}
		if status != 0 || len(f.secrets) != 1 || f.secrets[0].Value.Reveal() != tt.want || f.secrets[0].Key != "KEY" || f.secrets[0].who.Actor != "cli" {
			t.Errorf("%q: got status %d, %+v: %s, want 0 and the one secret", tt.args, status, f.secrets, &errs)
			continue
		}
		if got := strings.Contains(errs.String(), "command line"); got != tt.warns {
			t.Errorf("%q: got a warning %v in %q, want %v", tt.args, got, &errs, tt.warns)
		}
		if s := f.secrets[0]; slices.Contains(tt.args, "--ttl") != (s.TTL == 90*time.Second) || slices.Contains(tt.args, "team") != (s.who.Namespace == "team") {
			t.Errorf("%q: got %+v, want the life and the namespace of the flags", tt.args, s)
		}
	}
}

func TestVaultListAndDelete(t *testing.T) {
	f := &fake{}
	f.secrets = []heldSecret{{sandboxmcp.SecretSpec{Key: "A"}, sandboxmcp.Caller{Namespace: "default"}}, {sandboxmcp.SecretSpec{Key: "B"}, sandboxmcp.Caller{Namespace: "team"}}}
	got := f.cli(t.Context(), t, nil, "vault", "list", "--json")
	var doc struct {
		Vault   string
		Secrets []sandboxmcp.SecretInfo
	}
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || doc.Vault != "sealed" || len(doc.Secrets) != 1 || doc.Secrets[0].Key != "A" {
		t.Errorf("got %+v, %v, want A in a sealed vault", got, err)
	}
	if got = f.cli(t.Context(), t, nil, "vault", "list", "--namespace", "team"); !strings.Contains(got.stdout, "B    1970-01-01T00:01:00Z  never") || strings.Contains(got.stdout, "A ") {
		t.Errorf("got %+v, want B alone", got)
	}
	if got = f.cli(t.Context(), t, nil, "vault", "delete", "A"); got.status != 0 {
		t.Errorf("got %+v, want 0", got)
	}
	if got = f.cli(t.Context(), t, nil, "vault", "delete", "A", "--json"); got.status != 5 || !strings.Contains(got.stdout, `"error": "not_found"`) {
		t.Errorf("got %+v, want 5 and not_found", got)
	}
	if got = f.cli(t.Context(), t, nil, "vault", "rotate", "--json"); got.status != 0 || f.rotated != 1 || !strings.Contains(got.stdout, `"secrets": 1`) {
		t.Errorf("got %+v, want 0 and one secret", got)
	}
	if got = f.cli(t.Context(), t, nil, "vault", "list", "--namespace", "a b"); got.status != 2 {
		t.Errorf("got %+v, want 2", got)
	}
}

// A vault in memory is that of a running server, and of one.
func TestVaultInMemory(t *testing.T) {
	dir := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + dir, "SANDBOXMCP_VAULT=memory"}
	here := &fake{}
	vault := func(args ...string) outcome {
		t.Helper()
		return here.cli(t.Context(), t, env, append([]string{"vault"}, args...)...)
	}
	if got := vault("add", "KEY", secretValue); got.status != 9 || !strings.Contains(got.stderr, "vault_unavailable: the vault is in the memory of a server") {
		t.Errorf("without a server: got %+v, want 9 and vault_unavailable", got)
	}
	if got := vault("list", "--json"); got.status != 0 || !strings.Contains(got.stdout, `"secrets": []`) {
		t.Errorf("without a server: got %+v, want no secrets", got)
	}
	sealed, one := &fake{}, &fake{}
	one.kind = "memory"
	sealed.listen(t, dir, false)
	one.listen(t, dir, false)
	if got := vault("add", "KEY", secretValue); got.status != 0 || len(one.secrets) != 1 || len(sealed.secrets)+len(here.secrets) != 0 {
		t.Errorf("got %+v, %v, %v, want 0 and the secret in the one server", got, one.secrets, sealed.secrets)
	}
	if got := vault("list", "--json"); !strings.Contains(got.stdout, `"key": "KEY"`) {
		t.Errorf("got %+v, want KEY", got)
	}
	two := &fake{}
	two.kind = "memory"
	two.listen(t, dir, false)
	if got := vault("add", "KEY2", secretValue); got.status != 2 || !strings.Contains(got.stderr, "2 servers") || !strings.Contains(got.stderr, "--server") {
		t.Errorf("with two: got %+v, want 2 and a hint at --server", got)
	}
	if got := vault("add", "KEY2", secretValue, "--server", two.id); got.status != 0 || len(two.secrets) != 1 {
		t.Errorf("with two: got %+v, want 0 and the secret in the second server", got)
	}
	if got := vault("delete", "KEY", "--server", one.id); got.status != 0 || len(one.secrets) != 0 {
		t.Errorf("got %+v, want 0 and no secret", got)
	}
	// What goes into the state directory, those do not see.
	env = env[:1]
	if got := vault("add", "KEY3", secretValue); got.status != 0 || len(here.secrets) != 1 || strings.Count(got.stderr, "does not see it: its secrets are kept as memory") != 2 {
		t.Errorf("got %+v, want 0, the secret here, and both servers told of", got)
	}
}
