//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rowRunscRun  = "runsc run, python"
	rowRunscExec = "runsc exec, a warm container, python"
	runscWarm    = "bench-warm"
)

// gvisor runs containers of gVisor, in a root file system that docker's image has, too.
type gvisor struct {
	path, state, root string // program, its state, root file system
	group             string
	next              int
}

// gvisorModes returns two modes: a new container for each run, and exec in a container.
func (b *bed) gvisorModes(ctx context.Context, i interpreter) []mode {
	g, err := b.startGvisor(ctx)
	if err != nil {
		return []mode{{rows: []string{rowRunscRun}, skip: err.Error()}, {rows: []string{rowRunscExec}, skip: err.Error()}}
	}
	argv := []string{"/usr/bin/python3", "-c", i.hello()}
	run := b.one(rowRunscRun, i.bare(), func(ctx context.Context) (time.Duration, error) {
		g.next++
		id := fmt.Sprintf("bench-%d", g.next)
		bundle, err := g.bundle(ctx, b, id, argv)
		if err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(bundle) }()
		return b.command(ctx, g.program("run", "-bundle", bundle, id))
	})
	exec := b.one(rowRunscExec, i.bare(), func(ctx context.Context) (time.Duration, error) {
		return b.command(ctx, g.program(append([]string{"exec", runscWarm}, argv...)...))
	})
	run.every, exec.every = 6, 3
	return []mode{exec, run}
}

// startGvisor starts the container in which programs are executed.
func (b *bed) startGvisor(ctx context.Context) (*gvisor, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("runsc is measured as root only, which its default walls need")
	}
	programs, _ := filepath.Glob(filepath.Join(b.o.gvisor, "*", "runsc"))
	root := filepath.Join(b.o.docker, "root")
	if _, err := os.Stat(filepath.Join(root, "usr")); err != nil || len(programs) == 0 {
		return nil, errors.New("not installed (scripts/peers.sh builds it)")
	}
	state, err := b.dir("gvisor")
	if err != nil {
		return nil, err
	}
	g := &gvisor{path: programs[len(programs)-1], state: state, root: root, group: fmt.Sprintf("smbench-gvisor-%d", os.Getpid())}
	b.closers = append(b.closers, func() error { return g.close(context.WithoutCancel(ctx)) })
	bundle, err := g.bundle(ctx, b, runscWarm, []string{"/bin/sleep", "3600"})
	if err != nil {
		return nil, err
	}
	return g, g.do(ctx, "run", "-detach", "-bundle", bundle, runscWarm)
}

// bundle makes the directory of a container, as `runsc spec` does.
func (g *gvisor) bundle(ctx context.Context, b *bed, id string, argv []string) (string, error) {
	dir, err := b.dir("bundle")
	if err != nil {
		return "", err
	}
	if err = g.do(ctx, append([]string{"spec", "-bundle", dir, "--"}, argv...)...); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read bundle: %w", err)
	}
	var spec map[string]any
	if err = json.Unmarshal(data, &spec); err != nil {
		return "", fmt.Errorf("read bundle: %w", err)
	}
	spec["root"] = map[string]any{"path": g.root, "readonly": true}
	if linux, ok := spec["linux"].(map[string]any); ok {
		linux["cgroupsPath"] = "/" + g.group + "/" + id
	}
	if data, err = json.Marshal(spec); err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write bundle: %w", err)
	}
	return dir, nil
}

func (g *gvisor) program(args ...string) program {
	return program{env: []string{"PATH=" + cleanPath, "HOME=" + g.state}, argv: append([]string{g.path, "-root", g.state, "-network", "none"}, args...)}
}

func (g *gvisor) do(ctx context.Context, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	p := g.program(args...)
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Env = p.env
	cmd.WaitDelay = time.Second
	var said strings.Builder
	if args[0] != "run" { // a container that continues keeps the streams
		cmd.Stderr = &said
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runsc %s: %w %s", args[0], err, said.String())
	}
	return nil
}

// close ends the container. runsc leaves a mount in its state directory.
func (g *gvisor) close(ctx context.Context) error {
	err := g.do(ctx, "delete", "-force", runscWarm)
	_ = unix.Unmount(filepath.Join(g.state, "null-netns"), unix.MNT_DETACH)
	removeGroups(g.group)
	return err
}

// gvisorVersion returns the version of the runsc that is measured.
func gvisorVersion(dir string) string {
	programs, _ := filepath.Glob(filepath.Join(dir, "*", "runsc"))
	if len(programs) == 0 {
		return "runsc is not installed"
	}
	return "runsc " + filepath.Base(filepath.Dir(programs[len(programs)-1]))
}
