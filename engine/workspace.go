package engine

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// checkWorkspace refuses a workspace that shows keys or records to programs, such as the state
// directory or a part of it, or in which programs could change what this server obeys or proves its
// record with. settings is the file of the settings, and env the server's environment.
func checkWorkspace(c *config.Config, settings string, env []string) error {
	if c.WorkspacePath == "" {
		if c.WorkspaceMode == "rw" {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "workspace_mode is rw and workspace_path is not set").WithHint("set workspace_path to the directory that programs may change")
		}
		return nil
	}
	refuse := func(why string) error { return refusedWorkspace(c.WorkspacePath, why) }
	real, err := filepath.EvalSymlinks(c.WorkspacePath)
	if err != nil {
		return refuse("it is not there")
	}
	c.WorkspacePath = real
	shown := map[string]string{
		c.StateDir: "the state directory", c.SQLitePath: "the database", c.KeysFrom: "the directory of keys_from", c.Kube.KeyFile: "kube_key_file",
	}
	for _, link := range linksIn(c.StateDir) {
		shown[link] = "a part of the state directory"
	}
	for _, link := range linksIn(c.KeysFrom) {
		shown[link] = "a key of keys_from"
	}
	if err := checkKeys(real, c, settings); err != nil {
		return err
	}
	for own, what := range shown {
		if own != "" && own != ":memory:" && isIn(real, own) {
			return refuse(what + " is in it")
		}
	}
	if c.WorkspaceMode == "rw" {
		for _, o := range obeyed(c, settings, env) {
			if plainfile.LeadsInto(real, o.path) {
				return refuse(o.what + " is in it, or is reached through it")
			}
		}
	}
	if err := checkCommands(real, c); err != nil {
		return err
	}
	return checkOutside(c, refuse)
}

// checkKeys refuses a workspace with the file of the settings in it if the file has keys, which a caller could use as
// all others. It is also called when the file is read again, because the workspace stays what it was at the start.
func checkKeys(workspace string, c *config.Config, settings string) error {
	for _, key := range []string{"api_keys", "database_url"} {
		if c.Source(key) == config.FromYAML && workspace != "" && isIn(workspace, settings) {
			return refusedWorkspace(workspace, "the file of the settings, which has "+key+", is in it")
		}
	}
	return nil
}

// checkCommands refuses a workspace in which programs could replace one of host_allowed_commands, or its interpreter. It is also
// called when the file of the settings is read again.
func checkCommands(workspace string, c *config.Config) error {
	if workspace == "" || c.WorkspaceMode != "rw" || !c.EnableHostAccess {
		return nil
	}
	for _, command := range c.HostAllowedCommands {
		if slices.ContainsFunc(host.Reached(command), func(path string) bool { return plainfile.LeadsInto(workspace, path) }) {
			return refusedWorkspace(workspace, "a program of host_allowed_commands is in it, or is reached through it")
		}
	}
	return nil
}

func refusedWorkspace(path, why string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "workspace_path is %s; %s", sandboxmcp.Quote(path), why).WithHint("name a directory that programs may read")
}

// trusted is a file or a directory that the server trusts, and what it is.
type trusted struct{ path, what string }

// obeyed lists the files that this server executes, obeys or proves its record with. In a directory that programs
// can change they would decide what the server does, or which servers it trusts. Not listed are interpreters and the
// configuration of package managers, which are passed over there one by one.
func obeyed(c *config.Config, settings string, env []string) []trusted {
	var all []trusted
	add := func(what string, paths ...string) {
		for _, path := range paths {
			if path != "" {
				all = append(all, trusted{path, what})
			}
		}
	}
	variable := func(name string) string { return config.Lookup(env, name) }
	home := variable("HOME")
	add("the state directory", c.StateDir)
	add("the directory of keys_from", c.KeysFrom)
	add("kube_key_file", c.Kube.KeyFile)
	if c.SQLitePath != ":memory:" {
		add("the database", c.SQLitePath)
	}
	add("the file of the settings", settings)
	add("audit_checkpoint_file", c.AuditCheckpointFile)
	add("rootfs", c.RootFS)
	add("kube_config", c.Kube.Config) // it may name a program that the server starts
	if program, err := os.Executable(); err == nil {
		add("this program", program)
	}
	if c.Source("sandbox_log_file") != config.FromDefault {
		add("the file of the log", c.Tools.LogFile)
	}
	add("SSL_CERT_FILE", variable("SSL_CERT_FILE"))
	for _, dir := range filepath.SplitList(variable("SSL_CERT_DIR")) {
		add("SSL_CERT_DIR", withFiles(dir)...)
	}
	if dir := dockerCerts(env); dir != "" {
		add("the directory of Docker's certificates", withFiles(dir)...)
	}
	if c.DatabaseURL.Reveal() != "" {
		for _, name := range []string{"PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGPASSFILE", "PGSERVICEFILE"} {
			add(name, variable(name))
		}
		add("a file of database_url", filesOf(c.DatabaseURL.Reveal(), "sslrootcert", "sslcert", "sslkey", "passfile", "servicefile")...)
		add("a file of PostgreSQL's clients", inHome(home, ".pgpass", ".pg_service.conf", ".postgresql/root.crt", ".postgresql/postgresql.crt", ".postgresql/postgresql.key")...)
	}
	if c.DefaultBackend == config.Kube {
		add("KUBECONFIG", filepath.SplitList(variable("KUBECONFIG"))...)
		add("the configuration of the cluster", inHome(home, ".kube/config")...)
		add("a directory of PATH", filepath.SplitList(variable("PATH"))...) // the configuration may name a program
	}
	if c.BlobURL != "" {
		add("AWS_SHARED_CREDENTIALS_FILE", variable("AWS_SHARED_CREDENTIALS_FILE")) // it may name a program
		add("the key of the object store", inHome(home, ".aws/credentials")...)
	}
	return all
}

