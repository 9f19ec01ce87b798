package docker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// interpreters are those of the images. They are looked for in a sandbox of each image, and again if the
// engine has other images.
type interpreters struct {
	mu     sync.Mutex
	rows   []sandboxmcp.Runtime
	images images // that have them
}

func (i *interpreters) in(ctx context.Context, b backend.Opener, e *Engine) ([]sandboxmcp.Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_, has, err := e.connect(ctx)
	if err != nil && i.rows == nil {
		return nil, err
	}
	if err == nil && (i.rows == nil || !maps.Equal(has.ids, i.images.ids)) {
		out := map[string]map[sandboxmcp.Language]backend.Interpreter{} // the found interpreters, by image
		for _, name := range has.names() {
			if out[name], err = backend.FindInterpreters(ctx, b, name); err != nil {
				if known, ok := errors.AsType[*sandboxmcp.Error](err); ok {
					return nil, known
				}
				return nil, e.failure("look for interpreters", err).WithHint("the image needs a shell at /bin/sh")
			}
		}
		i.images, i.rows = has, has.runtimes(out)
	}
	return append([]sandboxmcp.Runtime{}, i.rows...), nil
}

// interpreter returns one of them.
func (i *interpreters) interpreter(ctx context.Context, b backend.Opener, e *Engine, l sandboxmcp.Language) (backend.Interpreter, error) {
	if !slices.Contains(sandboxmcp.Languages(), l) {
		return backend.Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "language %s is not supported", sandboxmcp.Quote(string(l)))
	}
	rows, err := i.in(ctx, b, e)
	if err != nil {
		return backend.Interpreter{}, err
	}
	i.mu.Lock()
	has := i.images
	i.mu.Unlock()
	for _, r := range rows {
		if r.Language == l && r.Available {
			name, _ := has.named(l)
			return backend.Interpreter{Language: l, Path: r.Path, Version: r.Version, Image: name}, nil
		}
	}
	return backend.Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the image %s has no interpreter for %s", strings.Join(has.names(), ", "), l).
		WithHint("set image to one that has it, or run `sandboxmcp image build`")
}

// runtimes returns a row for each language, from the interpreters found in each image.
func (i images) runtimes(out map[string]map[sandboxmcp.Language]backend.Interpreter) []sandboxmcp.Runtime {
	rows := []sandboxmcp.Runtime{}
	for _, l := range sandboxmcp.Languages() {
		row := sandboxmcp.Runtime{Language: l, Backend: Name, PackagesPreloaded: []string{}}
		name, ok := i.named(l)
		if name == "" {
			name = i.name
		}
		if f, found := out[name][l]; ok && found {
			row.Available, row.Path, row.Version = true, f.Path, f.Version
		} else {
			row.Hint = "use an image that has it, such as the one of `sandboxmcp image build`"
		}
		rows = append(rows, row)
	}
	return rows
}
