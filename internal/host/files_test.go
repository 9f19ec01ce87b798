package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

func (b *bed) read(path string) (sandboxmcp.HostContent, error) {
	b.t.Helper()
	return b.Files.Read(b.t.Context(), caller, sandboxmcp.HostRead{Path: path}, noMasks{})
}

func (b *bed) write(path, content string) error {
	b.t.Helper()
	_, err := b.Files.Write(b.t.Context(), caller, sandboxmcp.HostWrite{Path: path, Content: content, Overwrite: true}, noMasks{})
	return err
}

func (b *bed) copy(source, destination string) (sandboxmcp.HostCopied, error) {
	b.t.Helper()
	return b.Files.Copy(b.t.Context(), caller, sandboxmcp.HostCopy{Source: source, Destination: destination}, noMasks{}, nil)
}

func TestFilesBelowARoot(t *testing.T) {
	b := open(t)
	a := b.file("sub/a.txt", "0123456789")
	if err := os.Chmod(a, 0o640); err != nil {
		t.Fatal(err)
	}
	got, err := b.read(a)
	if err != nil || got.Content != "0123456789" || got.Truncated || got.Size != 10 || got.Encoding != "utf-8" {
		t.Errorf("read: got %+v, %v", got, err)
	}
	got, err = b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: a, MaxBytes: 3, Offset: 4}, noMasks{})
	if err != nil || got.Content != "456" || !got.Truncated || got.Size != 10 {
		t.Errorf("a part: got %+v, %v", got, err)
	}
	got, err = b.Files.Read(t.Context(), caller, sandboxmcp.HostRead{Path: b.file("umlaut", "aä"), MaxBytes: 2}, noMasks{})
	if err != nil || got.Content != "a" || got.Encoding != "utf-8" || !got.Truncated {
		t.Errorf("a character that is cut: got %+v, %v, want it left out", got, err)
	}
	if got, err = b.read(b.file("bin", "\xff\x00")); err != nil || got.Content != "/wA=" || got.Encoding != "base64" {
		t.Errorf("no text: got %+v, %v, want base64", got, err)
	}
	if err := b.write(a, "new"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(a)
	if err != nil || info.Mode().Perm() != 0o640 || info.Size() != 3 {
		t.Errorf("after a write: got %v, %v, want the same mode", info, err)
	}
	_, err = b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: a, Content: "x"}, noMasks{})
	wantCode(t, "a file that is there", err, sandboxmcp.CodeFileExists)
	if _, err = b.Files.Write(t.Context(), caller, sandboxmcp.HostWrite{Path: filepath.Join(b.root, "fresh"), Content: "x"}, noMasks{}); err != nil {
		t.Error(err)
	}
	l, err := b.Files.List(t.Context(), caller, b.root, noMasks{})
	if err != nil || !slices.ContainsFunc(l.Entries, func(e sandboxmcp.HostEntry) bool { return e.Name == "sub" && e.Type == "dir" }) || !strings.Contains(l.Listing, "fresh") || len(l.Entries) != 4 {
		t.Errorf("list: got %+v, %v", l, err)
	}
	for path, code := range map[string]sandboxmcp.Code{b.root + "/none": sandboxmcp.CodeNotFound, b.root + "/none/x": sandboxmcp.CodeNotFound, b.root: sandboxmcp.CodeHostPathDenied, b.root + "/sub": sandboxmcp.CodeHostPathDenied} {
		_, err := b.read(path)
		wantCode(t, path, err, code)
	}
	for _, r := range []sandboxmcp.HostRead{{Path: a, MaxBytes: -1}, {Path: a, Offset: -1}, {Path: a, MaxBytes: 1 << 40}} {
		_, err := b.Files.Read(t.Context(), caller, r, noMasks{})
		wantCode(t, "bounds", err, sandboxmcp.CodeInvalidArgument)
	}
}

