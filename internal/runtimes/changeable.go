package runtimes

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// changeable is a directory that programs in sandboxes can change, as plainfile.Unlinked returns it. This package
// starts interpreters outside of sandboxes to ask for their versions, so it starts nothing that leads into the
// directory. The programs that it starts get a PATH without it, because they start others by that. The empty string
// means that programs can change no directory.
type changeable string

func (c changeable) has(path string) bool { return plainfile.LeadsInto(string(c), path) }

// holds reports whether an interpreter or one of its directories leads into the directory.
func (c changeable) holds(in Interpreter) bool {
	return c.has(in.Path) || slices.ContainsFunc(in.ReadOnlyDirs, c.has)
}

// outside returns a PATH without what leads into the directory.
func (c changeable) outside(path string) string {
	return strings.Join(slices.DeleteFunc(filepath.SplitList(path), c.has), string(filepath.ListSeparator))
}

// environ returns an environment whose PATH is that of outside. Shims find the programs that they start in it.
func (c changeable) environ(env []string) []string {
	env = slices.Clone(env)
	for i, kv := range env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			env[i] = "PATH=" + c.outside(path)
		}
	}
	return env
}
