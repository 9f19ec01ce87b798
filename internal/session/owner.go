package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// owner is this process as an owner of sessions: a lease of its own, which it holds for
// as long as it lives. Rows of sessions name it, so every process can tell whether the
// owner of a row is alive.
type owner struct {
	store *store.Store

	mu    sync.Mutex
	name  string
	lease *store.Lease
}

// ownerLease is the lease of an owner.
func ownerLease(name string) string { return "owners/" + name + ".owner" }

// id returns the owner's name. It is empty before enter.
func (o *owner) id() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.name
}

// enter takes the lease at its first call and returns the owner's name.
func (o *owner) enter(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.name != "" {
		return o.name, nil
	}
	mark := make([]byte, 6)
	_, _ = rand.Read(mark) // never fails
	name := strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(mark)
	lease, err := o.store.TryLease(ctx, ownerLease(name))
	if err != nil {
		return "", err
	}
	o.name, o.lease = name, lease
	return name, nil
}

// leave gives the lease up.
func (o *owner) leave() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease == nil {
		return nil
	}
	err := o.lease.Discard()
	o.lease = nil
	return err
}

// lives reports whether the process of an owner is alive. It returns true if that cannot
// be found out, so that no session is called gone by mistake.
func (o *owner) lives(ctx context.Context, name string) bool {
	return name != "" && !strings.ContainsAny(name, "/\x00") && o.store.Leased(ctx, ownerLease(name))
}

// bury removes the file of a dead owner.
func (o *owner) bury(ctx context.Context, name string) {
	if o.lives(ctx, name) {
		return
	}
	if lease, err := o.store.TryLease(ctx, ownerLease(name)); err == nil {
		_ = lease.Discard()
	}
}