func TestNothingOutsideOfTheRoots(t *testing.T) {
	b := open(t)
	out := b.root + "-evil"
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(out, "secret.txt")
	if err := os.WriteFile(secret, []byte("CANARY"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": secret, "dirlink": out, "dangling": out + "/made", "inlink": b.file("sub/in.txt", "x"), "indir": b.root + "/sub"} {
		if err := os.Symlink(to, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(secret, filepath.Join(b.root, "hard")); err != nil {
		t.Fatal(err)
	}
	r := b.root
	for path, code := range map[string]sandboxmcp.Code{
		secret: sandboxmcp.CodeHostPathDenied, r + "/../root-evil/secret.txt": sandboxmcp.CodeHostPathDenied, r + "/link": sandboxmcp.CodeHostPathDenied, r + "/dirlink/secret.txt": sandboxmcp.CodeHostPathDenied,
		r + "/hard": sandboxmcp.CodeHostPathDenied, r + "/inlink": sandboxmcp.CodeHostPathDenied, r + "/indir/in.txt": sandboxmcp.CodeHostPathDenied, "/proc/self/root" + secret: sandboxmcp.CodeHostPathDenied,
		"/proc/self/root" + r + "/sub/in.txt": sandboxmcp.CodeHostPathDenied, "/etc/passwd": sandboxmcp.CodeHostPathDenied, "sub/in.txt": sandboxmcp.CodeHostPathDenied, "~/x": sandboxmcp.CodeHostPathDenied,
		"file://" + secret: sandboxmcp.CodeHostPathDenied, "": sandboxmcp.CodeInvalidArgument, r + "/sub/in.txt\x00.png": sandboxmcp.CodeInvalidArgument, r + "/a\nb": sandboxmcp.CodeInvalidArgument, r + "/" + strings.Repeat("x", 5000): sandboxmcp.CodeInvalidArgument,
	} {
		got, err := b.read(path)
		wantCode(t, path, err, code)
		if strings.Contains(got.Content, "CANARY") {
			t.Errorf("%s: got the secret", path)
		}
		if path != r+"/hard" {
			_, err = b.copy(path, "x")
			wantCode(t, "copy "+path, err, code)
		}
	}
	for _, path := range []string{out + "/x", r + "/../x", r + "/dangling", r + "/dirlink/x", r + "/link", r + "/hard", r + "/indir/y", r} {
		wantCode(t, "write "+path, b.write(path, "pwned"), sandboxmcp.CodeHostPathDenied)
	}
	for _, path := range []string{out, r + "/dirlink", r + "/indir", "/", r + "/.."} {
		_, err := b.Files.List(t.Context(), caller, path, noMasks{})
		wantCode(t, "list "+path, err, sandboxmcp.CodeHostPathDenied)
	}
	names, err := os.ReadDir(out)
	if content, _ := os.ReadFile(secret); err != nil || len(names) != 1 || string(content) != "CANARY" {
		t.Errorf("outside: got %v, %q, %v, want it unchanged", names, content, err)
	}
}

// TestPathsThatAreSwapped: a directory that becomes a link while it is used leads nowhere.
func TestPathsThatAreSwapped(t *testing.T) {
	b := open(t)
	out := b.root + "-evil"
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out+"/f", []byte("CANARY"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.file("dir/f", "mine")
	dir, aside := b.root+"/dir", b.root+"/aside"
	end := b.turn(func() {
		_ = os.Rename(dir, aside)
		_ = os.Symlink(out, dir)
		_ = os.Remove(dir)
		_ = os.Rename(aside, dir)
	})
	for range 300 {
		if got, err := b.read(dir + "/f"); err == nil && got.Content != "mine" && got.Content != "written" {
			t.Errorf("got %q, want no file of another directory", got.Content)
		}
		_ = b.write(dir+"/f", "written")
		_ = b.write(dir+"/g", "written")
	}
	end()
	if content, err := os.ReadFile(out + "/f"); string(content) != "CANARY" || err != nil {
		t.Errorf("outside: got %q, %v, want it unchanged", content, err)
	}
	if _, err := os.Stat(out + "/g"); err == nil {
		t.Error("a file was made outside")
	}
}

func TestSecretsAndWhatProgramsObeyAreRefused(t *testing.T) {
	b := open(t)
	secrets := []string{
		".env", ".env.local", "prod.env", ".ENV", ".ssh/id_rsa", ".ssh/authorized_keys", ".aws/credentials", ".config/gcloud/credentials.db", ".kube/config", ".docker/config.json", ".netrc", ".npmrc", "npm/etc/npmrc", ".pypirc", "pip.conf", ".pip/pip.conf", ".pg_service.conf", ".postgresql/own", "id_ed25519", "deep/id_rsa_work",
		"server.key", "cert.pem", "a.p12", "terraform.tfstate", "x.tfvars", ".git-credentials", ".git/config", ".claude/settings.json", ".mcp.json", ".codex/auth.json", ".cursor/mcp.json", ".bash_history", "service-account-1.json", ".envrc", ".pgpass", ".vault-token",
		"secrets.yaml", "kubeconfig", ".gnupg/x", ".azure/x", ".terraform.d/credentials.tfrc.json", "id_rsa.", ".env::$DATA",
	}
	secrets = append(secrets, ".kiro/settings/mcp.json", ".amazonq/rules/x.md", "opencode.json", ".junie/guidelines.md", ".qwen/settings.json", ".local/state/sandboxmcp/runtimes.json", "other/sandboxmcp.db", "other/sandboxmcp.db-wal")
	secrets = append(secrets, ".ſsh/config", "ID_RſA", ".\u200dssh/config", ".conﬁg/gh/hosts.yml", "\u212aubeconfig")
	obeyed := []string{
		".vscode/tasks.json", ".git/hooks/pre-commit", ".git/HEAD", ".bashrc", ".profile", ".zshrc", ".config/fish/config.fish", ".gitconfig", ".github/workflows/x.yml", ".husky/pre-push", ".config/systemd/user/x.service", ".config/autostart/x.desktop",
		"CLAUDE.md", "AGENTS.md", "sub/.cursorrules", "lib/evil.pth", "sitecustomize.py", ".vimrc", ".local/bin/ls", "x.service", ".idea/workspace.xml",
		".zed/tasks.json", ".devcontainer.json", ".nvim.lua", ".dir-locals.el", "mise.toml", "sub/.cargo/config.toml", "lefthook.yml", ".github/actions/x/action.yml", "Jenkinsfile",
	}
	for _, n := range slices.Concat(secrets, obeyed) {
		path := b.file(n, "CANARY")
		got, err := b.read(path)
		if slices.Contains(secrets, n) {
			wantCode(t, "read "+n, err, sandboxmcp.CodeHostPathDenied)
			_, err = b.copy(path, "x")
			wantCode(t, "copy "+n, err, sandboxmcp.CodeHostPathDenied)
		} else if err != nil || got.Content != "CANARY" {
			t.Errorf("read %s: got %+v, %v, want it read", n, got, err)
		}
		wantCode(t, "write "+n, b.write(path, "pwned"), sandboxmcp.CodeHostPathDenied)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "make "+n, b.write(path, "pwned"), sandboxmcp.CodeHostPathDenied)
	}
	for _, n := range []string{".env.example", "id_rsa.pub", "keys.txt", "environment.md", "monkey", "credentials.md", ".gitignore"} {
		if _, err := b.read(b.file(n, "x")); err != nil {
			t.Errorf("%s: got %v, want it read", n, err)
		}
	}
}

// TestSettingsInAHomeAreNotWritten: no list has the names of all files that programs execute when they start.
// TestRecordsOfGitAreNotWritten: a bare repository has any name, and git executes what its files name. A directory does not become one
// either.
func TestRecordsOfGitAreNotWritten(t *testing.T) {
	b := open(t)
	for _, name := range []string{"code/HEAD", "code/objects/x", "code/refs/x", "code/hooks/x", "code/worktrees/w/index", "nearly/objects/x", "nearly/refs/x", "other/objects/x", "other/HEAD"} {
		b.file(name, "")
	}
	for name, want := range map[string]sandboxmcp.Code{
		"code/config": sandboxmcp.CodeHostPathDenied, "code/hooks/x": sandboxmcp.CodeHostPathDenied, "code/worktrees/w/index": sandboxmcp.CodeHostPathDenied,
		"nearly/HEAD": sandboxmcp.CodeHostPathDenied, "nearly/head": sandboxmcp.CodeHostPathDenied, "nearly/config": "", "other/config": "", "other/HEAD": "", "config": "",
	} {
		wantCode(t, name, b.write(filepath.Join(b.root, name), "x"), want)
	}
}

func TestSettingsInAHomeAreNotWritten(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, func(c *host.Config) { c.Roots = []string{home} })
	b.root = home
	t.Setenv("HOME", home)
	for name, denied := range map[string]bool{
		".psqlrc": true, ".config/tmux/tmux.conf": true, ".new": true, "..x": true, "\u200d.psqlrc": true, "notes": false, "project/.gitignore": false, "project/.config/x": false, "project/.pdbrc": true, "bin/x": true, "project/bin/x": false,
	} {
		b.file(filepath.Dir(name)+"/beside", "x")
		err := b.write(filepath.Join(home, name), "x")
		if got := sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostPathDenied; got != denied || !denied && err != nil {
			t.Errorf("%s: got %v, want it denied: %t", name, err, denied)
		}
	}
	for _, roots := range [][]string{{filepath.Join(home, ".config")}, {home, filepath.Join(home, ".config")}} {
		b.Files.SetRoots(roots)
		if err := b.write(filepath.Join(home, ".config/tmux/tmux.conf"), "x"); err != nil {
			t.Errorf("below a hidden directory that the operator has opened: got %v, want it written", err)
		}
	}
}

// TestTheStateDirectoryIsNoRoot: not even if the operator lists it.
func TestTheStateDirectoryIsNoRoot(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Roots = append(c.Roots, filepath.Dir(c.Own[0])) })
	_, err := b.read(b.state + "/sandboxmcp.db")
	wantCode(t, "read", err, sandboxmcp.CodeHostPathDenied)
	wantCode(t, "write", b.write(b.state+"/x", "x"), sandboxmcp.CodeHostPathDenied)
	_, err = b.Files.List(t.Context(), caller, b.state, noMasks{})
	wantCode(t, "list", err, sandboxmcp.CodeHostPathDenied)
	all := open(t, func(c *host.Config) { c.Roots = []string{"/"} })
	for _, path := range []string{"/proc/self/environ", "/dev/null", "/sys/kernel/uevent_seqnum", "/etc/shadow", "/proc/1/root/etc/passwd"} {
		_, err := all.read(path)
		wantCode(t, path, err, sandboxmcp.CodeHostPathDenied)
	}
	for _, path := range []string{"/etc/cron.d/x", "/etc/passwd", "/usr/bin/x", "/proc/self/comm", "/dev/null"} {
		wantCode(t, "write "+path, all.write(path, "x"), sandboxmcp.CodeHostPathDenied)
	}
}

