package process

import (
	"cmp"
	"context"
	"regexp"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// This file asks the interpreters of Config.Root for their versions. They are started in sandboxes
// only.

// Interpreter returns the interpreter of a language.
func (b *Backend) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	in, err := b.interpreters.Interpreter(ctx, l)
	if err == nil && in.Version == "" && l == sandboxmcp.Node {
		in.Version = b.versionBelow(ctx, in.Path)
	}
	return in, err
}

// Interpreters lists the interpreters.
func (b *Backend) Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error) {
	list, err := b.interpreters.Interpreters(ctx)
	for i, r := range list {
		if r.Available {
			list[i].Version = cmp.Or(b.versionBelow(ctx, r.Path), r.Version)
		}
	}
	return list, err
}

var versionText = regexp.MustCompile(`\d+\.\d+\.\d+`)

// versionLimit bounds how long an interpreter may take to print its version.
const versionLimit = 15 * time.Second

// versionBelow returns the version of an interpreter of Config.Root; empty: it is not known.
func (b *Backend) versionBelow(ctx context.Context, path string) string {
	if b.cfg.Root == "" {
		return ""
	}
	if known, ok := b.versions.Load(path); ok {
		version, _ := known.(string)
		return version
	}
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	spec := trialSpec("version")
	spec.MemoryBytes = 256 << 20
	sb, err := b.Open(ctx, spec)
	if err != nil {
		return ""
	}
	defer func() { _ = sb.Close(context.WithoutCancel(ctx)) }()
	var out backend.Beginning
	r, err := sb.Start(ctx, backend.Process{Argv: []string{path, "--version"}, Env: []string{"PATH=" + systemPath}, Stdout: &out})
	if err == nil {
		_, err = r.Wait(ctx)
	}
	if err != nil || sb.Kill(ctx) != nil || r.Drain(ctx) != nil {
		return ""
	}
	version := versionText.FindString(out.String())
	if version != "" {
		b.versions.Store(path, version)
	}
	return version
}
