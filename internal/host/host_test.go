package host_test

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// noMasks masks nothing.
type noMasks struct{}

func (noMasks) Plain(string, string) error { return nil }
func (noMasks) Text(s string) string       { return s }

var caller = sandboxmcp.Caller{Namespace: "default", Actor: "test"}

// bed is a host with one root and a state directory.
type bed struct {
	*host.Host
	t     *testing.T
	root  string
	state string
	audit *audit.Log
}

func open(t *testing.T, change ...func(*host.Config)) *bed {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, root: filepath.Join(dir, "root"), state: filepath.Join(dir, "state")}
	if err := os.Mkdir(b.root, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Dir: b.state})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if b.audit, err = audit.Open(t.Context(), s, audit.Config{}); err != nil {
		t.Fatal(err)
	}
	c := host.Config{
		Enabled: true, Allowed: []string{"ls", "cat", "echo ok", "sleep", "git log", "git diff", "git status", "git branch", "hostname", "date"}, Blocked: []string{"rm", "sudo", "chown -R"},
		Roots: []string{b.root}, Own: []string{s.Dir()}, Store: s, Audit: b.audit, Key: func(purpose string) ([]byte, error) { return []byte(purpose), nil },
	}
	for _, f := range change {
		f(&c)
	}
	if b.Host, err = host.New(c); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) file(name, content string) string {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bed) exec(line string) (sandboxmcp.HostOutput, error) {
	b.t.Helper()
	return b.Exec(b.t.Context(), caller, sandboxmcp.HostCommand{Command: line, Timeout: 20 * time.Second}, noMasks{})
}

func (b *bed) wantOutput(line, want string) {
	b.t.Helper()
	out, err := b.exec(line)
	if err != nil || out.Stdout != want || !out.Success {
		b.t.Errorf("%s: got %+v, %v, want %q", line, out, err, want)
	}
}

func (b *bed) wantRefused(line string, want sandboxmcp.Code) {
	b.t.Helper()
	out, err := b.exec(line)
	wantCode(b.t, line, err, want)
	if err == nil {
		b.t.Errorf("%s: got %+v", line, out)
	}
}

func wantCode(t *testing.T, what string, err error, want sandboxmcp.Code) {
	t.Helper()
	if got := sandboxmcp.CodeOf(err); got != want {
		t.Errorf("%.60q: got %v with the code %q, want %q", what, err, got, want)
	}
}

// TestFilesAreNoRepository: a program may write files with the names of a bare repository, whose
// configuration names programs that git executes.
func TestFilesAreNoRepository(t *testing.T) {
	_, err := exec.LookPath("git")
	testkit.Need(t, "git", err == nil, "git")
	b := open(t, func(c *host.Config) { c.Allowed = append(c.Allowed, "git rev-parse") })
	for name, content := range map[string]string{
		"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\tbare = true\n[diff \"x\"]\n\ttextconv = id\n", "info/attributes": "* diff=x\n", "refs/heads/x": "", "objects/info/alternates": "",
	} {
		b.file(name, content)
	}
	if out, err := b.exec("git rev-parse --git-dir"); err != nil || out.Success || !strings.Contains(out.Stderr, "bare repository") {
		t.Errorf("got %+v, %v, want that git uses no such repository", out, err)
	}
	b.wantRefused("git branch", sandboxmcp.CodeHostPathDenied)
}

