package docker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// restart kills the engine of ENGINE_PIDFILE and returns when another one answers. scripts/engine.sh
// starts it again.
func restart(t *testing.T, api *dockerapi.Client) {
	t.Helper()
	killEngine(t)
	limit := time.Now().Add(time.Minute)
	for {
		err := api.Ping(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the engine was not started again: %v", err)
		}
		pause(t, 50*time.Millisecond)
	}
}

// killEngine kills the engine and returns when it has ended.
func killEngine(t *testing.T) {
	t.Helper()
	file := os.Getenv("ENGINE_PIDFILE")
	testkit.Need(t, "docker", file != "", "ENGINE_PIDFILE is not set")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		t.Fatalf("got %q %v, want a process id", text, err)
	}
	if err = syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(10 * time.Second)
	for syscall.Kill(pid, 0) == nil && time.Now().Before(limit) {
		pause(t, 10*time.Millisecond)
	}
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// ours returns the ids of the containers that this process owns.
func ours(t *testing.T, api *dockerapi.Client) []string {
	t.Helper()
	self, err := docker.Self()
	if err != nil {
		t.Fatal(err)
	}
	list, err := api.ContainerList(t.Context(), "sandboxmcp.owner="+self)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range list {
		_, err := api.ContainerInspect(t.Context(), c.ID)
		if !dockerapi.IsNotFound(err) { // an engine that was killed may list containers that it has removed (20.10)
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// volumes returns the names of the engine's volumes.
func volumes(t *testing.T, api *dockerapi.Client) []string {
	t.Helper()
	var list struct{ Volumes []struct{ Name string } }
	if err := api.Call(t.Context(), dockerapi.Request{Method: http.MethodGet, Path: "/volumes"}, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range list.Volumes {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}

// sockets counts the sockets of this process.
func sockets(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// eventually calls ok until it holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(limit) {
			t.Errorf("%s: it did not happen within 30 s", what)
			return
		}
		pause(t, 50*time.Millisecond)
	}
}

// sleeper opens a sandbox with a program that runs for long.
func sleeper(t *testing.T, b backend.Backend, id string) (backend.Sandbox, backend.Running) {
	t.Helper()
	s := spec(id)
	s.MemoryBytes, s.MaxTasks = 64<<20, 16
	sb := open(t, b, s)
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "1000"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	return sb, r
}

// TestEngineIsKilledWithTwentySandboxes: an engine that is killed and started again ends its
// containers. Every program is reported as lost, no sandbox can be used, all of them close without an
// error, the next one works, and neither containers, volumes, sockets nor directories are left.
func TestEngineIsKilledWithTwentySandboxes(t *testing.T) {
	testkit.Need(t, "docker", os.Getenv("ENGINE_PIDFILE") != "", "ENGINE_PIDFILE is not set")
	var dir string
	api, b := engine(t), newBackend(t, func(c *docker.Config) { dir = c.Dir; c.Process.NoPool = true })
	defer func() { _ = b.Close(t.Context()) }()
	engineDies(t, api, b, 20)
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("close the backend: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("got %v %v, want no directory of a container", list, err)
	}
}

// TestEngineIsKilledWithGVisor is the same with containers of the relay.
func TestEngineIsKilledWithGVisor(t *testing.T) {
	testkit.Need(t, "docker", os.Getenv("ENGINE_PIDFILE") != "", "ENGINE_PIDFILE is not set")
	var dir string
	api, b := engine(t), newRelayed(t, func(c *docker.Config) { dir = c.Dir; c.Process.NoPool = true })
	defer func() { _ = b.Close(t.Context()) }()
	engineDies(t, api, b, 3)
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("close the backend: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("got %v %v, want no directory of the relay", list, err)
	}
}

func engineDies(t *testing.T, api *dockerapi.Client, b backend.Backend, count int) {
	t.Helper()
	warm := open(t, b, spec("warm")) // so that everything is there that the backend keeps
	if err := warm.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	fds, before := sockets(t), volumes(t, api)
	earlier := ours(t, api) // of other tests of this process
	fresh := func() []string {
		return slices.DeleteFunc(ours(t, api), func(id string) bool { return slices.Contains(earlier, id) })
	}
	boxes, runs := make([]backend.Sandbox, count), make([]backend.Running, count)
	for i := range count {
		boxes[i], runs[i] = sleeper(t, b, fmt.Sprintf("twenty-%d", i))
	}
	if got := len(fresh()); got != count {
		t.Fatalf("got %d containers, want %d", got, count)
	}
	restart(t, api)
	for i, r := range runs {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		e, err := r.Wait(ctx)
		cancel()
		if err != nil || !e.Lost {
			t.Errorf("program %d: got %+v %v, want that it was lost", i, e, err)
		}
		if _, err = boxes[i].Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}}); err == nil {
			t.Errorf("sandbox %d: a program was started in a container that is gone", i)
		}
		if err = boxes[i].Close(t.Context()); err != nil {
			t.Errorf("sandbox %d: close: %v", i, err)
		}
	}
	if got := output(t, open(t, b, spec("after")), "echo fine"); got != "fine\n" {
		t.Errorf("got %q, want fine", got)
	}
	eventually(t, "one container is left", func() bool { return len(fresh()) == 1 })
	if list := fresh(); len(list) != 1 {
		for _, id := range list {
			c, err := api.ContainerInspect(t.Context(), id)
			t.Errorf("left: %s %+v %v", id, c.State, err)
		}
	}
	if got := volumes(t, api); !slices.Equal(got, before) {
		t.Errorf("got volumes %v, want %v", got, before)
	}
	const ofTheLast = 8 // sockets of the sandbox that is open
	eventually(t, "the sockets are closed", func() bool { return sockets(t) <= fds+ofTheLast })
}

