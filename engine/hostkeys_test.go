package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestHostToolsReadNoKeysThatSettingsName: with these keys a model would be the server for a cluster, a database or a bucket. Their
// names and directories do not show that they are keys.
func TestHostToolsReadNoKeysThatSettingsName(t *testing.T) {
	for name, c := range map[string]struct {
		env    string // with IN for the directory
		values map[string]any
		fine   bool
	}{
		"KeyOfPods":   {"", map[string]any{"kube_key_file": "IN/pool"}, false},
		"Linked":      {"", map[string]any{"kube_key_file": "IN/link"}, false},
		"Cluster":     {"", map[string]any{"kube_config": "IN/pool"}, false},
		"Kubeconfig":  {"KUBECONFIG=/nonexistent:IN/pool", nil, false},
		"Passwords":   {"PGPASSFILE=IN/pool", nil, false},
		"DatabaseKey": {"PGSSLKEY=IN/pool", nil, false},
		"Bucket":      {"AWS_SHARED_CREDENTIALS_FILE=IN/pool", nil, false},
		"Role":        {"AWS_WEB_IDENTITY_TOKEN_FILE=IN/pool", nil, false},
		"Indexes":     {"NETRC=IN/pool", nil, false},
		"Npm":         {"npm_config_userconfig=IN/pool", nil, false},
		"Directory":   {"PGPASSFILE=IN", nil, true},
		"Unnamed":     {"PGSSLROOTCERT=IN/pool", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(top, "dir")
			file := filepath.Join(dir, "pool")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("a key\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("pool", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			values := map[string]any{"enable_host_access": true, "host_roots": dir}
			for key, v := range c.values {
				values[key] = strings.ReplaceAll(v.(string), "IN", dir)
			}
			env := append(strings.Fields(strings.ReplaceAll(c.env, "IN", dir)), "SANDBOXMCP_STATE_DIR="+top+"/state", "HOME="+top)
			e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: env}, Env: env})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			out, failed := e.ExecHost(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostCommand{Argv: []string{"cat", file}})
			read, err := e.ReadHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostRead{Path: file})
			if !c.fine && (sandboxmcp.CodeOf(failed) != sandboxmcp.CodeHostPathDenied || sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied) {
				t.Errorf("cat: got %v %q, read: got %v %q, want %s for both", failed, out.Stdout, err, read.Content, sandboxmcp.CodeHostPathDenied)
			}
			if c.fine && (failed != nil || err != nil) {
				t.Errorf("got %v and %v, want it to be fine", failed, err)
			}
		})
	}
}

// TestHostToolsReadNoKeysBehindLinks: the files of keys_from may be links, as those of a mounted secret are, and its path may be relative. A directory in
// the state directory may be a link to another disk.
func TestHostToolsReadNoKeysBehindLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	begin := func(values map[string]any) *engine.Engine {
		env := []string{"SANDBOXMCP_STATE_DIR=" + filepath.Join(top, "state"), "HOME=" + top}
		e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: env}, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if err := begin(nil).Close(); err != nil {
		t.Fatal(err)
	}
	file, blob := filepath.Join(top, "roots", "first"), filepath.Join(top, "roots", "big", "output")
	if err := os.MkdirAll(filepath.Join(top, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(top, "state", "signing.key"))
	if err == nil {
		err = errors.Join(os.RemoveAll(filepath.Join(top, "state", "blobs")), os.Mkdir(filepath.Dir(blob), 0o700), os.WriteFile(blob, []byte("output\n"), 0o600), os.Symlink(filepath.Dir(blob), filepath.Join(top, "state", "blobs")))
	}
	if err == nil {
		err = errors.Join(os.WriteFile(file, key, 0o600), os.Symlink(file, filepath.Join(top, "keys", "signing.key")))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	e := begin(map[string]any{"enable_host_access": true, "host_roots": filepath.Dir(file), "keys_from": "keys"})
	defer func() { _ = e.Close() }()
	for _, path := range []string{file, blob} {
		out, failed := e.ExecHost(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostCommand{Argv: []string{"cat", path}})
		read, err := e.ReadHostFile(t.Context(), sandboxmcp.Caller{}, sandboxmcp.HostRead{Path: path})
		if sandboxmcp.CodeOf(failed) != sandboxmcp.CodeHostPathDenied || sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied {
			t.Errorf("%s: cat: got %v %q, read: got %v %q, want %s for both", path, failed, out.Stdout, err, read.Content, sandboxmcp.CodeHostPathDenied)
		}
	}
}

// TestHostToolsDoNotUseTheFilesOfTheDatabase: a server compares the size of the file -gate to learn that a grant was revoked, and SQLite does not open a database that has an invalid journal.
func TestHostToolsDoNotUseTheFilesOfTheDatabase(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *engine.Engine {
		env := []string{"SANDBOXMCP_STATE_DIR=" + filepath.Join(top, "state"), "HOME=" + top}
		values := map[string]any{"enable_host_access": true, "host_roots": top, "sqlite_path": filepath.Join(top, "records")}
		e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, Env: env}, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	e, person := begin(), begin()
	var who sandboxmcp.Caller
	_, err = person.DecideHostAccess(t.Context(), who, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: "echo hi"}})
	if err == nil {
		_, err = person.RevokeHostAccess(t.Context(), who, "echo hi")
	}
	if err == nil {
		_, err = person.SetLimits(t.Context(), who, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 100}})
	}
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(top, "records*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("got %q, %v, want the database and files beside it", files, err)
	}
	for _, path := range append(files, filepath.Join(top, "records-journal"), filepath.Join(top, "records-packages"), filepath.Join(top, "records-vault")) {
		_, read := e.ReadHostFile(t.Context(), who, sandboxmcp.HostRead{Path: path})
		_, err := e.WriteHostFile(t.Context(), who, sandboxmcp.HostWrite{Path: path, Content: "x", Overwrite: true})
		if sandboxmcp.CodeOf(read) != sandboxmcp.CodeHostPathDenied || sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostPathDenied {
			t.Errorf("%s: got %v and %v, want %s for both", path, read, err, sandboxmcp.CodeHostPathDenied)
		}
	}
}
