package environment

import (
	"context"
	"sync"
)

// Preloader says which modules of package sets may be imported ahead, in a sandbox that runs no
// code of a caller. A set is imported ahead only if all its files were hashed since the
// Preloader was made. Its methods may be called concurrently.
type Preloader struct {
	library *Library
	ctx     context.Context //nolint:containedctx // of hashing, which has no caller
	start   func(func())

	mu    sync.Mutex
	whole map[string]bool // result of the last hash check of a set, by digest
}

// NewPreloader returns the Preloader of a library. Sets are hashed in the background, by
// functions that it passes to start, until ctx ends.
func NewPreloader(ctx context.Context, l *Library, start func(func())) *Preloader {
	return &Preloader{library: l, ctx: ctx, start: start, whole: map[string]bool{}}
}

// Modules returns the modules that may be imported ahead for a program; nil: none. whole must be
// called after the import: it hashes the files again.
func (p *Preloader) Modules(python Python, code string) (modules []string, whole func(context.Context) error) {
	for _, s := range p.library.Active(python) {
		if modules := s.Preload(code); modules != nil && p.hashed(s) {
			return modules, func(context.Context) error { return p.hash(s) }
		}
	}
	return nil, nil
}

// hashed reports whether every file of a set has its recorded hash. If that is not known
// yet, it returns false and starts the check in the background.
func (p *Preloader) hashed(s Set) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole, known := p.whole[s.Digest]
	if known {
		return whole
	}
	p.whole[s.Digest] = false
	p.start(func() { _ = p.hash(s) })
	return false
}

// hash hashes every file of a set, and remembers whether all are right.
func (p *Preloader) hash(s Set) error {
	err := p.library.Verify(p.ctx, s)
	if err != nil && p.ctx.Err() == nil {
		p.library.log.Warn("nothing of a package set is imported ahead", "set", s.Name, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole[s.Digest] = err == nil
	return err
}
