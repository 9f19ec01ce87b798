package kernel_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// outcome is how a planned program ended when it was run without a sandbox.
type outcome struct {
	Stdout, Stderr string
	Code           int // -1: by a signal
	Signal         string
	kernel.Report
}

// places are the directories used as ProgramDir and WorkDir.
type places struct{ program, work string }

// command puts the files of a plan in place and returns its command, which has no streams yet.
// names changes the names of the directories in what comes back to the real ones.
func (at places) command(ctx context.Context, t testing.TB, plan backend.Process) (cmd *exec.Cmd, names *strings.Replacer) {
	t.Helper()
	for _, f := range plan.Program {
		if err := os.WriteFile(filepath.Join(at.program, f.Name), f.Data, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	in := strings.NewReplacer(backend.ProgramDir, at.program, backend.WorkDir, at.work)
	cmd = exec.CommandContext(ctx, plan.Argv[0])
	cmd.Dir = at.work
	for _, a := range plan.Argv[1:] {
		cmd.Args = append(cmd.Args, in.Replace(a))
	}
	for _, e := range plan.Env {
		cmd.Env = append(cmd.Env, in.Replace(e))
	}
	return cmd, strings.NewReplacer(at.program, backend.ProgramDir, at.work, backend.WorkDir)
}

// run carries out a plan as a backend would, but without walls: ProgramDir and
// WorkDir are temporary directories, and their names in what comes back are
// changed to the real ones.
func run(t *testing.T, p kernel.Program) outcome {
	t.Helper()
	return runIn(t, p, places{t.TempDir(), t.TempDir()})
}

func runIn(t *testing.T, p kernel.Program, at places) outcome {
	t.Helper()
	plan, err := kernel.Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd, out := at.command(ctx, t, plan)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	report := make(chan kernel.Report, 1)
	if plan.Channels > 0 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd.ExtraFiles = []*os.File{w}
		defer func() { _ = w.Close() }()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		go func() {
			rep, err := kernel.Read(r, nil)
			if err != nil {
				t.Error(err)
			}
			report <- rep
		}()
	} else {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		report <- kernel.Report{}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o := outcome{Code: cmd.ProcessState.ExitCode(), Report: <-report}
	if o.Code == -1 {
		o.Signal = cmd.ProcessState.String()
	}
	o.Stdout, o.Stderr = out.Replace(stdout.String()), out.Replace(stderr.String())
	if o.Error != nil {
		for i, l := range o.Error.Traceback {
			o.Error.Traceback[i] = out.Replace(l)
		}
	}
	return o
}
