package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

func (a *call) setupCommand() *cobra.Command {
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

func (a *call) setupRecipe(r environment.Recipe) *cobra.Command {
	var (
		o         app.SetupOptions
		writeLock string
	)
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
	f.StringVar(&o.Lock, "lock", "", "install the packages of the lock `FILE`, by their hashes")
	f.StringVar(&writeLock, "write-lock", "", "write names, versions and hashes to `FILE`")
	f.BoolVar(&o.Upgrade, "upgrade", false, "take the newest packages, not those that were chosen before")
	f.BoolVar(&o.Verify, "verify", false, "hash every installed file and install nothing")
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if o.Verify && (o.Lock != "" || o.Upgrade) || o.Lock != "" && o.Upgrade {
			return app.Usage("--lock, --upgrade and --verify exclude each other")
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		began := time.Now()
		report, err := a.Setup(ctx, cfg, r, o)
		if err != nil {
			return err
		}
		if writeLock != "" {
			if err := writeFile(writeLock, report.Lock); err != nil {
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

func (a *call) showSetup(r environment.Report, took time.Duration) {
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

func (a *call) setupList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the package sets that are installed",
		Long:    "Shows the package sets of the state directory, for which Python each is and what\nis in it.",
		Example: `  sandboxmcp setup list --json`,
		Args:    takes(),
	}
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(context.Context, []string) error {
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		sets, fault := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)}).All()
		if fault != nil {
			a.Say("not everything can be used: " + fault.Error())
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

func (a *call) setupRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a package set",
		Long: `Removes a package set and the hashes that were kept of it. A program that runs
with it may fail to import what it has not imported yet.`,
		Example: `  sandboxmcp setup remove science`,
		Args:    takes("NAME"),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		gone, err := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)}).Remove(ctx, args[0])
		if err != nil {
			return err
		}
		digests := []string{}
		for _, s := range gone {
			digests = append(digests, s.Digest)
		}
		return a.answer(a.json, map[string]any{"removed": args[0], "digests": digests}, func() { a.print("removed " + app.Clean(args[0]) + "\n") })
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
