package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
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
	m := &maskers{construct: func(secrets []redact.Secret, pii bool) *redact.Masker {
		if secrets[0].Value == "slow-secret" {
			close(begun)
			<-end
		}
		return redact.New(secrets, pii)
	}}
	other := set("other-secret")
	of := func(ns sandboxmcp.Namespace, set *vault.Set) *redact.Masker {
		masker, err := m.of(t.Context(), ns, set, false)
		if err != nil {
			t.Errorf("%s: got %v, want a masker", ns, err)
		}
		return masker
	}
	first := of("other", other)
	go func() {
		defer close(made)
		of("attacker", set("slow-secret"))
	}()
	<-begun
	t.Cleanup(func() {
		close(end)
		<-made
	})
	var got atomic.Pointer[redact.Masker]
	go func() { got.Store(of("other", other)) }()
	testkit.Until(t, "the other namespace has its masker", func() bool { return got.Load() != nil })
	if got.Load() != first {
		t.Error("the masker of unchanged secrets was made again")
	}
}

// changed returns the secrets of a namespace after its nth change.
func changed(n int) *vault.Set {
	return &vault.Set{Items: []vault.Item{{Key: "K", Value: sandboxmcp.NewSecret(fmt.Sprintf("secret-number-%d", n))}}}
}

// taking returns maskers that take a time to be made. Use it in a bubble of synctest.
func taking(cost time.Duration) *maskers {
	return &maskers{construct: func(secrets []redact.Secret, pii bool) *redact.Masker {
		time.Sleep(cost)
		return redact.New(secrets, pii)
	}}
}

// TestAttackChangedSecretsHaveAShareOfTheServer: a caller that changes its secrets without end causes a tenth of a core,
// like a sandbox, and 5 s at once.
func TestAttackChangedSecretsHaveAShareOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost, n = 400 * time.Millisecond, 200
		m, begun := taking(cost), time.Now()
		for i := range n {
			if _, err := m.of(t.Context(), "attacker", changed(i), false); err != nil {
				t.Fatal(err)
			}
		}
		took := time.Since(begun)
		if most := changeBurst + time.Duration(backend.EffortShare*float64(took)) + cost; n*cost > most {
			t.Errorf("got %s of the server's time in %s, want at most %s", n*cost, took, most)
		}
	})
}

// TestAttackOneChangeForManyRuns: runs with different secrets that wait at the same time have one share together. None
// waits for more than turnWait, and those that are refused know when to ask again.
func TestAttackOneChangeForManyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = time.Second
		m := taking(cost)
		var all sync.WaitGroup
		var made, refused atomic.Int32
		for i := range 40 {
			all.Go(func() {
				begun := time.Now()
				_, err := m.of(t.Context(), "attacker", changed(i), false)
				if took := time.Since(begun); took > turnWait+cost {
					t.Errorf("got an answer after %s, want it after %s at most", took, turnWait+cost)
				}
				e, ok := errors.AsType[*sandboxmcp.Error](err)
				switch {
				case err == nil:
					made.Add(1)
				case ok && e.Code == sandboxmcp.CodeQueueFull && e.Hint != "" && e.Fields["retry_after_seconds"] != nil:
					refused.Add(1)
				default:
					t.Errorf("got %v, want queue_full with a hint and a time", err)
				}
			})
		}
		all.Wait()
		if made.Load() < 5 || made.Load() > 8 || made.Load()+refused.Load() != 40 {
			t.Errorf("got %d maskers and %d refusals, want those of the burst and of 10 s", made.Load(), refused.Load())
		}
		if _, err := m.of(t.Context(), "other", changed(0), false); err != nil {
			t.Errorf("another namespace: got %v, want a masker", err)
		}
	})
}

// TestUsualChangesOfSecretsWaitForNothing: a person adds 20 secrets, and a program runs after each.
func TestUsualChangesOfSecretsWaitForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 120 * time.Millisecond // of 20 secrets on a slow core
		m, begun := taking(cost), time.Now()
		for i := range 20 {
			if _, err := m.of(t.Context(), "ns", changed(i), false); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 20*cost {
			t.Errorf("got them after %s, want %s", took, 20*cost)
		}
	})
}

// TestAWaitForAMaskerCanBeCancelled: also by a caller in whose turn it is.
func TestAWaitForAMaskerCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := taking(2 * changeBurst)
		if _, err := m.of(t.Context(), "ns", changed(0), false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				if _, err := m.of(ctx, "ns", changed(i+1), false); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want %v", err, context.Canceled)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		cancel()
		all.Wait()
		if took := time.Since(begun); took != 0 {
			t.Errorf("got an answer %s after the cancellation, want it at once", took)
		}
	})
}

// TestFormerSecretsOfSessionsHaveTheSameShare: each session with former secrets needs a masker of its own.
func TestFormerSecretsOfSessionsHaveTheSameShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = time.Second
		g := New(Config{})
		g.maskers.construct = taking(cost).construct
		current, err := g.maskers.of(t.Context(), "ns", changed(1), false)
		if err != nil {
			t.Fatal(err)
		}
		made := 0
		for range 40 {
			had := &Had{}
			had.give(changed(0), []string{"K"})
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			masker, err := g.Secrets("ns", had).andFormer(ctx, changed(1), current)
			cancel()
			if err != nil {
				continue
			}
			made++
			if text := masker.Text("secret-number-0"); text != redact.Mask {
				t.Errorf("got %q, want the former secret masked", text)
			}
		}
		if made < 4 || made > 5 {
			t.Errorf("got %d maskers of sessions at once, want those of the burst", made)
		}
	})
}
