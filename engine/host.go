package engine

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// changeable returns the workspace, with its links resolved, if programs in sandboxes can change its files. Otherwise it
// returns an empty string.
func (c *Config) changeable() string {
	if !c.WorkspaceRW {
		return ""
	}
	return plainfile.Unlinked(c.Workspace)
}

// started lists the directories with what this server starts outside of sandboxes: the interpreters on the PATH,
// which it asks for their versions, and the libraries of a Python; and the files with the certificates that it accepts of package indexes. A model that could write there would execute any
// program of the host. An interpreter may be a link, or a program of a version manager that starts another one.
func started(env []string) []string {
	var all []string
	for _, name := range []string{"NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NPM_CONFIG_CAFILE", "npm_config_cafile"} {
		if file := lookup(env, name); file != "" {
			all = append(all, file)
		}
	}
	add := func(dir string) {
		all = append(all, dir, filepath.Join(filepath.Dir(dir), "pyvenv.cfg")) // of a virtual environment
		python, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "lib*", "python3*"))
		for _, libraries := range python {
			all = append(all, filepath.Dir(libraries)) // with what the program is linked to
		}
		if err == nil && filepath.Base(dir) == "shims" {
			all = append(all, filepath.Dir(dir))
		}
	}
	for _, dir := range append(filepath.SplitList(lookup(env, "PATH")), lookup(env, "VIRTUAL_ENV")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		add(dir)
		for _, name := range []string{"python3", "python", "node", "nodejs", "bash", "sh"} {
			real, err := filepath.EvalSymlinks(filepath.Join(dir, name))
			if err == nil && filepath.Dir(real) != dir {
				add(filepath.Dir(real))
			}
		}
	}
	return all
}

// found lists the directories of the interpreters that this server has found: it starts them outside of sandboxes, and
// programs of all namespaces are executed by them.
func (e *Engine) found(ctx context.Context) ([]string, error) {
	b := e.backends[process.Name]
	if b == nil {
		return nil, nil
	}
	var all []string
	for _, l := range sandboxmcp.Languages() {
		in, err := b.Interpreter(ctx, l)
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeRuntimeUnavailable {
			continue
		}
		if err != nil { // an interpreter may be there nevertheless
			return nil, err
		}
		all = append(all, filepath.Dir(in.Path))
		for _, t := range in.Trees {
			all = append(all, t.Host)
		}
	}
	return all, nil
}

// openHost makes the part that runs host commands and accesses host files.
func (e *Engine) openHost() error {
	c := e.cfg
	own := append(linksIn(e.store.Dir()), e.store.Dir())
	if path := e.store.Path(); path != store.MemoryPath {
		own = append(own, path)
		if real, err := filepath.EvalSymlinks(path); err == nil {
			own = append(own, store.Beside(real)...)
		}
	}
	if c.KeysFrom != "" {
		own = append(append(own, c.KeysFrom), linksIn(c.KeysFrom)...)
	}
	own = append(own, c.keyFiles...)
	var obeyed []string
	if c.SettingsFile != "" { // it may have the keys of callers, and passwords
		own = append(own, c.SettingsFile)
	}
	if c.AuditCheckpointFile != "" {
		obeyed = append(obeyed, c.AuditCheckpointFile)
	}
	var begun []string
	if c.HostAccess {
		begun = append(started(c.ClientEnv), c.trusted...)
	}
	program, err := os.Executable()
	if err == nil {
		begun = append(begun, program)
	}
	e.host, err = host.New(host.Config{
		Enabled: c.HostAccess, AutoApprove: c.HostAutoApprove, Allowed: c.HostAllowed, Blocked: c.HostBlocked, Roots: c.HostRoots, Workspace: c.Workspace, Changeable: c.changeable(), Own: own, Obeyed: obeyed, Started: begun, Found: e.found,
		Store: e.store, Audit: e.audit, Key: e.key.Derive, Endings: e.endings, Invocation: c.Invocation, Notices: c.Notices, Now: c.Now, Logger: c.Logger,
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
	if c, err = e.caller(c); err != nil {
		return c, nil, nil, err
	}
	if done, err = inTurn(ctx, q, c); err != nil {
		return c, nil, nil, err
	}
	if masks, err = e.masks(ctx, c.Namespace, ""); err != nil { // only now: secrets may have come while it waited
		done()
		return c, nil, nil, err
	}
	return c, masks, done, nil
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