func TestRulesAllowPrograms(t *testing.T) {
	b := open(t)
	a := b.file("a.txt", "content\n")
	b.wantOutput("ls "+b.root, "a.txt\n")
	b.wantOutput("cat "+a, "content\n")
	b.wantOutput("cat 'a.txt'", "content\n")
	b.wantOutput("echo ok then", "ok then\n")
	out, err := b.exec("ls " + a + ".none")
	if err != nil || out.Success || out.ExitCode == 0 || out.ExitCode == -1 || out.Stderr == "" {
		t.Errorf("a command that fails: got %+v, %v, want its exit code", out, err)
	}
	for line, code := range map[string]sandboxmcp.Code{
		"echo no": sandboxmcp.CodeHostAccessDenied, "touch x": sandboxmcp.CodeHostAccessDenied, "./ls": sandboxmcp.CodeHostAccessDenied, b.root + "/ls": sandboxmcp.CodeHostAccessDenied,
		"rm --help": sandboxmcp.CodeHostAccessBlocked, "RM --help": sandboxmcp.CodeHostAccessBlocked, "/bin/rm --help": sandboxmcp.CodeHostAccessBlocked, "sudo ls": sandboxmcp.CodeHostAccessBlocked, "chown -vR a b": sandboxmcp.CodeHostAccessBlocked,
		"chown a b": sandboxmcp.CodeHostAccessDenied, "env ls": sandboxmcp.CodeHostAccessDenied, "bash -c ls": sandboxmcp.CodeHostAccessDenied, "ls; id": sandboxmcp.CodeInvalidArgument, "ls $(id)": sandboxmcp.CodeInvalidArgument,
		"git log --output=x": sandboxmcp.CodeHostAccessDenied, "git diff --no-index --output=x a b": sandboxmcp.CodeHostAccessDenied, "git -c a=b log": sandboxmcp.CodeHostAccessDenied, "git log --ext-diff": sandboxmcp.CodeHostAccessDenied,
		"git log -O x": sandboxmcp.CodeHostAccessDenied, "git log -L -- --output=x": sandboxmcp.CodeHostAccessDenied, "git log -S -- -Ox": sandboxmcp.CodeHostAccessDenied, "git log --grep -- --output=x": sandboxmcp.CodeHostAccessDenied,
		"git branch new": sandboxmcp.CodeHostAccessDenied, "git branch -D x": sandboxmcp.CodeHostAccessDenied, "hostname evil": sandboxmcp.CodeHostAccessDenied, "hostname -F x": sandboxmcp.CodeHostAccessDenied,
		"date -s 1": sandboxmcp.CodeHostAccessDenied, "date 01010101": sandboxmcp.CodeHostAccessDenied, "date --set=1": sandboxmcp.CodeHostAccessDenied, "date -us 1": sandboxmcp.CodeHostAccessDenied,
	} {
		b.wantRefused(line, code)
	}
	b.wantOutput("date -u -d @0 +%Y", "1970\n")
}

// TestTheProgramComesFromTheRule: neither PATH nor the directory of a command chooses it.
func TestTheProgramComesFromTheRule(t *testing.T) {
	b := open(t)
	b.file("ls", "#!/bin/sh\necho evil\n")
	if err := os.Chmod(filepath.Join(b.root, "ls"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", b.root)
	out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "ls", Dir: b.root}, noMasks{})
	if err != nil || strings.Contains(out.Stdout, "evil") {
		t.Errorf("got %+v, %v, want the machine's ls", out, err)
	}
}

// TestAProgramThatWasReplacedIsNotExecuted: what is executed is the file that the rule was made
// for, whatever its path leads to later.
func TestAProgramThatWasReplacedIsNotExecuted(t *testing.T) {
	dir := t.TempDir()
	tool, link := filepath.Join(dir, "tool"), filepath.Join(dir, "link")
	script := func(text string) {
		t.Helper()
		if err := os.WriteFile(tool+".new", []byte("#!/bin/sh\necho "+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tool+".new", tool); err != nil {
			t.Fatal(err)
		}
	}
	script("good")
	if err := os.Symlink(tool, link); err != nil {
		t.Fatal(err)
	}
	toRM := filepath.Join(dir, "harmless")
	if err := os.Symlink("/bin/rm", toRM); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Allowed = []string{tool, link, toRM} })
	b.wantOutput(tool, "good\n")
	b.wantOutput(link, "good\n")
	b.wantRefused(toRM+" --help", sandboxmcp.CodeHostAccessBlocked)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/echo", link); err != nil {
		t.Fatal(err)
	}
	b.wantOutput(link, "good\n")
	script("evil")
	b.wantRefused(tool, sandboxmcp.CodeHostAccessDenied)
	b.wantRefused(link, sandboxmcp.CodeHostAccessDenied)
	script("good")
	b.wantRefused(tool, sandboxmcp.CodeHostAccessDenied)
}

