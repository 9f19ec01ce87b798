package app

import (
	"context"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// SetupOptions are the flags of setup.
type SetupOptions struct {
	Lock            string // lock file; empty: none
	Upgrade, Verify bool
}

// maxLock bounds the bytes of a lock file.
const maxLock = 16 << 20

// Setup installs a package set unless it is installed already, and checks that it works in
// a sandbox.
func (a *App) Setup(ctx context.Context, cfg *config.Config, r environment.Recipe, o SetupOptions) (environment.Report, error) {
	library := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)})
	var lock []byte
	if o.Lock != "" {
		var err error
		if lock, err = plainfile.Read(o.Lock, maxLock); err != nil {
			return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--lock %s cannot be read: %s", sandboxmcp.Quote(o.Lock), err).WithCause(err)
		}
	}
	python, err := a.Python(ctx, cfg)
	if err != nil {
		return environment.Report{}, err
	}
	if o.Verify {
		return a.verifySet(ctx, library, r, python)
	}
	if err = prepareState(ctx, cfg); err != nil {
		return environment.Report{}, err
	}
	order := environment.Order{Recipe: r, Python: python, Env: a.Env, Avoid: Changeable(cfg), Upgrade: o.Upgrade, Say: a.Progress, Lock: lock}
	return a.install(ctx, cfg, library, order)
}

// install installs a set and tries it in a sandbox.
func (a *App) install(ctx context.Context, cfg *config.Config, library *environment.Library, order environment.Order) (environment.Report, error) {
	report, err := library.Install(ctx, order)
	if err != nil || report.Already {
		return report, err
	}
	a.Progress("importing them in a sandbox")
	err = a.WithEngine(ctx, cfg, func(e Engine) error { return a.Tried(ctx, e, library, report.Set, order.Recipe) })
	return report, err
}

// Tried checks that a package set works in a sandbox, and removes the set if it does not.
func (a *App) Tried(ctx context.Context, e Engine, library *environment.Library, s environment.Set, r environment.Recipe) error {
	err := a.try(ctx, e, library, s, r)
	if err != nil {
		if failed := library.Discard(context.WithoutCancel(ctx), s); failed != nil {
			a.Say(failed.Error())
		}
	}
	return err
}

// trialTimeout bounds the trial in seconds. It allows for a slow disk. The configured
// ceiling may be lower.
const trialTimeout = 300

// try runs the trial program of a package set and stores the caches that it wrote for later
// runs. If no sandbox can be built, it prints that the set was not tried.
func (a *App) try(ctx context.Context, e Engine, library *environment.Library, s environment.Set, r environment.Recipe) error {
	res, err := e.Execute(ctx, sandboxmcp.Caller{Actor: "cli"}, sandboxmcp.Request{Code: r.Trial, FileName: "trial.py", Limits: sandboxmcp.Limits{TimeoutSeconds: trialTimeout}})
	switch {
	case sandboxmcp.CodeOf(err) == sandboxmcp.CodeIsolationUnavailable:
		a.Say("the packages were not tried: " + err.Error())
		return nil
	case err != nil:
		return err
	case !res.Success:
		return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the packages do not work in a sandbox (%s): %s", res.Status, lastLine(res.Stderr)).
			WithHint("try --upgrade, or another lock file")
	}
	for _, f := range res.Artifacts {
		kept, err := e.ArtifactContent(ctx, sandboxmcp.Caller{Namespace: res.Namespace}, res.RequestID, f.Name)
		if err == nil {
			err = library.Keep(s, f.Name, kept.ContentB64)
		}
		if err != nil {
			a.Progress(err.Error())
		}
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return OneLine(text[strings.LastIndexByte(text, '\n')+1:])
}

func (a *App) verifySet(ctx context.Context, library *environment.Library, r environment.Recipe, p environment.Python) (environment.Report, error) {
	for _, s := range library.Active(p) {
		if s.Name != r.Name {
			continue
		}
		if err := library.Verify(ctx, s); err != nil {
			return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the installed %s packages are damaged: %s", r.Name, err).
				WithHint("run `sandboxmcp setup " + r.Name + "`")
		}
		return environment.Report{Set: s, Already: true}, nil
	}
	if _, err := library.All(); err != nil {
		return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the installed %s packages are damaged: %s", r.Name, err).
			WithHint("run `sandboxmcp setup " + r.Name + "`")
	}
	return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the %s packages are not installed for Python %s", r.Name, p.Version).
		WithHint("run `sandboxmcp setup " + r.Name + "`")
}

// prepareState creates the state directory as every command does.
func prepareState(ctx context.Context, cfg *config.Config) error {
	s, err := store.Open(ctx, storeOf(cfg))
	if err != nil {
		return err
	}
	return s.Close()
}

// Python returns the interpreter that programs are run with.
func (a *App) Python(ctx context.Context, cfg *config.Config) (environment.Python, error) {
	set := runtimes.New(runtimes.Config{Path: a.Variable("PATH"), HomeEnv: a.Env, Changeable: Changeable(cfg)})
	in, err := set.Find(ctx, sandboxmcp.Python)
	if err != nil {
		return environment.Python{}, err
	}
	return environment.Python{Path: in.Path, Version: in.Version}, nil
}

// Changeable returns the workspace, with its links resolved, if programs in sandboxes can change it. Otherwise it
// returns an empty text.
func Changeable(cfg *config.Config) string {
	if cfg.WorkspaceMode != "rw" || cfg.WorkspacePath == "" {
		return ""
	}
	return plainfile.Unlinked(cfg.WorkspacePath)
}

// Progress prints the progress of a task if stderr is a terminal.
func (a *App) Progress(text string) {
	if f, ok := a.Stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		a.Say(text)
	}
}