func TestCopiesIntoTheWorkspace(t *testing.T) {
	work := t.TempDir()
	b := open(t, func(c *host.Config) { c.Workspace = work })
	a := b.file("a.txt", "content\n")
	got, err := b.copy(a, "")
	if err != nil || got.Path != filepath.Join(work, "a.txt") || got.Size != 8 || got.SHA256 != "434728a410a78f56fc1b5899c3593436e61ab0c731e9072d95e96db290205e53" {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, code := range map[string]sandboxmcp.Code{"../x": sandboxmcp.CodeInvalidPath, "/x": sandboxmcp.CodeInvalidPath, "a/../../x": sandboxmcp.CodeInvalidPath, ".env": sandboxmcp.CodeHostPathDenied, ".git/hooks/x": sandboxmcp.CodeHostPathDenied} {
		_, err := b.copy(a, name)
		wantCode(t, name, err, code)
	}
	none := open(t)
	_, err = none.copy(none.file("a.txt", "x"), "")
	if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeInvalidArgument || !strings.Contains(e.Message+e.Hint, "workspace_path") {
		t.Errorf("without a workspace: got %v, want workspace_path named", err)
	}
}

func TestWithoutRootsNoFileIsReached(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Roots = nil })
	_, err := b.read(b.file("a.txt", "x"))
	if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeHostPathDenied || !strings.Contains(e.Hint, "host_roots") {
		t.Errorf("got %v, want host_path_denied that names the setting", err)
	}
}

