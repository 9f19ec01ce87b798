package guard

import (
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// TestAttackChangedSecretsDelayNoOtherNamespace: a caller changes its secrets as fast as it can, and has a masker of
// all of them made each time. Runs of other namespaces do not wait for that.
func TestAttackChangedSecretsDelayNoOtherNamespace(t *testing.T) {
	set := func(value string) *vault.Set {
		return &vault.Set{Items: []vault.Item{{Key: "K", Value: sandboxmcp.NewSecret(value)}}}
	}
	begun, end, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := maskers{construct: func(secrets []redact.Secret, pii bool) *redact.Masker {
		if secrets[0].Value == "slow-secret" {
			close(begun)
			<-end
		}
		return redact.New(secrets, pii)
	}}
	other := set("other-secret")
	first := m.of("other", other, false)
	go func() {
		defer close(made)
		m.of("attacker", set("slow-secret"), false)
	}()
	<-begun
	t.Cleanup(func() {
		close(end)
		<-made
	})
	var got atomic.Pointer[redact.Masker]
	go func() { got.Store(m.of("other", other, false)) }()
	testkit.Until(t, "the other namespace has its masker", func() bool { return got.Load() != nil })
	if got.Load() != first {
		t.Error("the masker of unchanged secrets was made again")
	}
}
