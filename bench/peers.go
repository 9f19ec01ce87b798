//go:build linux

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// absent lists peers that cannot be started here, with the reason.
var absent = []struct{ row, why string }{
	{rowNsjail, "no package of the system's; other registries have only builds by others than its makers"},
}

func absentModes() []mode {
	out := make([]mode, 0, len(absent))
	for _, a := range absent {
		out = append(out, mode{rows: []string{a.row}, skip: a.why})
	}
	return out
}

// whyAbsent returns the reason for an absent row.
func whyAbsent(row string) string {
	for _, a := range absent {
		if a.row == row {
			return a.why
		}
	}
	return ""
}

// bwrap returns the mode of bubblewrap, which makes namespaces and none of the product's
// other walls.
func (b *bed) bwrap(i interpreter) mode {
	p, skip := bwrapProgram(i)
	if skip != "" {
		return mode{rows: []string{inBwrap(i)}, skip: skip}
	}
	return b.one(inBwrap(i), i.bare(), func(ctx context.Context) (time.Duration, error) { return b.command(ctx, p) })
}

// bwrapProgram returns the command. If it cannot be started, skip says why.
func bwrapProgram(i interpreter) (p program, skip string) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return p, "bwrap is not installed"
	}
	return program{env: plainEnv(), argv: append(bwrapArgv(path, i), i.argv()...)}, ""
}

func bwrapArgv(path string, i interpreter) []string {
	argv := []string{path, "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if to, err := os.Readlink(dir); err == nil {
			argv = append(argv, "--symlink", to, dir)
		} else if _, err := os.Stat(dir); err == nil {
			argv = append(argv, "--ro-bind", dir, dir)
		}
	}
	argv = append(argv, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
	for _, dir := range i.Dirs {
		argv = append(argv, "--ro-bind", dir, dir)
	}
	return argv
}

// s1Modes returns the modes of sandboxmcp (Python). It runs code with its own interpreter.
// If that is not measured otherwise, s1Modes also returns a bare run of it.
func (b *bed) s1Modes(ctx context.Context) (modes, bare []mode) {
	path := filepath.Join(b.o.s1, "bin", "sandboxmcp")
	absent := func(name, why string) mode { return mode{rows: []string{name}, skip: why} }
	if _, err := os.Stat(path); err != nil {
		why := "not installed (scripts/peers.sh installs it)"
		return []mode{absent(rowS1MCP, why), absent(rowS1CLI, why)}, nil
	}
	base, bare := b.s1Base()
	home, err := b.dir("peer")
	if err != nil {
		return []mode{absent(rowS1MCP, err.Error()), absent(rowS1CLI, err.Error())}, bare
	}
	// It writes its database into the working directory.
	with := func(args ...string) program {
		return program{dir: home, env: set(set(plainEnv(), "HOME", home), "TMPDIR", home), argv: append([]string{path}, args...)}
	}
	c, err := dial(ctx, with("serve"))
	if err != nil {
		modes = append(modes, absent(rowS1MCP, err.Error()))
	} else {
		b.closers = append(b.closers, c.close)
		modes = append(modes, b.one(rowS1MCP, base, func(context.Context) (time.Duration, error) { return c.execute("python", "print(1)", "1\n") }))
	}
	file := filepath.Join(home, "hello.py")
	if err := os.WriteFile(file, []byte("print(1)\n"), 0o644); err != nil {
		return append(modes, absent(rowS1CLI, err.Error())), bare
	}
	return append(modes, b.one(rowS1CLI, base, func(ctx context.Context) (time.Duration, error) {
		return b.command(ctx, with("run", file))
	})), bare
}

// s1Base returns the row name of the bare interpreter behind the virtual environment.
func (b *bed) s1Base() (name string, bare []mode) {
	path, err := filepath.EvalSymlinks(filepath.Join(b.o.s1, "bin", "python3"))
	if err != nil {
		return "", nil
	}
	for _, i := range b.interpreters {
		if real, err := filepath.EvalSymlinks(i.Path); err == nil && real == path {
			return i.bare(), nil
		}
	}
	i := interpreter{Lang: sandboxmcp.Python, Label: path, Path: path}
	return i.bare(), []mode{b.one(i.bare(), "", func(ctx context.Context) (time.Duration, error) {
		return b.command(ctx, program{env: plainEnv(), argv: i.argv()})
	})}
}

// s1Versions returns the versions in the virtual environment.
func s1Versions(dir string) string {
	var out []string
	found, _ := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages", "*mcp-*.dist-info", "METADATA"))
	for _, file := range found {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		var name, version string
		for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; {
			if v, ok := strings.CutPrefix(lines.Text(), "Name: "); ok {
				name = v
			}
			if v, ok := strings.CutPrefix(lines.Text(), "Version: "); ok {
				version = v
			}
		}
		_ = f.Close()
		out = append(out, name+" "+version)
	}
	return strings.Join(out, ", ")
}
