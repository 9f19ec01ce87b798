package runtimes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	probeTimeout = 15 * time.Second // a version manager's shim needs about 100 ms when it is not cached
	probeOutput  = 64 << 10         // bytes of a probe's answer that are read
)

// The probes print a mark and one line of JSON, so that other output of a shim is ignored.
// The Python probe runs on every Python 3.
const (
	probeMark   = "\x1esandboxmcp "
	pythonProbe = `import sys, json
print("\x1esandboxmcp " + json.dumps({"executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]}))`
	nodeProbe = `"\x1esandboxmcp " + JSON.stringify({executable: process.execPath, version: process.versions.node, prefixes: []})`
)

// answer is what a probe prints.
type answer struct {
	Executable string   `json:"executable"`
	Version    string   `json:"version"`
	Prefixes   []string `json:"prefixes"`
	Code       string   `json:"code"` // hexadecimal; only in the answer of compileProbe
}

// examine finds the interpreter behind a hit. If exact is set, it determines the exact
// version of Python, Node or bash. Otherwise it starts a process only if the path does not
// identify the interpreter.
func (s *Set) examine(ctx context.Context, lang sandboxmcp.Language, h hit, exact bool) (Interpreter, error) {
	real, err := filepath.EvalSymlinks(h.path)
	if err != nil {
		return Interpreter{}, fmt.Errorf("follow links: %w", err)
	}
	var in Interpreter
	switch lang {
	case sandboxmcp.Shell:
		in, err = s.examineShell(ctx, h.path, real, exact)
	case sandboxmcp.Python:
		in, err = s.examinePython(ctx, h.path, real, exact)
	case sandboxmcp.Node:
		in, err = s.examineNode(ctx, h.path, real)
	default:
		err = errors.New("unknown language")
	}
	if err != nil {
		return Interpreter{}, err
	}
	for _, d := range in.ReadOnlyDirs {
		if shared(d, s.home()) {
			return Interpreter{}, fmt.Errorf("%s would have to show all of %s, which holds other things", in.Path, d)
		}
	}
	in.Language = lang
	in.judge()
	return in, nil
}

var pythonMinor = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^python(3\.\d+)$`) })

func (s *Set) examinePython(ctx context.Context, found, real string, exact bool) (Interpreter, error) {
	virtual := isVirtualEnv(found)
	if m := pythonMinor().FindStringSubmatch(filepath.Base(real)); m != nil && !exact && !virtual &&
		inSystem(real) && !isShim(sandboxmcp.Python, found, real) {
		if pythonTooOld(m[1]) {
			return Interpreter{}, fmt.Errorf("python %s is older than 3.8", m[1])
		}
		return Interpreter{Path: real, Version: m[1]}, nil
	}
	a, err := s.probe(ctx, found, "-I", "-S", "-c", pythonProbe) // without -S it would execute code of packages (.pth, sitecustomize)
	if err != nil {
		return Interpreter{}, err
	}
	if pythonTooOld(a.Version) {
		return Interpreter{}, fmt.Errorf("python %s is older than 3.8", a.Version)
	}
	in := Interpreter{Version: a.Version}
	if in.Path, err = realBinary(a.Executable, isVirtualEnv(a.Executable)); err != nil {
		return Interpreter{}, err
	}
	if root := virtualEnv(in.Path); root != "" { // without its packages a Python may name its base alone
		in.Virtual, a.Prefixes = true, append(a.Prefixes, root)
	}
	var dirs []string
	for _, p := range a.Prefixes {
		dirs = append(dirs, installation(p, s.home())...)
	}
	if !inSystem(in.Path) {
		dirs = append(dirs, filepath.Dir(in.Path))
	}
	in.ReadOnlyDirs = reduce(dirs)
	return in, nil
}

func (s *Set) examineNode(ctx context.Context, found, _ string) (Interpreter, error) {
	a, err := s.probe(ctx, found, "-p", nodeProbe)
	if err != nil {
		return Interpreter{}, err
	}
	in := Interpreter{Version: a.Version}
	if in.Path, err = realBinary(a.Executable, false); err != nil {
		return Interpreter{}, err
	}
	if !inSystem(in.Path) {
		bin := filepath.Dir(in.Path)
		dirs := []string{bin}
		if filepath.Base(bin) == "bin" {
			dirs = append(dirs, installation(filepath.Dir(bin), s.home())...)
		}
		in.ReadOnlyDirs = reduce(dirs)
	}
	return in, nil
}

var bashVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\d+\.\d+(\.\d+)?`) })

