package environment

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Preloader says which modules of package sets may be imported ahead, in a sandbox that runs no
// code of a caller. A set is imported ahead only after all its files were hashed. Its methods may be
// called concurrently.
type Preloader struct {
	library *Library
	ctx     context.Context //nolint:containedctx // its end ends checks of imports that no caller waits for

	mu  sync.Mutex
	all map[string]*known // by digest
}

// known holds the result of the last hash check of a set.
type known struct {
	hashing sync.Mutex   // held while the files of the set are hashed
	state   atomic.Int32 // the result
}

const (
	unknown int32 = iota // not hashed, or the last hashing failed for a reason that may pass
	whole                // every file had its recorded hash
	changed              // one had not
)

// NewPreloader returns the Preloader of a library. Its checks fail when ctx ends.
func NewPreloader(ctx context.Context, l *Library) *Preloader {
	return &Preloader{library: l, ctx: ctx, all: map[string]*known{}}
}

// Modules returns the modules that may be imported ahead for a program; nil: none. check says
// whether the files of their set are whole: before the import, unless that is known, and after it.
func (p *Preloader) Modules(python Python, code string) (modules []string, check func(ctx context.Context, loaded bool) error) {
	for _, s := range p.library.Active(python) {
		if modules := s.Preload(code); modules != nil {
			if k := p.of(s); k.state.Load() != changed {
				return modules, func(ctx context.Context, loaded bool) error { return p.check(ctx, s, k, loaded) }
			}
		}
	}
	return nil, nil
}

func (p *Preloader) of(s Set) *known {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.all[s.Digest]
	if k == nil {
		k = &known{}
		p.all[s.Digest] = k
	}
	return k
}

// check hashes every file of a set and remembers whether all are right. Before an import it does so
// only if that is not known.
func (p *Preloader) check(ctx context.Context, s Set, k *known, loaded bool) error {
	k.hashing.Lock()
	defer k.hashing.Unlock()
	switch state := k.state.Load(); {
	case state == changed:
		return errors.New("a file of the package set was changed")
	case state == whole && !loaded:
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)() //nolint:contextcheck // it ends with either of the two
	err := p.library.Verify(ctx, s)
	switch {
	case err == nil:
		k.state.Store(whole)
	case passing(err):
		k.state.Store(unknown)
		p.library.log.Warn("the files of a package set cannot be hashed now", "set", s.Name, "error", err)
	case ctx.Err() == nil:
		k.state.Store(changed)
		p.library.log.Warn("nothing of a package set is imported ahead", "set", s.Name, "error", err)
	}
	return err
}

// passing reports whether an error says nothing about the files: the machine could not read them.
func passing(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.ESTALE,
	}, errno)
}