// TestEngineIsGoneInTheMiddle: while no engine answers, a new sandbox fails with one error that says
// so, and after it has been started again, the same backend works.
func TestEngineIsGoneInTheMiddle(t *testing.T) {
	api, b := engine(t), newBackend(t, func(c *docker.Config) { c.Process.NoPool = true })
	defer func() { _ = b.Close(t.Context()) }()
	if err := open(t, b, spec("before")).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	killEngine(t)
	_, err := b.Open(t.Context(), spec("during"))
	if e := sandboxmcp.AsError(err); err == nil { // it may have been started again by now
		t.Log("the engine was back at once")
	} else if e.Code != sandboxmcp.CodeDockerUnavailable && e.Code != sandboxmcp.CodeDockerError || e.Hint == "" {
		t.Errorf("got %v (%s), want docker_unavailable or docker_error with a hint", err, e.Hint)
	}
	eventually(t, "the engine answers", func() bool { err := api.Ping(t.Context()); return err == nil })
	if got := output(t, open(t, b, spec("after")), "echo fine"); got != "fine\n" {
		t.Errorf("got %q, want fine", got)
	}
}

// TestOutOfMemoryOfTheContainer: if the kernel ends the container's first process for want of memory,
// the program is reported as lost and the sandbox closes.
func TestOutOfMemoryOfTheContainer(t *testing.T) {
	api, b := engine(t), newBackend(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, r := sleeper(t, b, "killed")
	ids := containers(t, api, "killed")
	if len(ids) != 1 {
		t.Fatalf("got %d containers, want 1", len(ids))
	}
	// The engine kills init as the kernel does when memory runs out.
	kill := dockerapi.Request{Method: http.MethodPost, Path: "/containers/" + ids[0] + "/kill", Query: url.Values{"signal": {"KILL"}}}
	if err := api.Call(t.Context(), kill, nil); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || !e.Lost {
		t.Errorf("got %+v %v, want that the program was lost", e, err)
	}
	if err := errors.Join(sb.Close(t.Context())); err != nil {
		t.Errorf("close: %v", err)
	}
	eventually(t, "the container is removed", func() bool { return len(containers(t, api, "killed")) == 0 })
}
