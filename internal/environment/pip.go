package environment

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
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// pip runs pip for one interpreter.
type pip struct {
	argv    []string // the command that starts pip
	version string
	python  Python
	built   Built
	library []string // modules of the interpreter's own; from Python 3.10 on
	env     []string
	dir     string // its working directory: private, so that it can import no foreign module
}

const aboutProbe = `import json, sys, sysconfig
print(json.dumps([sys.implementation.name, "%d.%d.%d" % sys.version_info[:3], sysconfig.get_config_var("SOABI") or "", sysconfig.get_platform(),
    *getattr(sys, "stdlib_module_names", [])]))`

// findPip asks the interpreter for its version and finds its pip. If it has none, findPip
// looks in PATH for a pip of another interpreter that can install for it.
func findPip(ctx context.Context, o Order, dir string) (*pip, error) {
	p := &pip{python: o.Python, env: environ(o.Env), dir: dir}
	out, err := p.capture(ctx, o.Python.Path, "-I", "-c", aboutProbe)
	var about []string
	if err == nil {
		err = json.Unmarshal(out, &about)
	}
	if err == nil && len(about) < 4 {
		err = errors.New("it does not describe itself")
	}
	if err != nil {
		return nil, failed(ctx, fmt.Errorf("ask %s: %w", o.Python.Path, err))
	}
	p.python.Version = about[1]
	p.library = about[4:]
	p.built = Built{Tag: p.python.Tag(), Version: about[1], ABI: about[2], Platform: about[3]}
	tried := [][]string{{o.Python.Path, "-m", "pip"}}
	for _, dir := range filepath.SplitList(lookup(o.Env, "PATH")) {
		for _, name := range []string{"pip3", "pip"} {
			if path := filepath.Join(dir, name); filepath.IsAbs(dir) && isProgram(path) && !plainfile.LeadsInto(o.Avoid, path) {
				tried = append(tried, []string{path, "--python", o.Python.Path})
			}
		}
	}
	for _, argv := range tried {
		// A pip before 22.3 does not know --python and fails here.
		out, err := p.capture(ctx, append(argv, "--version")...)
		m := pipVersion().FindSubmatch(out)
		own := len(argv) > 1 && argv[1] == "-m"
		if runner := runnerOf(m, own); err == nil && m != nil && (own || isFile(runner) && !plainfile.LeadsInto(o.Avoid, runner)) {
			p.argv, p.version = []string{o.Python.Path, "-c", guarded, runner}, string(m[1])
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, cancelled(ctx)
		}
	}
	hint := o.Python.Path + " -m ensurepip --user"
	if strings.HasPrefix(o.Python.Path, "/usr/bin/") {
		hint = "install pip with your system's package manager, for example `apt-get install python3-pip`"
	}
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the interpreter %s has no pip", o.Python.Path).WithHint(hint)
}

var pipVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^pip (\d+(?:\.\d+)*)\S* from (.+) \(python`) })

// runnerOf returns the program by which pip runs in another interpreter than its own, from what pipVersion has
// matched. It is empty if pip is one of this interpreter.
func runnerOf(m [][]byte, own bool) string {
	if own || m == nil {
		return ""
	}
	return filepath.Join(string(m[2]), "__pip-runner__.py")
}

// guarded is a program that runs pip and refuses to start other programs. pip starts them to build a package, or to
// fetch it from a repository. --only-binary does not keep it from that if the metadata of another package names the
// URL of a source. Its first argument is empty, or what runnerOf returns. The user's settings may name the program
// keyring for passwords. Where Python uses musl, as in Alpine Linux, pip asks the loader ld-musl-* for its version.
const guarded = `import os, runpy, sys

STARTS = "subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile"


def start_nothing(event, args):
    if event not in STARTS:
        return
    name = os.path.basename(str(args[0] if args else ""))
    if name != "keyring" and not (event == "subprocess.Popen" and name.startswith("ld-musl-") and len(args[1]) == 1):
        raise PermissionError("a package that has to be built is not installed")


sys.addaudithook(start_nothing)
runner = sys.argv.pop(1)
sys.argv[0] = "pip"
if runner:
    runpy.run_path(runner, run_name="__main__")
else:
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
`

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && filepath.IsAbs(path) && info.Mode().IsRegular()
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// environ returns the environment of pip: the user's, with index, proxy and certificates,
// but without variables of this program, of Python and of the loader.
func environ(env []string) []string {
	var keep []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc([]string{"PYTHON", "SANDBOX", "VIRTUAL_ENV", "LD_", "DYLD_"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
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

// capture runs a program and returns its output. The error contains its stderr.
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

// download fetches wheels into a directory: those of the lock, or without a lock the newest
// that fit the interpreter.
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

// install installs the wheels of the lock from a directory, and nothing else. It ignores the
// user's configuration of pip, because it fetches nothing.
func (p *pip) install(ctx context.Context, wheels string, lock []byte, target string) error {
	file := wheels + ".lock"
	if err := put(file, lock, 0o600); err != nil {
		return err
	}
	return p.run(ctx, "--isolated", "install", "--no-index", "--find-links", wheels, "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", file,
		"--no-compile", "--no-warn-script-location", "--progress-bar", "off", "--target", target)
}

// compile compiles all modules without running them. It ignores modules that do not
// compile, because some packages contain invalid ones on purpose.
func (p *pip) compile(ctx context.Context, target string) error {
	args := []string{p.python.Path, "-I", "-m", "compileall", "-q", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"}
	if minor(p.python.Version) >= 9 {
		args = append(args, "-s", target) // otherwise the compiled code contains the path of the temporary directory
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

// tail keeps the last bytes that are written to it.
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

// saidError is the error of a program that failed, with its stderr.
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

// logins matches the user and the password of a URL. pip quotes a proxy of its configuration if that cannot be parsed,
// so the password may have any characters.
var logins = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`://[^'"]*@`) })

func (e *saidError) Unwrap() error { return e.err }

func (e *saidError) exit() int {
	if x, ok := e.err.(interface{ ExitCode() int }); ok {
		return x.ExitCode()
	}
	return -1
}

const maxGist = 400

// gist returns pip's error in one line, without logins: its lines that begin with ERROR, or else its last
// line.
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
	s := logins().ReplaceAllString(strings.Join(said, "; "), "://***@")
	if len(s) > maxGist {
		s = s[:maxGist] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// failed returns the error of an installation that failed, with a hint.
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
		return e.WithHint("do not use the package; choose others with --upgrade or another lock")
	case unreachable().MatchString(text):
		e.Message = "the package index cannot be reached"
		return e.WithHint("check index and proxy in `pip config list`, or install later; everything else works without it")
	case strings.Contains(text, "(from versions: none)"): // without retries pip prints only this if the index cannot be reached
		e.Message = "the package index cannot be reached, or has no wheel that fits this interpreter: " + err.Error()
	}
	return e.WithHint("check index and proxy in `pip config list`")
}

var unreachable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)connection broken|NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|Name or service not known|Temporary failure in name resolution|Network is unreachable|Could not fetch URL|SSLError`)
})

func cancelled(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the installation was cancelled").WithCause(context.Cause(ctx))
}
