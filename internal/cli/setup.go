package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/runtimes"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

func (a *app) setupCommand() *cobra.Command {
	var cmds []*cobra.Command
	for _, r := range environment.Recipes() {
		cmds = append(cmds, a.setupRecipe(r))
	}
	return a.group(&cobra.Command{
		Use:     "setup",
		Short:   "Install packages that programs can import",
		Long:    "Installs sets of Python packages into the state directory, from which every\nPython program can import them without a network.",
		Example: "  sandboxmcp setup science",
	}, append(cmds, a.setupList(), a.setupRemove())...)
}

// setupOptions are the flags of an installation.
type setupOptions struct {
	lock, writeLock string
	upgrade, verify bool
}

func (a *app) setupRecipe(r environment.Recipe) *cobra.Command {
	var o setupOptions
	cmd := &cobra.Command{
		Use:   r.Name,
		Short: "Install " + strings.Join(r.Packages[:3], ", ") + " and others for Python",
		Long: `Installs ` + fold(strings.Join(r.Packages, ", ")) + `
and what they need for the Python that programs are run with. The interpreter's
own pip fetches them, with your settings of index and proxy, as wheels only, so
that no code of theirs runs outside of a sandbox. What is installed is what was
hashed; the hashes are kept, and a second call, or another machine with --lock,
installs the same packages again or none. A set that is there is checked.`,
		Example: `  sandboxmcp setup ` + r.Name + `
  sandboxmcp setup ` + r.Name + ` --write-lock packages.lock
  sandboxmcp setup ` + r.Name + ` --lock packages.lock`,
		Args: takes(),
	}
	a.withConfig(a.withJSON(cmd))
	f := cmd.Flags()
	f.StringVar(&o.lock, "lock", "", "install the packages of the lock `FILE`, by their hashes")
	f.StringVar(&o.writeLock, "write-lock", "", "write names, versions and hashes to `FILE`")
	f.BoolVar(&o.upgrade, "upgrade", false, "take the newest packages, not those that were chosen before")
	f.BoolVar(&o.verify, "verify", false, "hash every installed file and install nothing")
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if o.verify && (o.lock != "" || o.upgrade) || o.lock != "" && o.upgrade {
			return usage("--lock, --upgrade and --verify exclude each other")
		}
		cfg, err := a.load()
		if err != nil {
			return err
		}
		began := time.Now()
		report, err := a.setup(ctx, cfg, r, o)
		if err != nil {
			return err
		}
		if o.writeLock != "" {
			if err := writeFile(o.writeLock, report.Lock); err != nil {
				return err
			}
		}
		a.showSetup(report, time.Since(began))
		return nil
	})
}

// fold breaks a line of help where it gets too long.
func fold(text string) string {
	const width = 70
	var out strings.Builder
	for n, w := range strings.Fields(text) {
		if i := strings.LastIndexByte(out.String(), '\n'); n > 0 && out.Len()-i+len(w) > width {
			out.WriteByte('\n')
		} else if n > 0 {
			out.WriteByte(' ')
		}
		out.WriteString(w)
	}
	return out.String()
}

// maxLock is more than a lock file has.
const maxLock = 16 << 20

// setup sees to it that a set is there, and that it works in a sandbox.
func (a *app) setup(ctx context.Context, cfg *config.Config, r environment.Recipe, o setupOptions) (environment.Report, error) {
	library := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)})
	var lock []byte
	if o.lock != "" {
		var err error
		if lock, err = plainfile.Read(o.lock, maxLock); err != nil {
			return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--lock %s cannot be read: %s", sandboxmcp.Quote(o.lock), err).WithCause(err)
		}
	}
	python, err := a.python(ctx)
	if err != nil {
		return environment.Report{}, err
	}
	if o.verify {
		return a.verifySet(ctx, library, r, python)
	}
	if err = prepareState(ctx, cfg); err != nil {
		return environment.Report{}, err
	}
	order := environment.Order{Recipe: r, Python: python, Env: a.env, Upgrade: o.upgrade, Say: a.progress, Lock: lock}
	return a.install(ctx, cfg, library, order)
}

// install installs a set and tries it in a sandbox.
func (a *app) install(ctx context.Context, cfg *config.Config, library *environment.Library, order environment.Order) (environment.Report, error) {
	report, err := library.Install(ctx, order)
	if err != nil || report.Already {
		return report, err
	}
	a.progress("importing them in a sandbox")
	err = a.withEngine(ctx, cfg, func(e runner) error { return a.tried(ctx, e, library, report.Set, order.Recipe) })
	return report, err
}

// tried tries a set, and takes it away when it does not work.
func (a *app) tried(ctx context.Context, e runner, library *environment.Library, s environment.Set, r environment.Recipe) error {
	err := a.try(ctx, e, library, s, r)
	if err != nil {
		if failed := library.Discard(context.WithoutCancel(ctx), s); failed != nil {
			a.say(failed.Error())
		}
	}
	return err
}

// trialTimeout leaves a slow disk its time; a lower ceiling holds.
const trialTimeout = 300