// TestADirectoryOfTheSettingsIsNoLink: a program in a sandbox that can change a directory above one of host_roots cannot put a link
// there.
func TestADirectoryOfTheSettingsIsNoLink(t *testing.T) {
	b := open(t)
	path := b.file("above/dir/a.txt", "own")
	other := filepath.Join(b.state, "dir")
	if err := errors.Join(os.Mkdir(other, 0o755), os.WriteFile(filepath.Join(other, "a.txt"), []byte("other"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("above", filepath.Join(b.root, "by")); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(b.root, "by/later") // a directory that is made later may be behind a link
	b.Files.SetRoots([]string{filepath.Dir(path), later})
	b.file("above/later/a.txt", "later")
	if out, err := b.read(later + "/a.txt"); err != nil || out.Content != "later" {
		t.Fatalf("got %+v, %v, want the file", out, err)
	}
	if out, err := b.read(path); err != nil || out.Content != "own" {
		t.Fatalf("got %+v, %v, want the file", out, err)
	}
	for _, put := range []struct{ at, target string }{{filepath.Dir(path), other}, {filepath.Join(b.root, "above"), b.state}} {
		if err := errors.Join(os.Rename(put.at, put.at+"-before"), os.Symlink(put.target, put.at)); err != nil {
			t.Fatal(err)
		}
		out, err := b.read(path)
		wantCode(t, put.at, err, sandboxmcp.CodeHostPathDenied)
		if err == nil {
			t.Errorf("%s: got %+v", put.at, out)
		}
		wantCode(t, put.at, b.write(path, "x"), sandboxmcp.CodeHostPathDenied)
		if err := errors.Join(os.Remove(put.at), os.Rename(put.at+"-before", put.at)); err != nil {
			t.Fatal(err)
		}
	}
}
