package host_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

// usualRules are the rules that the settings have by default.
var usualRules = []string{
	"docker ps", "docker logs", "docker images", "docker stats", "ls", "cat", "head", "tail", "df", "free", "uptime", "whoami", "hostname", "date", "uname", "systemctl status", "systemctl is-active",
	"pip list", "pip show", "npm list", "git status", "git log", "git diff", "git branch",
}

// TestUsualCommandsWork: within the places that they may read, commands of the default rules print what they print without walls.
func TestUsualCommandsWork(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Allowed = usualRules })
	b.file("project/package.json", `{"name": "all", "version": "1.0.0", "workspaces": ["part"]}`)
	b.file("project/part/package.json", `{"name": "part", "version": "1.0.0", "dependencies": {"dep": "^1.0.0"}}`)
	b.file("project/node_modules/dep/package.json", `{"name": "dep", "version": "1.2.3"}`)
	if err := os.Symlink("../part", filepath.Join(b.root, "project/node_modules/part")); err != nil {
		t.Fatal(err)
	}
	b.file("above/shared/package.json", `{"name": "shared", "version": "3.0.0", "dependencies": {"stored": "^4.0.0", "@x/y": "^5.0.0"}}`)
	b.file("store/node_modules/.pnpm/stored/node_modules/stored/package.json", `{"name": "stored", "version": "4.0.0"}`)
	b.file("above/node_modules/@x/y/package.json", `{"name": "@x/y", "version": "5.0.0"}`)
	b.file("alone/package.json", `{"name": "alone", "version": "1.0.0", "dependencies": {"@s/shared": "^3.0.0"}}`)
	b.file("alone/node_modules/@s/none", "")
	if err := os.MkdirAll(filepath.Join(b.root, "above/shared/node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	for at, to := range map[string]string{"alone/node_modules/@s/shared": "../../../above/shared", "above/shared/node_modules/stored": "../../../store/node_modules/.pnpm/stored/node_modules/stored"} {
		if err := os.Symlink(to, filepath.Join(b.root, at)); err != nil {
			t.Fatal(err)
		}
	}
	b.file("project/a", "its name is a flag of ls")
	b.file("project/part/text", "one\ntwo\n")
	b.file("project/la", "named as flags of ls")
	if err := os.Symlink("part/text", filepath.Join(b.root, "project/link")); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("git"); err == nil {
		b.git("project", "init", "-q")
		b.git("project", "add", ".")
		b.git("project", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
		b.file("project/part/text", "one\nthree\n")
	}
	home := "/"
	if u, err := user.Current(); err == nil {
		home = u.HomeDir
	}
	for _, line := range []string{
		"ls", "ls -la", "ls -I part", "ls -laR .", "ls -l link part/text", "ls --color=always /", "cat link", "cat part/text", "cat nothing", "cat /proc/version", "head -n 1 part/text", "tail -n1 part/text", "tail --pid=1 -n1 link",
		"df --output=source,target", "df --output=target .", "free --help", "uptime --help", "whoami", "hostname", "hostname -f", "hostname -I", "date +%Y", "date -r part/text", "date -d 2026-01-01", "uname -a",
		"docker ps", "docker images", "systemctl is-active dbus", "systemctl status", "pip list", "pip list --outdated", "pip show pip", "pip show -f pip", "npm list", "npm list --all", "npm list -g", "npm list -a",
		"git status", "git log -p", "git diff", "git branch -v",
	} {
		dir := filepath.Join(b.root, "project")
		if strings.HasPrefix(line, "npm") {
			dir = filepath.Join(dir, "part")
		}
		if line == "npm list -a" {
			dir = filepath.Join(b.root, "alone")
		}
		got, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: line, Dir: dir}, noMasks{})
		if err != nil {
			t.Logf("%s: %v", line, err) // the program is not there
			continue
		}
		plain := exec.CommandContext(t.Context(), "env", strings.Fields(line)...)
		plain.Dir = dir
		plain.Env = []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "LANG=C.UTF-8", "TERM=dumb", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_PAGER=cat",
			"PIP_CONFIG_FILE=/dev/null", "PIP_NO_INDEX=1", "PIP_NO_CACHE_DIR=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "NPM_CONFIG_UPDATE_NOTIFIER=false", "NPM_CONFIG_OFFLINE=true", "NPM_CONFIG_CACHE=" + filepath.Join(b.state, "npm"), "DOCKER_CONFIG=/nonexistent",
		}
		var out, errs strings.Builder
		plain.Stdout, plain.Stderr = &out, &errs
		_ = plain.Run()
		if got.Stdout != out.String() || got.Stderr != errs.String() || got.ExitCode != plain.ProcessState.ExitCode() {
			t.Errorf("%s: got %d, %q, %q, want %d, %q, %q", line, got.ExitCode, got.Stdout, got.Stderr, plain.ProcessState.ExitCode(), out.String(), errs.String())
		}
	}
	for _, line := range []string{"free", "uptime"} {
		if got, err := b.exec(line); err == nil && (!got.Success || got.Stderr != "") {
			t.Errorf("%s: got %+v, want what it shows", line, got)
		}
	}
}

// TestAPathBehindALink: the directory above a link's target decides what ".." behind the link names, not the link's.
func TestAPathBehindALink(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Allowed = usualRules })
	b.file(".aws/keys", "secret")
	b.file(".aws/sub/x", "")
	b.file("plain/keys", "plain")
	b.file("plain/sub/x", "")
	for link, target := range map[string]string{"hides": ".aws/sub", "shows": "plain/sub"} {
		if err := os.Symlink(target, filepath.Join(b.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	b.wantRefused("cat hides/../keys", sandboxmcp.CodeHostPathDenied)
	b.wantOutput("cat shows/../keys", "plain")
	_, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Command: "cat thread-self/../../../1/status", Dir: "/proc"}, noMasks{})
	wantCode(t, "a process behind a link of /proc", err, sandboxmcp.CodeHostPathDenied)
}