func TestSecretsAreNoArguments(t *testing.T) {
	b := open(t)
	secret := b.file("project/.env", "CANARY")
	b.file("project/deploy.key", "CANARY")
	b.file("home/.local/state/sandboxmcp/swept", "CANARY") // of another server
	b.file("home/state/sandboxmcp.db", "CANARY")
	if err := os.Symlink(secret, filepath.Join(b.root, "notes.txt")); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"cat " + secret, "cat project/.env", "cat ./project/../project/.env", "cat " + b.root + "/notes.txt", "cat notes.txt", "cat project/deploy.key", "cat home/.local/state/sandboxmcp/swept", "cat home/state/sandboxmcp.db", "cat " + b.state + "/sandboxmcp.db", "ls " + b.state, "cat /etc/shadow",
		"cat /proc/1/environ", "cat /proc/self/root/etc/shadow", "cat /proc/kcore", "git log --format=%H -- " + secret, "git diff HEAD:project/.env x/y",
	} {
		out, err := b.exec(line)
		if code := sandboxmcp.CodeOf(err); code != sandboxmcp.CodeHostPathDenied || strings.Contains(out.Stdout, "CANARY") {
			t.Errorf("%s: got %+v, %v, want host_path_denied", line, out, err)
		}
	}
	if _, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "ls", Dir: b.state}, noMasks{}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied {
		t.Errorf("cwd in the state directory: got %v, want host_path_denied", err)
	}
}

func TestCommandsAreBounded(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Allowed = append(c.Allowed, "yes", "printenv") })
	out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "sleep 1000", Timeout: 50 * time.Millisecond}, noMasks{})
	if err != nil || out.Success || out.ExitCode != -1 || !strings.Contains(out.Stderr, "timed out") {
		t.Errorf("a command without an end: got %+v, %v, want it stopped", out, err)
	}
	out, err = b.exec("yes")
	if err != nil || out.ExitCode != -1 || len(out.Stdout) > 70_000 || !out.StdoutTruncated || !strings.Contains(out.Stderr, "Stopped at") {
		t.Errorf("output without an end: got %d bytes, exit %d, %q, %v, want it stopped", len(out.Stdout), out.ExitCode, out.Stderr, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = b.Exec(ctx, caller, sandboxmcp.HostCommand{Command: "sleep 1000"}, noMasks{}); err == nil {
		t.Error("a request that was cancelled: got no error, want one")
	}
	t.Setenv("HOST_TEST_SECRET", "CANARY")
	if out, err = b.exec("printenv"); err != nil || strings.Contains(out.Stdout, "CANARY") || !strings.Contains(out.Stdout, "PATH=") {
		t.Errorf("environment: got %q, %v, want the fixed one", out.Stdout, err)
	}
	for _, timeout := range []time.Duration{-1, 2 * time.Hour} {
		_, err = b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "ls", Timeout: timeout}, noMasks{})
		wantCode(t, timeout.String(), err, sandboxmcp.CodeInvalidArgument)
	}
	_, err = b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "ls", Dir: "relative"}, noMasks{})
	wantCode(t, "a relative cwd", err, sandboxmcp.CodeInvalidArgument)
	_, err = b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "ls", Argv: make([]string, 5000)}, noMasks{})
	wantCode(t, "a huge argv", err, sandboxmcp.CodeInvalidArgument)
	_, err = b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "ls", Argv: []string{"ls", "a\x00b"}}, noMasks{})
	wantCode(t, "NUL in argv", err, sandboxmcp.CodeInvalidArgument)
}

