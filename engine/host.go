package engine

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// checkWorkspace refuses a workspace that shows keys or records to programs, such as the state
// directory or a part of it, or in which programs could change what this server obeys or proves its
// record with. settings is the file of the settings.
func checkWorkspace(c *config.Config, settings string) error {
	if c.WorkspacePath == "" {
		if c.WorkspaceMode == "rw" {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "workspace_mode is rw and workspace_path is not set").WithHint("set workspace_path to the directory that programs may change")
		}
		return nil
	}
	refuse := func(why string) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "workspace_path is %s; %s", sandboxmcp.Quote(c.WorkspacePath), why).WithHint("name a directory that programs may read")
	}
	real, err := filepath.EvalSymlinks(c.WorkspacePath)
	if err != nil {
		return refuse("it is not there")
	}
	c.WorkspacePath = real
	shown := map[string]string{
		c.StateDir: "the state directory", c.SQLitePath: "the database", c.KeysFrom: "the directory of keys_from", c.Kube.KeyFile: "kube_key_file",
	}
	if c.KeysFrom != "" { // its files may be links
		shown[filepath.Join(c.KeysFrom, sign.PrivateFile)] = "a key of keys_from"
		shown[filepath.Join(c.KeysFrom, vault.KeyFile)] = "a key of keys_from"
	}
	if c.WorkspaceMode == "rw" {
		shown[settings], shown[c.AuditCheckpointFile], shown[c.RootFS] = "the file of the settings", "audit_checkpoint_file", "rootfs"
		shown[c.Kube.Config] = "kube_config" // it may name a program that the server starts
		if program, err := os.Executable(); err == nil {
			shown[program] = "this program"
		}
	}
	for own, what := range shown {
		if own != "" && own != ":memory:" && isIn(real, own) {
			return refuse(what + " is in it")
		}
	}
	return checkOutside(c, refuse)
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

// isIn reports whether a path, or what it links to, is in a directory. The directory has no links.
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
	for _, p := range []string{path, real} {
		if rel, err := filepath.Rel(dir, p); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// changeable returns the workspace, with its links resolved, if programs in sandboxes can change its files. Otherwise it
// returns an empty string.
func (c *Config) changeable() string {
	if !c.WorkspaceRW {
		return ""
	}
	return plainfile.Unlinked(c.Workspace)
}

// started lists the directories with what this server starts outside of sandboxes: the interpreters on the PATH,
// which it asks for their versions, and the libraries of a Python. A model that could write there would execute any
// program of the host.
func started(env []string) []string {
	var all []string
	for _, dir := range append(filepath.SplitList(lookup(env, "PATH")), lookup(env, "VIRTUAL_ENV")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		all = append(all, dir)
		libraries, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "lib*", "python3*"))
		if err == nil {
			all = append(all, libraries...)
		}
	}
	return all
}

// openHost makes what the host tools use.
func (e *Engine) openHost() error {
	c := e.cfg
	own := []string{e.store.Dir()}
	if c.SQLitePath != "" && c.SQLitePath != ":memory:" {
		own = append(own, c.SQLitePath)
	}
	if c.KeysFrom != "" {
		own = append(own, c.KeysFrom)
	}
	var obeyed []string
	for _, file := range []string{c.SettingsFile, c.AuditCheckpointFile} {
		if file == "" {
			continue
		}
		abs, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		obeyed = append(obeyed, abs)
	}
	var begun []string
	if c.HostAccess {
		begun = started(c.ClientEnv)
	}
	var err error
	e.host, err = host.New(host.Config{
		Enabled: c.HostAccess, AutoApprove: c.HostAutoApprove, Allowed: c.HostAllowed, Blocked: c.HostBlocked, Roots: c.HostRoots, Workspace: c.Workspace, Own: own, Obeyed: obeyed, Started: begun,
		Store: e.store, Audit: e.audit, Invocation: c.Invocation, Notices: c.Notices, Now: c.Now, Logger: c.Logger,
	})
	return err
}

// hostCaller returns the caller of a host verb and the masker of its namespace.
func (e *Engine) hostCaller(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.Caller, *redact.Masker, error) {
	c, err := e.caller(c)
	if err != nil {
		return c, nil, err
	}
	masks, err := e.masks(ctx, c.Namespace, "")
	return c, masks, err
}

