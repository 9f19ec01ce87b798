package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

// TestTheWorkspaceIsShownReadOnly: sandboxes see the directory, also what the host adds to it
// later, and cannot change it.
func TestTheWorkspaceIsShownReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // sandboxes of root have another user
		t.Fatal(err)
	}
	e := openRealOn(t, process.Config{Shown: dir}, func(c *engine.Config) { c.Workspace = dir })
	run := func(code, want string) {
		t.Helper()
		r, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Language: sandboxmcp.Shell, Code: code, SessionID: "s"})
		if err != nil || r.Stdout != want {
			t.Errorf("%s: got %q, %q, %v, want %q", code, r.Stdout, r.Stderr, err, want)
		}
	}
	if _, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: "s", Language: sandboxmcp.Shell}); err != nil {
		t.Fatal(err)
	}
	run("cat /workspace/later 2> /dev/null || echo none", "none\n")
	if err := os.WriteFile(filepath.Join(dir, "later"), []byte("here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run("cat /workspace/later", "here\n")
	run("(echo x > /workspace/made) 2> /dev/null || echo refused", "refused\n")
	if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
		t.Error("a program made a file in the workspace")
	}
}

// TestProgramsChangeAWritableWorkspace: in every language, in single runs and in sessions.
func TestProgramsChangeAWritableWorkspace(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	e := openRealOn(t, process.Config{Shown: dir, Writable: true}, func(c *engine.Config) { c.Workspace = dir })
	for name, code := range map[string]string{
		"python": "open('/workspace/NAME', 'a').write('x')", "node": "require('fs').appendFileSync('/workspace/NAME', 'x')", "shell": "printf x >> /workspace/NAME",
	} {
		for _, session := range []string{"", "s"} {
			for range 2 { // the second may be forked, or run in a sandbox that was ready
				r, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Language: sandboxmcp.Language(name), Code: strings.ReplaceAll(code, "NAME", name+session), SessionID: sandboxmcp.SessionID(session)})
				if err != nil || !r.Success {
					t.Fatalf("%s, session %q: got %q, %v, want success", name, session, r.Stderr, err)
				}
				if !slices.Contains(r.Isolation.Walls, "no set-user-ID files") || slices.Contains(r.Isolation.Walls, "read-only root") {
					t.Errorf("%s, session %q: walls %q", name, session, r.Isolation.Walls)
				}
			}
			if b, err := os.ReadFile(filepath.Join(dir, name+session)); err != nil || string(b) != "xx" {
				t.Errorf("%s, session %q, on the host: got %q, %v, want xx", name, session, b, err)
			}
		}
	}
}

// TestAWritableWorkspaceNeedsADirectory: the mode alone would silently do nothing.
func TestAWritableWorkspaceNeedsADirectory(t *testing.T) {
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{
		Values: map[string]any{"workspace_mode": "rw"}, Env: []string{"SANDBOXMCP_STATE_DIR=" + t.TempDir()},
	}})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
	if err == nil {
		_ = e.Close()
	}
}

// TestTheWorkspaceDoesNotShowTheState: a workspace with the state directory in it would show
// programs its keys.
func TestTheWorkspaceDoesNotShowTheState(t *testing.T) {
	dir := t.TempDir()
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{
		Values: map[string]any{"workspace_path": dir}, Env: []string{"SANDBOXMCP_STATE_DIR=" + filepath.Join(dir, "state")},
	}})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
	if err == nil {
		_ = e.Close()
	}
}

