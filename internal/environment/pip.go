package environment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// pip is a package installer that installs for one interpreter.
type pip struct {
	argv    []string // without pip's own arguments
	version string
	python  Python
	built   Built
	env     []string
	dir     string // where it is started: ours, so that no module of a stranger's is there
}

const aboutProbe = `import json, sys, sysconfig
print(json.dumps([sys.implementation.name, "%d.%d.%d" % sys.version_info[:3], sysconfig.get_config_var("SOABI") or "", sysconfig.get_platform()]))`

// findPip finds out about the interpreter, and its own pip; where it has none, one
// of another interpreter that can install for it.
func findPip(ctx context.Context, o Order, dir string) (*pip, error) {
	p := &pip{python: o.Python, env: environ(o.Env), dir: dir}
	out, err := p.capture(ctx, o.Python.Path, "-I", "-c", aboutProbe)
	var about [4]string
	if err == nil {
		err = json.Unmarshal(out, &about)
	}
	if err != nil {
		return nil, failed(ctx, fmt.Errorf("ask %s: %w", o.Python.Path, err))
	}
	p.python.Version = about[1]
	p.built = Built{Tag: p.python.Tag(), Version: about[1], ABI: about[2], Platform: about[3]}
	tried := [][]string{{o.Python.Path, "-m", "pip"}}
	for _, dir := range filepath.SplitList(lookup(o.Env, "PATH")) {
		for _, name := range []string{"pip3", "pip"} {
			if path := filepath.Join(dir, name); filepath.IsAbs(dir) && isProgram(path) {
				tried = append(tried, []string{path, "--python", o.Python.Path})
			}
		}
	}
	for _, argv := range tried {
		// A pip that does not know --python, before 22.3, fails here.
		out, err := p.capture(ctx, append(argv, "--version")...)
		if m := pipVersion.FindSubmatch(out); err == nil && m != nil {
			p.argv, p.version = argv, string(m[1])
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, cancelled(ctx)
		}
	}
	hint := o.Python.Path + " -m ensurepip --user"
	if strings.HasPrefix(o.Python.Path, "/usr/bin/") {
		hint = "apt-get install python3-pip, or what your system's package of pip is called"
	}
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the interpreter %s has no pip", o.Python.Path).WithHint(hint)
}

var pipVersion = regexp.MustCompile(`^pip (\d+(?:\.\d+)*)`)

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// environ is the environment of pip: the user's, with his index, proxy and
// certificates, without what is ours or steers the interpreter.
func environ(env []string) []string {
	var keep []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "PYTHON") && !strings.HasPrefix(name, "SANDBOX") && !strings.HasPrefix(name, "VIRTUAL_ENV") {
			keep = append(keep, kv)
		}
	}
	return append(keep, "PIP_NO_INPUT=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_COLOR=1", "PYTHONDONTWRITEBYTECODE=1")
}

func lookup(env []string, name string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// capture runs a program and returns what it prints. The error has what it says
// on stderr.
func (p *pip) capture(ctx context.Context, argv ...string) ([]byte, error) {
	cmd := command(ctx, argv)
	var out, errs tail
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, &saidError{text: errs.String(), err: err}
	}
	return out.Bytes(), nil
}

// run runs pip.
func (p *pip) run(ctx context.Context, args ...string) error {
	_, err := p.capture(ctx, append(append([]string{}, p.argv...), args...)...)
	return err
}

// download fetches wheels into a directory: those of the lock, or the newest that
// fit.
func (p *pip) download(ctx context.Context, o Order, lock []byte, into string) error {
	args := []string{"download", "--only-binary=:all:", "--dest", into, "--progress-bar", "off"}
	if o.Hurry {
		args = append(args, "--retries", "0", "--timeout", "10")
	}
	if lock == nil {
		return p.run(ctx, append(args, o.Recipe.Packages...)...)
	}
	file := into + ".txt"
	if err := put(file, lock, 0o600); err != nil {
		return err
	}
	return p.run(ctx, append(args, "--no-deps", "--require-hashes", "-r", file)...)
}

// install installs wheels of a directory, each by its hash, and nothing else. No
// setting of the user's has a say in this, for nothing is fetched.
func (p *pip) install(ctx context.Context, wheels string, lock []byte, target string) error {
	file := wheels + ".lock"
	if err := put(file, lock, 0o600); err != nil {
		return err
	}
	return p.run(ctx, "--isolated", "install", "--no-index", "--find-links", wheels, "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", file,
		"--no-compile", "--no-warn-script-location", "--progress-bar", "off", "--target", target)
}

// compile makes compiled code of everything, by compiling and not by running it.
// Some packages hold files that are wrong on purpose.
func (p *pip) compile(ctx context.Context, target string) error {
	args := []string{p.python.Path, "-I", "-m", "compileall", "-q", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"}
	if minor(p.python.Version) >= 9 {
		args = append(args, "-s", target) // else the code holds the name of a directory that goes away
	}
	_, err := p.capture(ctx, append(args, target)...)
	if said, ok := err.(*saidError); ok && ctx.Err() == nil && said.exit() == 1 { //nolint:errorlint // it is made above
		return nil
	}
	return err
}

func minor(version string) int {
	_, rest, _ := strings.Cut(version, ".")
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

const tailBytes = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.Buffer.Write(p)
	if t.Len() > 2*tailBytes {
		t.Next(t.Len() - tailBytes)
	}
	return n, nil
}

// saidError is a program that failed, with what it said.
type saidError struct {
	text string
	err  error
}

func (e *saidError) Error() string {
	if s := gist(e.text); s != "" {
		return s
	}
	return e.err.Error()
}

func (e *saidError) Unwrap() error { return e.err }

func (e *saidError) exit() int {
	if x, ok := e.err.(interface{ ExitCode() int }); ok {
		return x.ExitCode()
	}
	return -1
}

const maxGist = 400

// gist is what pip says went wrong, in one line: its lines that begin with ERROR,
// or else the last one.
func gist(text string) string {
	var said []string
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		last = line
		if rest, ok := strings.CutPrefix(line, "ERROR: "); ok {
			said = append(said, rest)
		}
	}
	if len(said) == 0 {
		said = []string{last}
	}
	s := strings.Join(said, "; ")
	if len(s) > maxGist {
		s = s[:maxGist] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// failed says why a package set could not be installed, and what to do.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	text := ""
	if said, ok := err.(*saidError); ok { //nolint:errorlint // as run returns it
		text = said.text
	}
	e := sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the packages could not be installed: %s", err).WithCause(err)
	switch {
	case strings.Contains(text, "DO NOT MATCH THE HASHES"):
		e.Message = "a package that was fetched is not the one in the lock: " + err.Error()
		return e.WithHint("do not use it; with --upgrade, or another lock, other packages are chosen")
	case unreachable.MatchString(text):
		e.Message = "the package index cannot be reached"
		return e.WithHint("see index and proxy in `pip config list`, or install later: nothing else needs it")
	case strings.Contains(text, "(from versions: none)"): // without another try, this is all that pip says of an index that is not there
		e.Message = "the package index cannot be reached, or has no wheel that fits this interpreter: " + err.Error()
	}
	return e.WithHint("see index and proxy in `pip config list`")
}

var unreachable = regexp.MustCompile(`(?i)connection broken|NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|Name or service not known|Temporary failure in name resolution|Network is unreachable|Could not fetch URL|SSLError`)

func cancelled(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the installation was cancelled").WithCause(context.Cause(ctx))
}
