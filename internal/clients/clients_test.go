package clients_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files")

// patience bounds a client's run. All of them take a few seconds.
const patience = 3 * time.Minute

// installed returns the path of a file of an installed client.
func installed(t *testing.T, parts ...string) string {
	t.Helper()
	root, err := filepath.Abs("../../.tools/clients")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(root, "ready"))
	testkit.Need(t, "clients", err == nil, "scripts/clients.sh has not installed them")
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the clients are installed without %s", path)
	}
	return path
}

var program struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if program.dir != "" {
		_ = os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

// built returns the program under test, built once, on a machine that can run
// code with it.
func built(t *testing.T) string {
	t.Helper()
	program.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		if program.dir, program.err = os.MkdirTemp("", "clients"); program.err != nil { //nolint:usetesting // outlives the test that makes it
			return
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-o", program.dir, "../../cmd/sandboxmcp")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			program.err = errors.New(string(out))
		}
	})
	if program.err != nil {
		t.Fatalf("the program cannot be built: %v", program.err)
	}
	bin := filepath.Join(program.dir, "sandboxmcp")
	doctor := exec.CommandContext(t.Context(), bin, "doctor")
	doctor.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	out, err := doctor.CombinedOutput()
	testkit.Need(t, "userns", err == nil, "no sandbox can be built here: "+lastLine(out))
	return bin
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// client is a run of an MCP client's program in a home directory of its own.
type client struct {
	t    *testing.T
	bin  string // the server that it starts
	home string
	env  []string
}

// newClient makes a home, and an environment in which nothing is of this machine
// but the interpreters. Whatever asks for another host is sent to proxy.
func newClient(t *testing.T, bin, proxy string) *client {
	t.Helper()
	home := t.TempDir()
	for _, dir := range []string{"work", "tmp"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &client{t: t, bin: bin, home: home, env: []string{
		"HOME=" + home, "TMPDIR=" + filepath.Join(home, "tmp"), "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TERM=dumb",
		"HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "http_proxy=" + proxy, "https_proxy=" + proxy,
		"NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
	}}
}

// write puts a file into the home and returns its path.
func (c *client) write(name string, data []byte) string {
	c.t.Helper()
	path := filepath.Join(c.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		c.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// run starts a program in the home's work directory, waits for its end and
// returns what it printed. What it started ends with it.
func (c *client) run(env []string, argv ...string) (stdout string, exit int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(c.home, "work")
	cmd.Env = append(append([]string{}, c.env...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		c.t.Fatalf("%s did not end within %s\n%s\n%s", argv[0], patience, &out, &errs)
	case err != nil && !errors.As(err, &ended):
		c.t.Fatalf("%s: %v\n%s", argv[0], err, &errs)
	}
	gone(c.t, c.bin)
	if c.t.Failed() || cmd.ProcessState.ExitCode() != 0 {
		c.t.Logf("%s said: %s", argv[0], &errs)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// gone waits for the end of every server of a client that has ended: it has what
// it needs to notice, and keeps files in the client's home until then.
func gone(t *testing.T, bin string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		links, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(links, func(link string) bool { exe, err := os.Readlink(link); return err == nil && exe == bin }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a server lives on after its client")
		}
	}
}

// changing is what differs from run to run and from machine to machine.
var changing = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`"isolation":\{"tier":"L.*?"policy_sha256":"[0-9a-f]{64}"\}`), `"isolation":ISOLATION`},
	{regexp.MustCompile(`"receipt":\{"payloadType":.*?\}\]\}`), `"receipt":RECEIPT`},
	{regexp.MustCompile(`"signature":"[A-Za-z0-9+/=]{88}"`), `"signature":"SIGNATURE"`},
	{regexp.MustCompile(`"(duration_ms|peak_ram_mb|cpu_seconds|peak_tasks|wall_seconds)":[0-9.e-]+`), `"$1":N`},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), `REQUEST`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+(/files/\S+?\?sig=)[A-Za-z0-9_-]{43}`), `127.0.0.1:PORT${1}SIGNATURE`},
	{regexp.MustCompile(`sess_[0-9a-f]{24}`), `SESSION`},
	{regexp.MustCompile(`run_\d{8}T\d{6}Z_[0-9a-f]{8}`), `RUN`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), `TIME`},
	{regexp.MustCompile(`/\S*/mcp-sandboxmcp-blob-\w+-\w+\.png`), `COPY.png`},
	// Where a long text is cut depends on the digits of the times beside it.
	{regexp.MustCompile(`((?:\d+\\n){20})(?:\d+\\n)+\d*(\\n\[… )\d+( bytes left out, whole at \S+ …\]\\n)\d*\\n(?:\d+\\n)+((?:\d+\\n){20})`), `$1 HEAD $2 N $3 TAIL $4`},
}

func steady(text string) string {
	for _, c := range changing {
		text = c.find.ReplaceAllString(text, c.put)
	}
	return text
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("what the model reads is not %s (-want +got); run with -update if it should be:\n%s", file, d)
	}
}

// arch is the processor's name in the names of npm packages.
func arch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}
