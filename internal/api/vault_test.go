package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// secrets is the part of a fake server that has a vault.
type secrets struct {
	added []sandboxmcp.SecretSpec
}

func (*secrets) VaultKind() string { return "memory" }

func (s *secrets) AddSecret(_ context.Context, add sandboxmcp.SecretSpec) error {
	if len(add.Value.Reveal()) < 8 {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value of %s is too short", add.Key)
	}
	s.added = append(s.added, add)
	return nil
}

func (s *secrets) DeleteSecret(_ context.Context, ns sandboxmcp.Namespace, key, actor string) error {
	n := len(s.added)
	s.added = slices.DeleteFunc(s.added, func(a sandboxmcp.SecretSpec) bool { return a.Namespace == ns && a.Key == key && a.Actor == actor })
	if len(s.added) == n {
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no secret %s", key)
	}
	return nil
}

func (s *secrets) Secrets(_ context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.SecretInfo, error) {
	var list []sandboxmcp.SecretInfo
	for _, a := range s.added {
		if a.Namespace == ns {
			list = append(list, sandboxmcp.SecretInfo{Key: a.Key, Namespace: ns, CreatedAt: time.Unix(1, 0).UTC()})
		}
	}
	return list, nil
}

func TestVault(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	l, err := c.Vault(t.Context(), "ns")
	if err != nil || l.Kind != "memory" || l.Secrets == nil || len(l.Secrets) != 0 {
		t.Errorf("an empty vault: %+v, %v", l, err)
	}
	value := "bytes \xff that are no text, " + strings.Repeat("x", 60<<10)
	add := sandboxmcp.SecretSpec{Namespace: "ns", Key: "A", Value: sandboxmcp.NewSecret(value), TTL: 90 * time.Second}
	if err := c.AddSecret(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	if got := h.added[0]; got.Value.Reveal() != value || got.TTL != add.TTL || got.Actor != "cli" {
		t.Errorf("got another secret: %+v", got)
	}
	if l, err = c.Vault(t.Context(), "ns"); err != nil || fmt.Sprint(l.Secrets) != fmt.Sprint([]sandboxmcp.SecretInfo{{Key: "A", Namespace: "ns", CreatedAt: time.Unix(1, 0).UTC()}}) {
		t.Errorf("got %+v, %v", l, err)
	}
	short := c.AddSecret(t.Context(), sandboxmcp.SecretSpec{Namespace: "ns", Key: "B", Value: sandboxmcp.NewSecret("short")})
	if sandboxmcp.CodeOf(short) != sandboxmcp.CodeInvalidArgument || !strings.Contains(short.Error(), "the value of B is too short") {
		t.Errorf("a value that is refused: %v", short)
	}
	if err := c.DeleteSecret(t.Context(), "ns", "A"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteSecret(t.Context(), "ns", "A"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
		t.Errorf("once more: %v", err)
	}
	if _, err := c.Vault(t.Context(), "a b"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("a namespace that is none: %v", err)
	}
}

// What is wrong with a body that holds a secret is not told with a part of it.
func TestVaultBadBody(t *testing.T) {
	dir := t.TempDir()
	s, _ := listen(t, dir)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "run", s.Hello().ID+".sock"))
	}}}
	body := strings.NewReader(`{"namespace":"ns","key":"A","value":"c2VjcmV0","hunter2hunter2":1}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/v1/vault/add", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusBadRequest || strings.Contains(string(answer), "hunter2") || !strings.Contains(string(answer), "invalid_argument") {
		t.Errorf("got %d %s, %v", res.StatusCode, answer, err)
	}
}