// keyVariables are variables that name a file with keys, passwords or tokens which this server uses. npm's count in any case.
var keyVariables = []string{
	"PGSSLKEY", "PGPASSFILE", "PGSERVICEFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
	"NETRC", "PIP_CONFIG_FILE", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG",
}

// keyFiles lists the files with keys or passwords that the settings or the server's environment name, but for those of
// [config.Config.StateDir] and [config.Config.KeysFrom]. One that is not there yet is listed, too.
func keyFiles(c *config.Config, env []string) (all []string) {
	named := []string{c.Kube.KeyFile, c.Kube.Config}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch name = strings.ToUpper(name); {
		case name == "KUBECONFIG":
			named = append(named, filepath.SplitList(value)...)
		case slices.Contains(keyVariables, name):
			named = append(named, value)
		}
	}
	named = append(named, filesOf(c.DatabaseURL.Reveal(), "sslkey", "passfile", "servicefile")...)
	if dir := dockerCerts(env); dir != "" {
		named = append(named, filepath.Join(dir, "key.pem"))
	}
	for _, path := range named {
		abs, err := filepath.Abs(path)
		if info, failed := os.Stat(abs); path == "" || err != nil || failed == nil && !info.Mode().IsRegular() { // commands use /dev/null
			continue
		}
		all = append(all, abs)
	}
	return all
}

// withFiles returns the paths of a directory and of its entries. An entry may be a symbolic link to a file elsewhere.
func withFiles(dir string) []string {
	all := []string{dir}
	entries, _ := os.ReadDir(dir) // one that cannot be read has nothing that is trusted
	for _, e := range entries {
		all = append(all, filepath.Join(dir, e.Name()))
	}
	return all
}

// linksIn returns the entries of a directory that are symbolic links, such as those of a mounted secret, or one to another disk.
func linksIn(dir string) []string {
	return slices.DeleteFunc(withFiles(dir)[1:], func(path string) bool {
		info, err := os.Lstat(path)
		return err != nil || info.Mode()&os.ModeSymlink == 0
	})
}

func inHome(home string, names ...string) (all []string) {
	if home == "" {
		return nil
	}
	for _, name := range names {
		all = append(all, filepath.Join(home, name))
	}
	return all
}

// filesOf returns the files that some parameters of a database's URL name.
func filesOf(database string, parameters ...string) (all []string) {
	u, err := url.Parse(database)
	if err != nil {
		return nil // it was refused before
	}
	for _, name := range parameters {
		all = append(all, u.Query()[name]...)
	}
	return all
}

// checkOutside refuses a workspace in a directory of this server. Programs would see results of all
// namespaces there, or the proof with which the server's socket is used.
func checkOutside(c *config.Config, refuse func(why string) error) error {
	around := map[string]string{c.StateDir: "the state directory", c.KeysFrom: "the directory of keys_from"}
	if database, err := filepath.EvalSymlinks(c.SQLitePath); err == nil && c.SQLitePath != "" {
		around[store.NotesDir(database)] = "the directory of the database's newest records"
	}
	for own, what := range around {
		if own == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(own)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err == nil && isIn(real, c.WorkspacePath) { // a directory that does not exist has nothing in it
			return refuse("it is in " + what)
		}
	}
	return nil
}

// isIn reports whether a path, or what it links to, is in a directory, also where a mount shows one of them once more. The directory
// has no links.
func isIn(dir, path string) bool {
	path, err := filepath.Abs(path)
	if err != nil {
		return true
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil { // it does not exist yet
		real = path
		if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			real = filepath.Join(parent, filepath.Base(path))
		}
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return true
	}
	return plainfile.ReadMounts().Shows(dir, real)
}
