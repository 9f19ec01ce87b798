package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// eitherVersion returns a tree of each version that can be written here.
func eitherVersion(t *testing.T) map[string]*Tree {
	t.Helper()
	all := map[string]*Tree{"version 2": unified(t)}
	if s, err := survey(Config{}); err == nil {
		if tree, err := s.open1(); err == nil {
			closeAfter(t, tree)
			all["version 1"] = tree
		}
	}
	return all
}

// status returns where a process is and how much processor time it has used, in ticks.
func status(t *testing.T, pid int) (group, ticks string) {
	t.Helper()
	where, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	stat, statErr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err = errors.Join(err, statErr); err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))
	return string(where), f[12] + " " + f[13]
}

// TestFreezeStopsAGroup: all processes but one stop and go on where they were. They can be
// killed, and a group that was frozen is removed like any other.
func TestFreezeStopsAGroup(t *testing.T) {
	for name, tree := range eitherVersion(t) {
		t.Run(name, func(t *testing.T) {
			if !tree.Freezes() {
				t.Skip("groups cannot be frozen here")
			}
			g, entry := groupG(t, tree)
			var busy []*exec.Cmd
			for range 3 {
				script := ""
				for i := range entry.Tasks {
					script += fmt.Sprintf("echo 0 >&%d; ", i+3)
				}
				cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script+"echo up; while :; do :; done")
				cmd.ExtraFiles = entry.Tasks
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err == nil {
					_, err = out.Read(make([]byte, 3))
				}
				if err != nil {
					t.Fatal(err)
				}
				busy = append(busy, cmd)
			}
			except, frozen := busy[0].Process.Pid, busy[1].Process.Pid
			at, _ := status(t, frozen)
			for range 2 {
				if err := g.Freeze(t.Context(), except); err != nil {
					t.Fatal(err)
				}
				_, before := status(t, frozen)
				_, other := status(t, except)
				testkit.Until(t, "the other process runs", func() bool { _, now := status(t, except); return now != other })
				if _, now := status(t, frozen); now != before {
					t.Errorf("while it is frozen: it used %s, then %s", before, now)
				}
				if err := g.Thaw(t.Context()); err != nil {
					t.Fatal(err)
				}
				testkit.Until(t, "the thawed process runs", func() bool { _, now := status(t, frozen); return now != before })
				if now, _ := status(t, frozen); now != at {
					t.Errorf("after Thaw it is in %q, want %q", now, at)
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := g.Freeze(ended, except); !errors.Is(err, context.Canceled) {
				t.Errorf("with an ended context: got %v, want %v", err, context.Canceled)
			}
			for _, cmd := range busy {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			if err := g.Remove(); err != nil {
				t.Errorf("Remove of a frozen group: %v", err)
			}
			if err := g.Freeze(t.Context(), 0); err == nil {
				t.Error("Freeze after Remove: no error")
			}
			if err := g.Thaw(t.Context()); err != nil {
				t.Errorf("Thaw after Remove: %v", err)
			}
		})
	}
}

// TestFreezeWithoutAFirstThread: a process whose first thread has ended stops like others, and goes on.
func TestFreezeWithoutAFirstThread(t *testing.T) {
	const leaderless = `
import ctypes, os, sys, threading
def go():
    while os.path.exists("/proc/self/task/%d/fd/0" % os.getpid()): pass
    print("up", flush=True)
    while True: pass
for fd in map(int, sys.argv[1:]): os.write(fd, b"0")
threading.Thread(target=go).start()
ctypes.CDLL(None).pthread_exit(None)
`
	for name, tree := range eitherVersion(t) {
		t.Run(name, func(t *testing.T) {
			if !tree.Freezes() {
				t.Skip("groups cannot be frozen here")
			}
			g, entry := groupG(t, tree)
			argv := []string{"-I", "-c", leaderless}
			for i := range entry.Tasks {
				argv = append(argv, strconv.Itoa(i+3))
			}
			cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", argv...)
			cmd.ExtraFiles = entry.Tasks
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			testkit.Need(t, "python", err == nil, "no /usr/bin/python3")
			if _, err = out.Read(make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range 2 {
				if err = g.Freeze(ctx, 0); err != nil {
					t.Fatalf("Freeze: got %v, want nil", err)
				}
				_, before := status(t, cmd.Process.Pid)
				if err = g.Thaw(ctx); err != nil {
					t.Fatalf("Thaw: got %v, want nil", err)
				}
				testkit.Until(t, "the thawed process runs", func() bool { _, now := status(t, cmd.Process.Pid); return now != before })
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if err = g.Remove(); err != nil {
				t.Errorf("Remove: got %v, want nil", err)
			}
		})
	}
}

// TestFreezeBlocksNoOtherMethod: while a group is slow to freeze, its limits are lifted and
// its counters are read. The end of a sandbox needs the former, and the watch of all
// sandboxes the latter.
func TestFreezeBlocksNoOtherMethod(t *testing.T) {
	dir := t.TempDir()
	fill := func(path string) { // it never says that it is frozen
		for _, name := range []string{freezeFile, procsFile, threadsFile, "cgroup.events"} {
			if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "g"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(filepath.Join(dir, "g"))
	f, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := &Group{tree: &Tree{version: 2, hierarchies: []*hierarchy{{directory: directory{file: f, path: dir, plain: true, made: fill}}}}, name: "g"}
	ctx, cancel := context.WithCancel(t.Context())
	frozen := make(chan error, 1)
	go func() { frozen <- g.Freeze(ctx, 0) }()
	testkit.UntilEqual(t, freezeFile, "1", func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "g/frozen", freezeFile))
		return string(b)
	})
	others := make(chan struct{})
	go func() {
		defer close(others)
		g.CPU()
		if err := g.LiftQuota(); err != nil {
			t.Errorf("LiftQuota: %v", err)
		}
	}()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case <-others:
	case <-limit.C:
		t.Error("other methods wait for Freeze")
	}
	cancel()
	if err := <-frozen; !errors.Is(err, context.Canceled) {
		t.Errorf("Freeze: got %v, want %v", err, context.Canceled)
	}
	<-others
}