// TestTheWorkspaceIsNoPartOfTheState: programs would see results of all namespaces in it, or the
// proof with which the server's socket is used.
func TestTheWorkspaceIsNoPartOfTheState(t *testing.T) {
	top := t.TempDir()
	state, keys, data := top+"/state", top+"/keys", top+"/data"
	for _, dir := range []string{state + "/run/deep", state + "/blobs", keys + "/inner", data + "/x.db-notes", top + "/statement"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"/linked": state + "/run", "/again": state, "/data/link.db": data + "/x.db"} {
		if err := os.Symlink(target, top+link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(data+"/x.db", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sign.Open(keys); err != nil {
		t.Fatal(err)
	}
	for workspace, want := range map[string]string{
		state + "/run":         "it is in the state directory",
		state + "/run/deep":    "it is in the state directory",
		state + "/blobs":       "it is in the state directory",
		top + "/linked":        "it is in the state directory",
		keys + "/inner":        "it is in the directory of keys_from",
		data + "/x.db-notes":   "it is in the directory of the database's newest records",
		top + "/statement":     "",
		top + "/keys/../data/": "the database is in it",
	} {
		for _, dir := range []string{state, top + "/again"} {
			values := map[string]any{"workspace_path": workspace, "keys_from": keys, "sqlite_path": data + "/link.db"}
			e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: []string{"SANDBOXMCP_STATE_DIR=" + dir}}})
			switch {
			case err == nil:
				_ = e.Close()
				if want != "" {
					t.Errorf("%s with the state in %s: got no error, want %q", workspace, dir, want)
				}
			case want == "" || sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), want):
				t.Errorf("%s with the state in %s: got %v, want %q", workspace, dir, err, want)
			}
		}
	}
}

// TestThisProgramIsInNoWorkspaceThatProgramsChange: its next start would execute what a program in a sandbox has
// put in its place.
func TestThisProgramIsInNoWorkspaceThatProgramsChange(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]bool{"ro": true, "rw": false} {
		values := map[string]any{"workspace_path": filepath.Dir(program), "workspace_mode": mode}
		e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: []string{"SANDBOXMCP_STATE_DIR=" + t.TempDir() + "/state"}}})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "this program is in it") {
			t.Errorf("%s: got %v, want it to be fine: %t", mode, err, want)
		}
		if err == nil {
			_ = e.Close()
		}
	}
}

// TestTheWorkspaceShowsNoKeysAndNothingObeyed: programs would read the keys, or write the settings that the
// next start obeys.
func TestTheWorkspaceShowsNoKeysAndNothingObeyed(t *testing.T) {
	for name, c := range map[string]struct {
		mode  string
		value func(in string) map[string]any
		file  string
		fine  bool
	}{
		"Keys":             {"ro", func(in string) map[string]any { return map[string]any{"keys_from": in + "/keys"} }, "", false},
		"LinkedKey":        {"ro", func(in string) map[string]any { return map[string]any{"keys_from": filepath.Dir(in) + "/linked"} }, "", false},
		"LinkedBlobs":      {"ro", nil, "", false},
		"Settings":         {"rw", nil, "/settings.yaml", false},
		"SettingsWithKeys": {"ro", nil, "/keys.yaml", false},
		"LinkedFile":       {"rw", nil, "/../linked/settings.yaml", false},
		"Checkpoints": {"rw", func(in string) map[string]any {
			return map[string]any{"audit_checkpoint_file": in + "/new/checkpoints"}
		}, "", false},
		"KeyOfPods":   {"ro", func(in string) map[string]any { return map[string]any{"kube_key_file": in + "/new/key"} }, "", false},
		"Cluster":     {"rw", func(in string) map[string]any { return map[string]any{"kube_config": in + "/new/config"} }, "", false},
		"ClusterRead": {"ro", func(in string) map[string]any { return map[string]any{"kube_config": in + "/new/config"} }, "", true},
		"ReadOnly":    {"ro", nil, "/settings.yaml", true},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "work")
			for _, d := range []string{"/work/keys", "/work/new", "/linked"} {
				if err := os.MkdirAll(top+d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for file, text := range map[string]string{"/settings.yaml": "max_queued: 7\n", "/keys.yaml": "api_keys: [a-key-of-a-caller=team-a]\n"} {
				if err := os.WriteFile(dir+file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for link, target := range map[string]string{"signing.key": dir + "/keys/signing.key", "settings.yaml": dir + "/settings.yaml"} {
				if err := os.Symlink(target, filepath.Join(top, "linked", link)); err != nil {
					t.Fatal(err)
				}
			}
			if name == "LinkedBlobs" {
				if err := errors.Join(os.Mkdir(top+"/state", 0o700), os.Symlink(dir+"/new", top+"/state/blobs")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := sign.Open(dir + "/keys"); err != nil {
				t.Fatal(err)
			}
			values := map[string]any{}
			if c.value != nil {
				values = c.value(dir)
			}
			values["workspace_path"], values["workspace_mode"] = dir, c.mode
			file := ""
			if c.file != "" {
				file = filepath.Clean(dir + c.file)
			}
			e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, File: file, Env: []string{"SANDBOXMCP_STATE_DIR=" + top + "/state"}}})
			if (err == nil) != c.fine || err != nil && (sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), "is in it")) {
				t.Errorf("got %v, want it to be fine: %v", err, c.fine)
			}
			if err == nil {
				_ = e.Close()
			}
		})
	}
}

