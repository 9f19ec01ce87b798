package kube

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// interpreters are those of the image, which does not change while a backend lives. The first call looks
// for them in a sandbox.
type interpreters struct {
	mu   sync.Mutex
	rows []sandboxmcp.Runtime
}

func (i *interpreters) in(ctx context.Context, b backend.Opener) ([]sandboxmcp.Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rows == nil {
		found, err := backend.FindInterpreters(ctx, b, "")
		if e, ok := errors.AsType[*sandboxmcp.Error](err); ok && e.Hint != "" {
			return nil, err // of the pod
		}
		if err != nil {
			return nil, unavailable("look for interpreters", err).WithHint("the image needs a shell at /bin/sh")
		}
		for _, l := range sandboxmcp.Languages() {
			row := sandboxmcp.Runtime{Language: l, Backend: Name, PackagesPreloaded: []string{}}
			if f, ok := found[l]; ok {
				row.Available, row.Path, row.Version = true, f.Path, f.Version
			} else {
				row.Hint = "use an image of pods that has it"
			}
			i.rows = append(i.rows, row)
		}
	}
	return append([]sandboxmcp.Runtime{}, i.rows...), nil
}

// Interpreters lists the interpreters of the image.
func (b *Backend) Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error) {
	return b.found.in(ctx, b)
}

// Interpreter returns an interpreter of the image.
func (b *Backend) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	if !slices.Contains(sandboxmcp.Languages(), l) {
		return backend.Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "language %s is not supported", sandboxmcp.Quote(string(l)))
	}
	rows, err := b.found.in(ctx, b)
	if err != nil {
		return backend.Interpreter{}, err
	}
	for _, r := range rows {
		if r.Language == l && r.Available {
			return backend.Interpreter{Language: l, Path: r.Path, Version: r.Version}, nil
		}
	}
	return backend.Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the image of pods has no interpreter for %s", l).WithHint("set kube_image to one that has it")
}