func TestPersonsAllowCommands(t *testing.T) {
	b := open(t)
	ask := func(c sandboxmcp.Caller, pattern string) (sandboxmcp.AccessAnswer, error) {
		return b.Request(t.Context(), c, sandboxmcp.HostAsk{Pattern: pattern, Reason: "to greet"}, noMasks{})
	}
	b.wantRefused("echo hello", sandboxmcp.CodeHostAccessDenied)
	a, err := ask(caller, "echo hello")
	if err != nil || a.Status != sandboxmcp.ApprovalPending || a.Pattern != "echo hello" || !strings.Contains(a.HowToApprove, "host access approve "+a.ApprovalID) {
		t.Fatalf("got %+v, %v, want a pending question", a, err)
	}
	b.wantRefused("echo hello", sandboxmcp.CodeHostAccessDenied)
	other := sandboxmcp.Caller{Namespace: "other", Actor: "cli"}
	if _, err := b.Decide(t.Context(), other, sandboxmcp.AccessDecision{ID: a.ApprovalID}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("decided in another namespace: got %v, want request_not_found", err)
	}
	if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{ID: a.ApprovalID, Scope: sandboxmcp.GrantAlways}); err != nil {
		t.Fatal(err)
	}
	b.wantOutput("echo hello", "hello\n")
	for _, line := range []string{"echo hello more", "echo other", "echo", "/bin/echo-hello"} {
		b.wantRefused(line, sandboxmcp.CodeHostAccessDenied)
	}
	if _, err := b.Exec(t.Context(), other, sandboxmcp.HostCommand{Command: "echo hello"}, noMasks{}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostAccessDenied {
		t.Errorf("another namespace: got %v, want host_access_denied", err)
	}
	if l, err := b.List(t.Context(), "other"); err != nil || len(l.Approved)+len(l.Pending) != 0 {
		t.Errorf("another namespace lists %+v, %v, want nothing of this one", l, err)
	}
	if _, err := b.Revoke(t.Context(), caller, "echo hello"); err != nil {
		t.Fatal(err)
	}
	b.wantRefused("echo hello", sandboxmcp.CodeHostAccessDenied)

	no, err := ask(caller, "echo no")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{ID: no.ApprovalID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	if again, err := ask(caller, "echo  no"); err != nil || again.Status != sandboxmcp.ApprovalDenied || again.ApprovalID != no.ApprovalID {
		t.Errorf("a denied pattern that is asked again: got %+v, %v, want it denied", again, err)
	}
	for pattern, code := range map[string]sandboxmcp.Code{
		"rm x": sandboxmcp.CodeHostAccessBlocked, "rm *": sandboxmcp.CodeHostAccessBlocked, "/bin/rm x": sandboxmcp.CodeHostAccessBlocked, "*": sandboxmcp.CodeInvalidArgument, "": sandboxmcp.CodeInvalidArgument, "a\nb": sandboxmcp.CodeInvalidArgument,
		"bash -c *": sandboxmcp.CodeInvalidArgument, "a; b": sandboxmcp.CodeInvalidArgument,
	} {
		_, err := ask(caller, pattern)
		wantCode(t, pattern, err, code)
		_, err = b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: pattern}})
		wantCode(t, pattern+" by a person", err, code)
	}
	if a, err := ask(caller, "ls -l"); err != nil || !a.Approved {
		t.Errorf("a command that is allowed: got %+v, %v, want it approved", a, err)
	}
	if _, err := ask(caller, "make test"); err != nil {
		t.Fatal(err)
	}
	if l, err := b.List(t.Context(), ""); err != nil || len(l.Pending) != 1 || l.Pending[0].Warning == "" {
		t.Errorf("a dangerous command: got %+v, %v, want it with a warning", l.Pending, err)
	}
}

