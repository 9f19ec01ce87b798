package process

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
)

// systemPath is where interpreters are searched by default.
const systemPath = "/usr/local/bin:/usr/bin:/bin"

// interpreters finds the host's interpreters, which its sandboxes see.
type interpreters struct {
	set    *runtimes.Set
	source *atomic.Pointer[source] // the source used last
}

// source is a text and its runtimes.Source, which takes long to make.
type source struct {
	name string
	text []byte
	src  runtimes.Source
}

func newInterpreters(cfg Config) interpreters {
	if cfg.SearchPath == "" {
		cfg.SearchPath = systemPath
	}
	if cfg.ShimEnv == nil {
		cfg.ShimEnv = []string{"PATH=" + cfg.SearchPath}
	}
	set := runtimes.New(runtimes.Config{Path: cfg.SearchPath, HomeEnv: cfg.ShimEnv, CacheFile: cfg.FindingsFile, Logger: cfg.Logger})
	return interpreters{set, &atomic.Pointer[source]{}}
}

// Interpreter returns the host's interpreter of a language.
func (i interpreters) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	in, err := i.set.Find(ctx, l)
	return backend.Interpreter{
		Language: in.Language, Path: in.Path, Version: in.Version, Trees: backend.Trees(in.ReadOnlyDirs...),
		Virtual: in.Virtual, TrustedForPreload: in.TrustedForPreload, TrustedSite: in.TrustedSite,
	}, err
}

// Interpreters lists the host's interpreters.
func (i interpreters) Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list := i.set.List(ctx)
	for n := range list {
		list[n].Backend = Name
	}
	return list, nil
}

// Compiled returns the code that a Python has compiled from a text.
func (i interpreters) Compiled(in backend.Interpreter, name string, text []byte) (code []byte, prepare func(context.Context)) {
	s := i.source.Load()
	if s == nil || s.name != name || !bytes.Equal(s.text, text) {
		s = &source{name, text, runtimes.NewSource(name, text)}
		i.source.Store(s)
	}
	return i.set.Compiled(in.Path, s.src)
}
