//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rowDockerExec = "docker exec, a warm container, python"
	rowDockerRun  = "docker run --rm, python"
	dockerImage   = "bench:python"
	dockerWarm    = "bench-warm"
)

// docker is a separate docker engine. Its socket, data and containerd are in a temporary
// directory. It changes neither bridges nor packet filters.
type docker struct {
	dir, tools string
	fresh      bool // /run/docker did not exist before
	group      string
	cmd        *exec.Cmd
}

// dockerModes starts a docker engine and returns two modes: a new container for each run,
// and exec in a container. They are slow and run in fewer rounds.
func (b *bed) dockerModes(ctx context.Context, i interpreter) []mode {
	d, err := b.startDocker(ctx)
	if err != nil {
		return []mode{{rows: []string{rowDockerExec}, skip: err.Error()}, {rows: []string{rowDockerRun}, skip: err.Error()}}
	}
	row := func(name string, every int, args ...string) mode {
		p := d.program(append(args, "/usr/bin/python3", "-c", i.hello())...)
		m := b.one(name, i.bare(), func(ctx context.Context) (time.Duration, error) { return b.command(ctx, p) })
		m.every = every
		return m
	}
	return []mode{
		row(rowDockerExec, 3, "exec", dockerWarm),
		row(rowDockerRun, 6, "run", "--rm", "--network", "none", dockerImage),
	}
}

func (b *bed) startDocker(ctx context.Context) (*docker, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("docker's engine needs root")
	}
	d := &docker{tools: b.o.docker, group: fmt.Sprintf("smbench-docker-%d", os.Getpid())}
	if _, err := os.Stat(filepath.Join(d.tools, "root.tar")); err != nil {
		return nil, errors.New("not installed (scripts/peers.sh installs it)")
	}
	var err error
	// The path of a socket must be short.
	if d.dir, err = os.MkdirTemp("/tmp", "smdk."); err != nil {
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	_, err = os.Stat("/run/docker")
	d.fresh = os.IsNotExist(err)
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	b.closeDocker = func() error { return d.close(ctx) }
	return d, nil
}

// start starts the engine, and makes the image and one waiting container.
func (d *docker) start(ctx context.Context) error {
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer func() { _ = log.Close() }()
	at := func(name string) string { return filepath.Join(d.dir, name) }
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(d.tools, "usr/sbin/dockerd"),
		"--host", "unix://"+at("s"), "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("pid"), "--cgroup-parent", "/"+d.group,
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	d.cmd.Env, d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = d.env(), d.dir, log, log
	// In its own network namespace it finds no bridge of another engine, which it would remove.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if err = d.cmd.Start(); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	for range 150 {
		if err = d.do(ctx, "version"); err == nil {
			break
		}
		pause(ctx, 100*time.Millisecond)
	}
	if err == nil {
		err = d.do(ctx, "import", filepath.Join(d.tools, "root.tar"), dockerImage)
	}
	if err == nil {
		err = d.do(ctx, "run", "--detach", "--name", dockerWarm, "--network", "none", dockerImage, "/bin/sleep", "3600")
	}
	return err
}

func (d *docker) env() []string {
	t := d.tools
	return []string{
		"PATH=" + t + "/usr/sbin:" + t + "/usr/bin:" + cleanPath, "HOME=" + d.dir, "DOCKER_HOST=unix://" + filepath.Join(d.dir, "s"),
		"LD_LIBRARY_PATH=" + libraries(t),
	}
}

// libraries returns the library directories below a root, separated by colons.
func libraries(root string) string {
	var out []string
	for _, pattern := range []string{"/lib/*-linux-gnu*", "/usr/lib/*-linux-gnu*"} {
		found, _ := filepath.Glob(root + pattern)
		out = append(out, found...)
	}
	return strings.Join(out, ":")
}

// program returns a call of the docker command.
func (d *docker) program(args ...string) program {
	return program{env: d.env(), argv: append([]string{filepath.Join(d.tools, "usr/bin/docker")}, args...)}
}

func (d *docker) do(ctx context.Context, args ...string) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	p := d.program(args...)
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Env = p.env
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("docker %s: %w%s", args[0], err, stderrOf(err))
	}
	return nil
}

// close ends containers and engine and removes their files.
func (d *docker) close(ctx context.Context) error {
	var errs []error
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.do(context.WithoutCancel(ctx), "rm", "--force", dockerWarm)
		_ = d.cmd.Process.Signal(unix.SIGTERM)
		t := time.AfterFunc(20*time.Second, func() { _ = d.cmd.Process.Kill() })
		if err := d.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("end dockerd: %w", err))
		}
		t.Stop()
	}
	removeGroups(d.group)
	if d.fresh {
		_ = os.Remove("/run/docker/plugins")
		_ = os.Remove("/run/docker")
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// dockerVersion returns the version that docker reports.
func dockerVersion(ctx context.Context, tools string) string {
	out, err := exec.CommandContext(ctx, filepath.Join(tools, "usr/bin/docker"), "--version").Output()
	if err != nil {
		return "docker is not installed"
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "Docker version "), ",")
	return "docker " + version
}
