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
		Long:    "Installs sets of Python packages into the state directory. Every Python program can\nimport them without a network.",
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
and their dependencies for the Python that programs are run with. The pip of that
Python fetches them with your settings of index and proxy. It fetches only wheels,
so that no code of the packages runs outside a sandbox. Their hashes are stored: a
second call, or --lock on another machine, installs exactly the same packages or
fails. A set that is already installed is checked.`,
		Example: `  sandboxmcp setup ` + r.Name + `
  sandboxmcp setup ` + r.Name + ` --write-lock packages.lock
  sandboxmcp setup ` + r.Name + ` --lock packages.lock`,
		Args: takes(),
	}
	a.withConfig(a.withJSON(cmd))
	f := cmd.Flags()
	f.StringVar(&o.Lock, "lock", "", "install exactly the packages in the lock `FILE`, by their hashes")
	f.StringVar(&writeLock, "write-lock", "", "write names, versions and hashes of the packages to the lock `FILE`")
	f.BoolVar(&o.Upgrade, "upgrade", false, "install the newest versions, not those of the last installation")
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

// fold wraps a long line of help.
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

// setupReport is a package set as --json prints it.
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
		return text + ", already installed and whole"
	}
	return text + fmt.Sprintf(", from %d wheels of %d MiB that pip %s fetched\nsessions that are live now do not have it; new ones do", len(r.Set.Wheels), r.Fetched>>20, r.Pip)
}

func (a *call) setupList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the installed package sets",
		Long: `Shows the package sets of the state directory, their packages, and the Python that
each set is for.`,
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
			a.Say("some package sets cannot be used: " + fault.Error())
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
		Long: `Removes a package set and its stored hashes. A running program that uses it may
fail to import more of its packages.`,
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

// writeFile replaces a file atomically.
func writeFile(name string, data []byte) error {
	dir, err := openOut(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.close()
	return dir.write(filepath.Base(name), data)
}