// TestWhatTheServerTrustsIsInNoWorkspaceThatProgramsChange: a program would put its certificate there, and the server
// would trust the program's proxy. A link on the way to the file counts, because a program can put another directory in
// its place.
func TestWhatTheServerTrustsIsInNoWorkspaceThatProgramsChange(t *testing.T) {
	for name, c := range map[string]struct {
		env    string // with IN for the workspace and OUT for a directory beside it
		values map[string]any
		want   string // empty: it is fine
	}{
		"File":        {"SSL_CERT_FILE=IN/ca.pem", nil, "SSL_CERT_FILE"},
		"LinkedFile":  {"SSL_CERT_FILE=OUT/linked.pem", nil, "SSL_CERT_FILE"},
		"Through":     {"SSL_CERT_FILE=OUT/through/ca.pem", nil, "SSL_CERT_FILE"},
		"Dir":         {"SSL_CERT_DIR=/etc:IN/certs", nil, "SSL_CERT_DIR"},
		"DirOfLinks":  {"SSL_CERT_DIR=OUT", nil, "SSL_CERT_DIR"},
		"Elsewhere":   {"SSL_CERT_FILE=OUT/ca.pem", nil, ""},
		"Log":         {"SANDBOX_LOG_FILE=IN/log", nil, "the file of the log"},
		"LogReadOnly": {"SANDBOX_LOG_FILE=IN/log", map[string]any{"workspace_mode": "ro"}, ""},
		"ReadOnly":    {"SSL_CERT_FILE=IN/ca.pem", map[string]any{"workspace_mode": "ro"}, ""},
		"Docker":      {"DOCKER_CERT_PATH=IN/docker", nil, ""},
		"DockerTLS":   {"DOCKER_TLS_VERIFY=1 DOCKER_CERT_PATH=IN/docker", nil, "Docker's certificates"},
		"NoDatabase":  {"PGSSLROOTCERT=IN/root.crt", nil, ""},
		"Database":    {"PGSSLROOTCERT=IN/root.crt", map[string]any{"database_url": "postgres://u@127.0.0.1:1/d?sslmode=disable"}, "PGSSLROOTCERT"},
		"URL":         {"", map[string]any{"database_url": "postgres://u@127.0.0.1:1/d?sslmode=disable&sslrootcert=IN/root.crt"}, "a file of database_url"},
		"Keys":        {"", map[string]any{"keys_from": "OUT/through/keys"}, "the directory of keys_from"},
		"Command":     {"SANDBOXMCP_HOST_ACCESS=true", map[string]any{"host_allowed_commands": "ls,IN/tool --all"}, "a program of host_allowed_commands"},
		"Interpreter": {"SANDBOXMCP_HOST_ACCESS=true", map[string]any{"host_allowed_commands": "OUT/script"}, "a program of host_allowed_commands"},
		"CommandOff":  {"", map[string]any{"host_allowed_commands": "ls,IN/tool --all"}, ""},
		"Path":        {"PATH=IN/bin:/usr/bin", nil, ""}, // no interpreter of it is used
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			work, out := filepath.Join(top, "work"), filepath.Join(top, "out")
			for _, dir := range []string{work + "/deep", out} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for link, target := range map[string]string{out + "/linked.pem": work + "/ca.pem", out + "/through": work + "/deep/back", work + "/deep/back": top} {
				if err := os.Symlink(target, link); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(out+"/script", []byte("#!"+work+"/bin/python\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			place := strings.NewReplacer("IN", work, "OUT", out)
			values := map[string]any{"workspace_path": work, "workspace_mode": "rw"}
			for key, v := range c.values {
				values[key] = place.Replace(v.(string))
			}
			env := append(strings.Fields(place.Replace(c.env)), "SANDBOXMCP_STATE_DIR="+top+"/state", "HOME="+top)
			e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: env}, Env: env})
			if (err == nil) != (c.want == "") || err != nil && (sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), c.want+" is in it")) {
				t.Errorf("got %v, want it to be fine or %q", err, c.want)
			}
			if err == nil {
				_ = e.Close()
			}
		})
	}
}