// try runs the trial of a set and keeps what it worked out for later runs. Where no
// sandbox can be built, nothing is tried, and that is said.
func (a *app) try(ctx context.Context, e runner, library *environment.Library, s environment.Set, r environment.Recipe) error {
	res, err := e.Execute(ctx, sandboxmcp.Caller{Actor: "cli"}, sandboxmcp.Request{Code: r.Trial, FileName: "trial.py", Limits: sandboxmcp.Limits{TimeoutSeconds: trialTimeout}})
	switch {
	case sandboxmcp.CodeOf(err) == sandboxmcp.CodeIsolationUnavailable:
		a.say("the packages were not tried: " + err.Error())
		return nil
	case err != nil:
		return err
	case !res.Success:
		return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the packages do not work in a sandbox (%s): %s", res.Status, lastLine(res.Stderr)).
			WithHint("try again with --upgrade, or with another lock")
	}
	for _, f := range res.Artifacts {
		kept, err := e.ArtifactContent(ctx, sandboxmcp.Caller{Namespace: res.Namespace}, res.RequestID, f.Name)
		if err == nil {
			err = library.Keep(s, f.Name, kept.ContentB64)
		}
		if err != nil {
			a.progress(err.Error())
		}
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return oneLine(text[strings.LastIndexByte(text, '\n')+1:])
}

func (a *app) verifySet(ctx context.Context, library *environment.Library, r environment.Recipe, p environment.Python) (environment.Report, error) {
	for _, s := range library.Active(p) {
		if s.Name != r.Name {
			continue
		}
		if err := library.Verify(ctx, s); err != nil {
			return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the installed %s packages are not whole: %s", r.Name, err).
				WithHint("run `sandboxmcp setup " + r.Name + "`")
		}
		return environment.Report{Set: s, Already: true}, nil
	}
	if _, err := library.All(); err != nil {
		return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the installed %s packages are not whole: %s", r.Name, err).
			WithHint("run `sandboxmcp setup " + r.Name + "`")
	}
	return environment.Report{}, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the %s packages are not installed for Python %s", r.Name, p.Version).
		WithHint("run `sandboxmcp setup " + r.Name + "`")
}

// prepareState makes the state directory as every command has it, before
// anything is put into it.
func prepareState(ctx context.Context, cfg *config.Config) error {
	s, err := store.Open(ctx, store.Config{Dir: cfg.StateDir, SQLitePath: cfg.SQLitePath})
	if err != nil {
		return err
	}
	return s.Close()
}

// python is the interpreter that programs are run with.
func (a *app) python(ctx context.Context) (environment.Python, error) {
	set := runtimes.New(runtimes.Config{Path: a.variable("PATH"), HomeEnv: a.env})
	in, err := set.Find(ctx, sandboxmcp.Python)
	if err != nil {
		return environment.Python{}, err
	}
	return environment.Python{Path: in.Path, Version: in.Version}, nil
}

// progress says on a terminal how far something is.
func (a *app) progress(text string) {
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		a.say(text)
	}
}

// setupReport is a set as --json shows it.
type setupReport struct {
	Name      string              `json:"name"`
	Python    environment.Built   `json:"python"`
	Digest    string              `json:"digest"`
	Directory string              `json:"directory"`
	Requested []string            `json:"requested"`
	Packages  []environment.Wheel `json:"packages"`
	Files     environment.Files   `json:"files"`
}

func setReport(s environment.Set) setupReport {
	return setupReport{s.Name, s.Python, s.Digest, s.Dir, s.Requested, s.Wheels, s.Files}
}

func (a *app) showSetup(r environment.Report, took time.Duration) {
	if a.json {
		a.printJSON(struct {
			setupReport
			Already bool    `json:"already"`
			Pip     string  `json:"pip,omitempty"`
			Fetched int64   `json:"fetched_bytes"`
			Seconds float64 `json:"seconds"`
		}{setReport(r.Set), r.Already, r.Pip, r.Fetched, float64(took.Milliseconds()) / 1000})
		return
	}
	for _, w := range r.Set.Wheels {
		a.print(w.Name + " " + w.Version + "\n")
	}
	a.print(setupSummary(r) + "\n")
}

func setupSummary(r environment.Report) string {
	text := fmt.Sprintf("%s: %d packages for Python %s, %d MiB", r.Set.Name, len(r.Set.Wheels), r.Set.Python.Version, r.Set.Files.Bytes>>20)
	if r.Already {
		return text + ", installed before and whole"
	}
	return text + fmt.Sprintf(", from %d wheels of %d MiB that pip %s fetched", len(r.Set.Wheels), r.Fetched>>20, r.Pip)
}

func (a *app) setupList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the package sets that are installed",
		Long:    "Shows the package sets of the state directory, for which Python each is and what\nis in it.",
		Example: `  sandboxmcp setup list --json`,
		Args:    takes(),
	}
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(context.Context, []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		sets, fault := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)}).All()
		if fault != nil {
			a.say("not everything can be used: " + fault.Error())
		}
		if a.json {
			list := []setupReport{}
			for _, s := range sets {
				list = append(list, setReport(s))
			}
			a.printJSON(map[string]any{"sets": list})
			return nil
		}
		rows := [][]string{{"SET", "PYTHON", "MIB", "PACKAGES"}}
		for _, s := range sets {
			rows = append(rows, []string{s.Name, s.Python.Version, strconv.FormatInt(s.Files.Bytes>>20, 10), strings.Join(s.Packages(), " ")})
		}
		a.table(rows)
		return nil
	})
}

func (a *app) setupRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a package set",
		Long: `Removes a package set and the hashes that were kept of it. A program that runs
with it may fail to import what it has not imported yet.`,
		Example: `  sandboxmcp setup remove science`,
		Args:    takes("NAME"),
	}
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		gone, err := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)}).Remove(ctx, args[0])
		if err != nil {
			return err
		}
		digests := []string{}
		for _, s := range gone {
			digests = append(digests, s.Digest)
		}
		if a.json {
			a.printJSON(map[string]any{"removed": args[0], "digests": digests})
			return nil
		}
		a.print("removed " + clean(args[0]) + "\n")
		return nil
	})
}

// writeFile writes a file of the user's as a whole.
func writeFile(name string, data []byte) error {
	dir, err := openOut(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.close()
	return dir.write(filepath.Base(name), data)
}
