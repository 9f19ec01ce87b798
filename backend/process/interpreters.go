package process

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
)

// systemPath is where interpreters are searched by default.
const systemPath = "/usr/local/bin:/usr/bin:/bin"

// remember is how long an interpreter is used without looking at its files again. A look is about
// thirty system calls.
const remember = time.Second

// interpreters finds the interpreters that sandboxes see: the host's, or those of Config.Root.
type interpreters struct {
	set     *runtimes.Set
	sources *sync.Map // by name: the source used last
}

// source is a text and its runtimes.Source, which takes long to make.
type source struct {
	text []byte
	src  runtimes.Source
}

func newInterpreters(cfg Config) interpreters {
	if cfg.SearchPath == "" || cfg.Root != "" {
		cfg.SearchPath = systemPath
	}
	if cfg.ShimEnv == nil {
		cfg.ShimEnv = []string{"PATH=" + cfg.SearchPath}
	}
	set := runtimes.New(runtimes.Config{
		Path: cfg.SearchPath, Root: cfg.Root, HomeEnv: cfg.ShimEnv, Changeable: cfg.changeable(), CacheFile: cfg.FindingsFile, Remember: remember, Logger: cfg.Logger,
	})
	return interpreters{set, &sync.Map{}}
}

// changeable returns the directory of the host that programs in sandboxes can change. It is empty if programs can change
// no directory of the host.
func (c Config) changeable() string {
	if !c.Writable {
		return ""
	}
	return c.Shown
}

// Interpreter returns the interpreter of a language.
func (i interpreters) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	in, err := i.set.Find(ctx, l)
	return backend.Interpreter{
		Language: in.Language, Path: in.Path, Version: in.Version, Trees: backend.Trees(in.ReadOnlyDirs...),
		Virtual: in.Virtual, TrustedForPreload: in.TrustedForPreload, TrustedSite: in.TrustedSite,
	}, err
}

// Interpreters lists the interpreters.
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
	known, _ := i.sources.Load(name)
	s, _ := known.(*source)
	if s == nil || !bytes.Equal(s.text, text) {
		s = &source{text, runtimes.NewSource(name, text)}
		i.sources.Store(name, s)
	}
	return i.set.Compiled(in.Path, s.src)
}