func TestOnce(t *testing.T) {
	b := open(t)
	if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: "echo hello"}, Scope: sandboxmcp.GrantOnce}); err != nil {
		t.Fatal(err)
	}
	b.wantOutput("echo hello", "hello\n")
	b.wantRefused("echo hello", sandboxmcp.CodeHostAccessDenied)
}

func TestAutoApproveSaysSo(t *testing.T) {
	b := open(t, func(c *host.Config) { c.AutoApprove = true })
	out, err := b.exec("echo anything")
	if err != nil || !strings.Contains(out.Warning, "host_auto_approve") || out.Stdout != "anything\n" {
		t.Errorf("got %+v, %v, want it executed, with a warning", out, err)
	}
	b.wantRefused("rm --help", sandboxmcp.CodeHostAccessBlocked)
}

func TestOffByDefault(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Enabled = false })
	a := b.file("a.txt", "x")
	_, err := b.exec("ls")
	wantCode(t, "exec", err, sandboxmcp.CodeHostAccessDisabled)
	_, err = b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: "echo"}, noMasks{})
	wantCode(t, "request", err, sandboxmcp.CodeHostAccessDisabled)
	_, err = b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: a}, noMasks{})
	wantCode(t, "read", err, sandboxmcp.CodeHostAccessDisabled)
	_, err = b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: a, Overwrite: true}, noMasks{})
	wantCode(t, "write", err, sandboxmcp.CodeHostAccessDisabled)
	_, err = b.Files.List(t.Context(), caller, b.root, noMasks{})
	wantCode(t, "list", err, sandboxmcp.CodeHostAccessDisabled)
	_, err = b.Files.Copy(t.Context(), caller, sandboxmcp.HostCopy{Source: a}, noMasks{}, nil)
	wantCode(t, "copy", err, sandboxmcp.CodeHostAccessDisabled)
	if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: "echo"}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostAccessDisabled {
		t.Errorf("decide: got %v, want host_access_disabled", err)
	}
}

// TestEveryActIsRecorded: with intent and outcome, also if it was refused, and never with
// content.
func TestEveryActIsRecorded(t *testing.T) {
	b := open(t)
	a := b.file("a.txt", "CANARY")
	_, _ = b.exec("cat " + a)
	_, _ = b.exec("rm --help")
	_, _ = b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: a}, noMasks{})
	_, _ = b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: a, Content: "CANARY", Overwrite: true}, noMasks{})
	_, _ = b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: "/etc/passwd"}, noMasks{})
	page, err := b.audit.List(t.Context(), "default", sandboxmcp.AuditQuery{OldestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range page.Entries {
		line := e.Action + " " + e.Phase
		if e.Success != nil && !*e.Success {
			line += " failed"
		}
		got = append(got, line)
		if strings.Contains(e.Detail, "CANARY") {
			t.Errorf("%s: got content in %q, want none", line, e.Detail)
		}
	}
	want := "host_exec intent, host_exec outcome, host_exec outcome failed, host_file intent, host_file outcome, host_file intent, host_file outcome, host_file intent, host_file outcome failed"
	if have := strings.Join(got, ", "); have != want {
		t.Errorf("record: got %s, want %s", have, want)
	}
}

// TestTheRecordNamesWhatWasDone: padding that means nothing does not keep the rest of a command or a path out of the record.
func TestTheRecordNamesWhatWasDone(t *testing.T) {
	b := open(t)
	a := b.file("a.txt", "x")
	if _, err := b.exec("cat " + strings.Repeat("/", 600) + a); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: b.root + strings.Repeat("/.", 600) + "/a.txt"}, noMasks{}); err != nil {
		t.Fatal(err)
	}
	long := b.file(strings.Repeat("long/", 60)+"name.txt", "x")
	if _, err := b.read(long); err != nil {
		t.Fatal(err)
	}
	page, err := b.audit.List(t.Context(), "default", sandboxmcp.AuditQuery{OldestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for _, e := range page.Entries {
		if e.Phase == sandboxmcp.PhaseIntent {
			got = append(got, e.Metadata["command"], e.Metadata["path"])
		}
	}
	want := []any{"cat " + strings.Repeat("/", 600) + a, nil, nil, a, nil, long}
	if !slices.Equal(got, want) {
		t.Errorf("record: got %q, want %q", got, want)
	}
}

// TestTheRecordNamesWhatWasRefused: of a refused command the record has every word, too.
func TestTheRecordNamesWhatWasRefused(t *testing.T) {
	b := open(t)
	line := "touch " + strings.Repeat("x", 600) + " what matters"
	b.wantRefused(line, sandboxmcp.CodeHostAccessDenied)
	page, err := b.audit.List(t.Context(), "default", sandboxmcp.AuditQuery{})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Metadata["command"] != line {
		t.Errorf("record: got %+v, %v, want the whole command", page.Entries, err)
	}
}

// starMasks masks one secret.
type starMasks struct{ secret string }

func (starMasks) Plain(string, string) error { return nil }
func (m starMasks) Text(s string) string     { return strings.ReplaceAll(s, m.secret, "***") }

// TestSecretsAreMaskedInBinaryFiles: a secret beside a zero byte is masked before the file becomes
// base64.
func TestSecretsAreMaskedInBinaryFiles(t *testing.T) {
	b := open(t)
	path := b.file("dump", "\x00\xffsecret-value\x00")
	got, err := b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: path}, starMasks{"secret-value"})
	if err != nil {
		t.Fatal(err)
	}
	content, err := base64.StdEncoding.DecodeString(got.Content)
	if err != nil || got.Encoding != "base64" || string(content) != "\x00\xff***\x00" {
		t.Errorf("got %q, %q, %v, want the secret masked", got.Encoding, content, err)
	}
}