// hostTurn is hostCaller for a verb that waits for its turn in q. The caller calls done.
func (e *Engine) hostTurn(ctx context.Context, c sandboxmcp.Caller, q *queue.Queue) (_ sandboxmcp.Caller, masks *redact.Masker, done func(), err error) {
	if c, masks, err = e.hostCaller(ctx, c); err != nil {
		return c, nil, nil, err
	}
	done, err = inTurn(ctx, q, c.Namespace)
	return c, masks, done, err
}

// ExecHost executes a command of the host that a rule allows.
func (e *Engine) ExecHost(ctx context.Context, c sandboxmcp.Caller, cmd sandboxmcp.HostCommand) (sandboxmcp.HostOutput, error) {
	c, masks, done, err := e.hostTurn(ctx, c, e.commands)
	if err != nil {
		return sandboxmcp.HostOutput{}, err
	}
	defer done()
	return e.host.Exec(ctx, c, cmd, masks)
}

// RequestHostAccess asks a person to allow a command. It waits up to ask.Wait for the answer.
func (e *Engine) RequestHostAccess(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.HostAsk) (sandboxmcp.AccessAnswer, error) {
	c, masks, err := e.hostCaller(ctx, c)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	return e.host.Request(ctx, c, ask, masks)
}

// DecideHostAccess carries out a decision of a person about a command. No MCP tool may call
// it. It accepts EveryNamespace for a decision with an ID.
func (e *Engine) DecideHostAccess(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	c, err := e.decider(ctx, c, d)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	return e.host.Decide(ctx, c, d)
}

// RevokeHostAccess withdraws what persons have allowed in one namespace. It fails with
// request_not_found if there is no such grant.
func (e *Engine) RevokeHostAccess(ctx context.Context, c sandboxmcp.Caller, pattern string) (sandboxmcp.AccessRevoked, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.AccessRevoked{}, err
	}
	return e.host.Revoke(ctx, c, pattern)
}

// HostAccess lists the rules of host commands. It accepts EveryNamespace.
func (e *Engine) HostAccess(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.HostAccess, error) {
	l, err := e.host.List(ctx, e.listed(c))
	if err == nil {
		l.Approved, err = e.usable(ctx, l.Approved)
	}
	return l, err
}

// ReadHostFile reads a file of the host.
func (e *Engine) ReadHostFile(ctx context.Context, c sandboxmcp.Caller, r sandboxmcp.HostRead) (sandboxmcp.HostContent, error) {
	c, masks, done, err := e.hostTurn(ctx, c, e.hostFiles)
	if err != nil {
		return sandboxmcp.HostContent{}, err
	}
	defer done()
	return e.host.Files.Read(ctx, c, r, masks)
}

// WriteHostFile writes a file of the host.
func (e *Engine) WriteHostFile(ctx context.Context, c sandboxmcp.Caller, w sandboxmcp.HostWrite) (sandboxmcp.HostWritten, error) {
	c, masks, done, err := e.hostTurn(ctx, c, e.hostFiles)
	if err != nil {
		return sandboxmcp.HostWritten{}, err
	}
	defer done()
	return e.host.Files.Write(ctx, c, w, masks)
}

// ListHostFiles lists a directory of the host.
func (e *Engine) ListHostFiles(ctx context.Context, c sandboxmcp.Caller, path string) (sandboxmcp.HostListing, error) {
	c, masks, done, err := e.hostTurn(ctx, c, e.hostFiles)
	if err != nil {
		return sandboxmcp.HostListing{}, err
	}
	defer done()
	return e.host.Files.List(ctx, c, path, masks)
}

// CopyHostFile copies a file of the host into a session, or into the workspace.
func (e *Engine) CopyHostFile(ctx context.Context, c sandboxmcp.Caller, cp sandboxmcp.HostCopy) (sandboxmcp.HostCopied, error) {
	c, masks, done, err := e.hostTurn(ctx, c, e.hostFiles)
	if err != nil {
		return sandboxmcp.HostCopied{}, err
	}
	defer done()
	if cp.SessionID == "" {
		return e.host.Files.Copy(ctx, c, cp, masks, nil)
	}
	return e.host.Files.Copy(ctx, c, cp, masks, func(name string, content []byte) (string, error) {
		_, path, err := e.Upload(ctx, c, sandboxmcp.Upload{SessionID: cp.SessionID, Name: name, Content: content, Overwrite: true})
		return path, err
	})
}