// TestHostFilesAreNotWhatTheServerObeys: a written settings file would open host commands to all at the
// next start.
func TestHostFilesAreNotWhatTheServerObeys(t *testing.T) {
	root := t.TempDir()
	paths := map[string]string{}
	for _, name := range []string{"settings.yaml", "checkpoints", "keys/other", "notes"} {
		paths[name] = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(paths[name]), 0o700), os.WriteFile(paths[name], []byte("old"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sign.Open(filepath.Join(root, "keys")); err != nil {
		t.Fatal(err)
	}
	e := open(t, &fake{}, func(c *engine.Config) {
		c.HostAccess, c.HostRoots = true, []string{root}
		c.SettingsFile, c.AuditCheckpointFile, c.KeysFrom = paths["settings.yaml"], paths["checkpoints"], filepath.Join(root, "keys")
		c.StateDir = filepath.Join(t.TempDir(), "state")
	})
	for name, path := range paths {
		_, err := e.WriteHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostWrite{Path: path, Content: "new", Overwrite: true})
		if denied := sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostPathDenied; denied == (name == "notes") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestHostCommandsTakeTurns: each command of the host takes a process and a thread of the server.
// Further ones wait, and too many of them are refused.
func TestHostCommandsTakeTurns(t *testing.T) {
	e := open(t, &fake{}, func(c *engine.Config) { c.HostAccess, c.HostAllowed = true, []string{"sleep"} })
	ctx, cancel := context.WithCancel(t.Context())
	const calls = 100
	ends := make(chan error, calls)
	for range calls {
		go func() {
			_, err := e.ExecHost(ctx, sandboxmcp.Caller{}, sandboxmcp.HostCommand{Command: "sleep 60"})
			ends <- err
		}()
	}
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	select {
	case err := <-ends:
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeQueueFull {
			t.Errorf("got %v, want queue_full", err)
		}
	case <-late.C:
		t.Errorf("all %d commands were started", calls)
	}
	cancel()
	for range calls - 1 {
		if err := <-ends; err == nil {
			t.Error("a command of a minute has ended")
		}
	}
}

// TestHostFilesAreNotWhatTheServerStarts: the server asks the interpreters of the PATH for their versions, outside
// of sandboxes. A model that could write one would need no approval to execute a program.
func TestHostFilesAreNotWhatTheServerStarts(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	for _, dir := range []string{"env/bin", "env/lib/python3.11/json", "other/bin", "work/src"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root+"/other/bin", elsewhere+"/bin"); err != nil {
		t.Fatal(err)
	}
	e := open(t, &fake{}, func(c *engine.Config) {
		c.HostAccess, c.HostRoots, c.Workspace = true, []string{root}, root
		c.ClientEnv = []string{"PATH=" + root + "/env/bin:" + elsewhere + "/bin:/usr/bin", "VIRTUAL_ENV=" + root + "/virtual"}
		c.StateDir = filepath.Join(t.TempDir(), "state")
	})
	for name, denied := range map[string]bool{
		"env/bin/python3": true, "env/lib/python3.11/json/__init__.py": true, "other/bin/node": true, "virtual/pip.ini": true, "work/pyvenv.cfg": true,
		"work/src/main.py": false, "env/notes": false,
	} {
		_, err := e.WriteHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostWrite{Path: filepath.Join(root, name), Content: "new"})
		if got := sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostPathDenied; got != denied || !denied && err != nil {
			t.Errorf("%s: got %v, want it denied: %t", name, err, denied)
		}
	}
	if _, err := e.CopyHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostCopy{Source: root + "/env/notes", Destination: "env/bin/python"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied {
		t.Errorf("a copy into the workspace: got %v, want host_path_denied", err)
	}
}

// TestHostFilesAreNothingThatTheServerReaches: what is found on the PATH may be a link, or a program of a version manager, or a
// script of the user that starts an interpreter anywhere.
func TestHostFilesAreNothingThatTheServerReaches(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"bin", "own/bin", "tools/python/bin", "opt/py/bin", "opt/py/lib/python3.11", "manager/shims", "manager/versions/3.11/bin", "tools/node/bin", "work"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copied := root + "/tools/python/bin/python3"
	script := "#!/bin/sh\nprintf '\\036sandboxmcp {\"executable\": \"" + copied + "\", \"version\": \"3.11.2\", \"prefixes\": [\"" + root + "/tools/python\"]}\\n'\n"
	if err := errors.Join(
		os.WriteFile(copied, []byte("\x7fELF"), 0o755), os.WriteFile(root+"/own/bin/python3", []byte(script), 0o755),
		os.WriteFile(root+"/opt/py/bin/python3.11", nil, 0o644), os.Symlink(root+"/opt/py/bin/python3.11", root+"/bin/python"),
	); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{root + "/own/bin", root + "/bin", root + "/manager/shims", "/usr/bin", "/bin"}, ":")
	env := []string{"PATH=" + path, "HOME=" + root, "SANDBOXMCP_STATE_DIR=" + t.TempDir() + "/state", "SSL_CERT_FILE=" + root + "/work/trusted.crt", "PIP_CERT=" + root + "/work/index.crt"}
	e, err := engine.Open(t.Context(), engine.Options{Env: env, Settings: engine.Settings{Env: env, Values: map[string]any{"enable_host_access": "true", "host_roots": root + "," + filepath.Dir(program)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for name, denied := range map[string]bool{
		"opt/py/bin/python3.11": true, "opt/py/lib/libc.so": true, "manager/version": true, "manager/versions/3.11/bin/python": true, "tools/python/bin/python3": true, "tools/python/lib.py": true,
		"tools/node/bin/other": false, "work/main.py": false, ".tool-versions": true, "work/trusted.crt": true, "work/index.crt": true,
	} {
		_, err := e.WriteHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostWrite{Path: filepath.Join(root, name), Content: "new", Overwrite: true})
		if got := sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostPathDenied; got != denied || !denied && err != nil {
			t.Errorf("%s: got %v, want it denied: %t", name, err, denied)
		}
	}
	if _, err := e.WriteHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostWrite{Path: program, Content: "new"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied {
		t.Errorf("the server's own program: got %v, want host_path_denied", err)
	}
}

// TestCommandsReadNoSettingsAndNoDatabase: the settings may have the keys of all callers, and the newest outputs of all
// of them are in files beside the database.
func TestCommandsReadNoSettingsAndNoDatabase(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(top+"/data/x.db-notes", 0o700); err != nil {
		t.Fatal(err)
	}
	settings := top + "/settings.yaml"
	if err := os.WriteFile(settings, []byte("enable_host_access: true\napi_keys: [a-key-of-a-caller=team-a]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{
		Values: map[string]any{"sqlite_path": top + "/data/x.db"}, File: settings, Env: []string{"SANDBOXMCP_STATE_DIR=" + top + "/state"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if _, err := e.ExecHost(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostCommand{Argv: []string{"ls", top}}); err != nil {
		t.Fatalf("a directory: got %v, want its list", err)
	}
	for _, path := range []string{"/settings.yaml", "/data/x.db", "/data/x.db-wal", "/data/x.db-notes/x"} {
		out, err := e.ExecHost(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostCommand{Argv: []string{"cat", top + path}})
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied {
			t.Errorf("%s: got %q and %v, want it refused", path, out.Stdout, err)
		}
	}
}

// TestProgramsOfTheWorkspaceAreNoHostCommands: a person can allow a program in the workspace only if programs in sandboxes cannot
// change it.
func TestProgramsOfTheWorkspaceAreNoHostCommands(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, writable := range []bool{false, true} {
		e := open(t, &fake{}, func(c *engine.Config) {
			c.HostAccess, c.Workspace, c.WorkspaceRW = true, dir, writable
			c.StateDir = filepath.Join(t.TempDir(), "state")
		})
		_, err := e.DecideHostAccess(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: tool}})
		if got := sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostAccessDenied; got != writable || !writable && err != nil {
			t.Errorf("writable %t: got %v, want it denied: %t", writable, err, writable)
		}
	}
}