func (s *Set) examineShell(ctx context.Context, found, real string, exact bool) (Interpreter, error) {
	in := Interpreter{Path: real}
	if !named(sandboxmcp.Shell, real) || isScript(real) {
		in.Path = found // a multi-call binary, which chooses its program by the name it is started under
	}
	if !inSystem(in.Path) {
		in.ReadOnlyDirs = reduce([]string{filepath.Dir(in.Path), filepath.Dir(real)})
	}
	if exact && strings.HasPrefix(filepath.Base(in.Path), "bash") {
		out, err := s.run(ctx, in.Path, "--version")
		if err != nil {
			return Interpreter{}, err
		}
		in.Version = bashVersion().FindString(string(out))
	}
	return in, nil
}

// realBinary checks the path that a probe has reported and resolves its links. It keeps the
// last link of a virtual environment, because the interpreter finds the environment by that
// link.
func realBinary(executable string, virtual bool) (string, error) {
	if !filepath.IsAbs(executable) {
		return "", fmt.Errorf("the interpreter names %q as its path", executable)
	}
	toFollow := executable
	if virtual {
		toFollow = filepath.Dir(executable)
	}
	p, err := filepath.EvalSymlinks(toFollow)
	if err != nil {
		return "", fmt.Errorf("follow links: %w", err)
	}
	if virtual {
		p = filepath.Join(p, filepath.Base(executable))
	}
	info, err := os.Stat(p)
	if err != nil {
		return "", fmt.Errorf("stat interpreter: %w", err)
	}
	if !info.Mode().IsRegular() || isScript(p) {
		return "", fmt.Errorf("%s is no binary", p)
	}
	return p, nil
}

// isVirtualEnv reports whether the path of a python is in a virtual environment.
func isVirtualEnv(python string) bool { return virtualEnv(python) != "" }

// virtualEnv returns the directory of the virtual environment that the path of a python is in, or "".
func virtualEnv(python string) string {
	for _, dir := range []string{filepath.Dir(python), filepath.Dir(filepath.Dir(python))} {
		if _, err := os.Stat(filepath.Join(dir, virtualMark)); err == nil {
			return dir
		}
	}
	return ""
}

// probe runs a program once and parses its answer.
func (s *Set) probe(ctx context.Context, path string, args ...string) (answer, error) {
	out, err := s.run(ctx, path, args...)
	if err != nil {
		return answer{}, err
	}
	_, line, ok := bytes.Cut(out, []byte(probeMark))
	if !ok {
		return answer{}, errors.New("it did not answer the probe")
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, fmt.Errorf("read the probe's answer: %w", err)
	}
	return a, nil
}

func (s *Set) run(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out := &bounded{left: probeOutput}
	cmd := command(ctx, path, args)
	cmd.Dir, cmd.Env, cmd.Stdout = "/", foreign(s.cfg.HomeEnv), out
	cmd.WaitDelay = time.Second
	s.cfg.Logger.Debug("interpreter probed", "path", path)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, errors.New("it did not answer in time")
		}
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	return out.Bytes(), nil
}

// home returns HOME of the environment for shims, or "".
func (s *Set) home() string {
	for _, kv := range s.cfg.HomeEnv {
		if v, ok := strings.CutPrefix(kv, "HOME="); ok {
			return v
		}
	}
	return ""
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}

// steering are variables by which the loader, Node, OpenSSL or a shell executes code of a file, or finds it in a directory. A final * matches any suffix. Programs in
// sandboxes do not have them either. A model may be able to write such a file: by host_file_write, or in a writable workspace.
var steering = []string{"LD_*", "DYLD_*", "GCONV_PATH", "PYTHON*", "NODE_OPTIONS", "NODE_PATH", "OPENSSL_*", "BASH_ENV", "ENV", "PERL5*", "RUBY*"}

// foreign returns env without this product's variables, because these may hold keys and a
// shim must not get them, and without those of steering. The result is never nil: exec.Cmd would take nil for the server's
// whole environment.
func foreign(env []string) []string {
	return slices.DeleteFunc(append([]string{}, env...), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "SANDBOXMCP_") || slices.ContainsFunc(steering, func(s string) bool {
			prefix, any := strings.CutSuffix(s, "*")
			return name == s || any && strings.HasPrefix(name, prefix)
		})
	})
}