// TestAProgramIsJudgedByWhatItsNameLeadsTo: a link to an interpreter has the warning of the interpreter, and no free words.
func TestAProgramIsJudgedByWhatItsNameLeadsTo(t *testing.T) {
	b := open(t)
	bin := b.file("bin/perl", "#!/bin/true\n")
	if err := errors.Join(os.Chmod(bin, 0o755), os.Symlink(bin, filepath.Join(b.root, "tool"))); err != nil {
		t.Fatal(err)
	}
	ask := func(pattern string) error {
		_, err := b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: pattern}, noMasks{})
		return err
	}
	tool := filepath.Join(b.root, "tool")
	if err := ask(tool + " *"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want the free word refused", err)
	}
	if err := ask(tool + " file"); err != nil {
		t.Fatal(err)
	}
	if l, err := b.List(t.Context(), ""); err != nil || len(l.Pending) != 1 || !strings.Contains(l.Pending[0].Warning, "perl") {
		t.Errorf("got %+v, %v, want a warning that names what the link leads to", l.Pending, err)
	}
}

// TestASecretAtTheEndOfWhatIsKeptIsNotShown: of much output a part is kept, and its end may be within a secret. Masks can be so short that
// this end is shown.
func TestASecretAtTheEndOfWhatIsKeptIsNotShown(t *testing.T) {
	b := open(t)
	secret := "secret-value" + strings.Repeat("0123456789", 5)
	b.file("many", strings.Repeat(secret+"\n", 4000))
	got, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "cat many"}, starMasks{secret})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Trim(got.Stdout, "*\n") != "" || got.Stdout == "" || !got.StdoutTruncated {
		t.Errorf("got %d bytes that end with %q, want masks alone", len(got.Stdout), got.Stdout[max(0, len(got.Stdout)-80):])
	}
}

// TestAProgramThatWasReplacedIsNotExecutedByTheNextServer: a grant outlives the server, which has remembered the program file.
func TestAProgramThatWasReplacedIsNotExecutedByTheNextServer(t *testing.T) {
	var settings host.Config
	listed := filepath.Join(t.TempDir(), "listed")
	if err := os.WriteFile(listed, []byte("#!/bin/sh\necho good\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) {
		c.Allowed, c.Roots = []string{listed}, append(c.Roots, filepath.Dir(listed))
		settings = *c
	})
	next := func() {
		t.Helper()
		var err error
		if b.Host, err = host.New(settings); err != nil {
			t.Fatal(err)
		}
	}
	tool, link := b.file("tool", "#!/bin/sh\necho good\n"), filepath.Join(b.root, "link")
	if err := errors.Join(os.Chmod(tool, 0o755), os.Symlink(tool, link)); err != nil {
		t.Fatal(err)
	}
	allow := func(command string) {
		t.Helper()
		if _, err := b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: command}}); err != nil {
			t.Fatal(err)
		}
	}
	allow(tool)
	allow(link)
	b.wantOutput(tool, "good\n")
	next()
	b.wantOutput(tool, "good\n")
	b.wantOutput(link, "good\n")
	if err := b.write(tool, "#!/bin/sh\necho evil\n"); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(tool, sandboxmcp.CodeHostAccessDenied)
	next()
	b.wantRefused(tool, sandboxmcp.CodeHostAccessDenied)
	b.wantRefused(link, sandboxmcp.CodeHostAccessDenied)
	if _, err := b.Revoke(t.Context(), caller, tool); err != nil {
		t.Fatal(err)
	}
	allow(tool)
	b.wantOutput(tool, "evil\n") // a person has allowed the new file
	if err := errors.Join(os.Remove(link), os.Symlink("/bin/echo", link)); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(link, sandboxmcp.CodeHostAccessDenied)
	if err := b.write(tool, "#!/bin/sh\necho more\n"); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(tool, sandboxmcp.CodeHostAccessDenied)
	if _, err := b.Revoke(t.Context(), caller, tool); err != nil {
		t.Fatal(err)
	}
	allow(tool)
	b.wantOutput(tool, "more\n") // also without another server
	wantCode(t, "write the program of a rule", b.write(listed, "#!/bin/sh\necho evil\n"), sandboxmcp.CodeHostPathDenied)
	b.wantOutput(listed, "good\n")
}

// TestAnApprovedCommandHasADirectoryOfRoots: a person who allows a command is not asked about its directory, so a caller cannot name
// one outside of host_roots.
func TestAnApprovedCommandHasADirectoryOfRoots(t *testing.T) {
	b := open(t)
	sub, outside := filepath.Join(b.root, "sub"), t.TempDir()
	if err := errors.Join(os.Mkdir(sub, 0o755), os.Symlink(outside, filepath.Join(b.root, "out"))); err != nil {
		t.Fatal(err)
	}
	person := sandboxmcp.Caller{Namespace: caller.Namespace, Actor: "cli"}
	tests := b.file("pytest", "#!/bin/sh\n") // a program that executes code of its directory, in its own process
	if err := os.Chmod(tests, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"bash -c id", "wc -c", tests} {
		if _, err := b.Decide(t.Context(), person, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: pattern}}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command, dir string) error {
		_, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: command, Dir: dir}, noMasks{})
		return err
	}
	for _, dir := range []string{outside, "/", filepath.Join(b.root, "out"), filepath.Dir(b.root)} {
		wantCode(t, dir, run("bash -c id", dir), sandboxmcp.CodeHostPathDenied)
		wantCode(t, dir, run(tests, dir), sandboxmcp.CodeHostPathDenied)
		wantCode(t, dir, run("wc -c", dir), sandboxmcp.CodeHostPathDenied)
	}
	for command, dir := range map[string]string{"bash -c id": sub, "wc -c": sub, tests: sub, "ls": outside} {
		if err := run(command, dir); err != nil {
			t.Errorf("%s in %s: got %v, want no error", command, dir, err)
		}
	}
	if err := run("bash -c id", ""); err != nil {
		t.Errorf("without a directory: got %v, want no error", err)
	}
}
