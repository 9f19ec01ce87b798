package docker_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/image"
)

// engine returns a client of the test's own.
func engine(t *testing.T) *dockerapi.Client {
	t.Helper()
	api, err := dockerapi.New(dockerapi.Config{Host: engineHost(t)})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// containers returns the ids of the containers of a sandbox.
func containers(t *testing.T, api *dockerapi.Client, sandbox string) []string {
	t.Helper()
	list, err := api.ContainerList(t.Context(), "sandboxmcp.sandbox="+sandbox)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

// TestContainerRemovedBehindOurBack: if another client of the engine removes a container, its program
// is reported as lost, Close of the sandbox succeeds, and the next sandbox works.
func TestContainerRemovedBehindOurBack(t *testing.T) {
	api, b := engine(t), newBackend(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb := open(t, b, spec("removed"))
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "1000"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	ids := containers(t, api, "removed")
	if len(ids) != 1 {
		t.Fatalf("got %d containers, want 1", len(ids))
	}
	if err = api.ContainerRemove(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	if err != nil || !e.Lost {
		t.Errorf("got %+v %v, want that the program was lost", e, err)
	}
	if _, err = sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}}); err == nil {
		t.Error("a program was started in a container that is gone")
	}
	if err = sb.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := output(t, open(t, b, spec("after")), "echo fine"); got != "fine\n" {
		t.Errorf("got %q, want fine", got)
	}
}

// TestNothingIsLeft: Close removes the container and what it was started with.
func TestNothingIsLeft(t *testing.T) {
	var dir string
	api, b := engine(t), newBackend(t, func(c *docker.Config) { dir = c.Dir })
	sb := open(t, b, spec("left"))
	if err := errors.Join(sb.Close(t.Context()), b.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if ids := containers(t, api, "left"); len(ids) != 0 {
		t.Errorf("containers are left: %v", ids)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("got %v %v, want an empty directory", list, err)
	}
}

// anImage returns an image that the engine has.
func anImage(t *testing.T, api *dockerapi.Client) string {
	t.Helper()
	for _, name := range image.Names() {
		if _, err := api.ImageInspect(t.Context(), name); err == nil {
			return name
		}
	}
	t.Fatalf("the engine has none of %v", image.Names())
	return ""
}

// TestOrphansOfDeadServers: a container of a server that has ended is removed. That of a living one,
// and one whose server is not known, stay.
func TestOrphansOfDeadServers(t *testing.T) {
	api, b := engine(t), newBackend(t)
	defer func() { _ = b.Close(t.Context()) }()
	live, err := docker.Self()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Split(live, "/")
	for name, owner := range map[string]string{
		"dead-boot": f[0] + "/other/" + strings.Join(f[2:], "/"), "dead-pid": strings.Join(f[:3], "/") + "/4194305/1", "dead-reused": strings.Join(f[:3], "/") + "/1/1",
		"live": live, "elsewhere": strings.Join(f[:2], "/") + "/pid:[1]/4194305/1", "machine": "other/" + strings.Join(f[1:3], "/") + "/4194305/1", "foreign": "x",
	} {
		id, err := api.ContainerCreate(t.Context(), docker.Unstarted(anImage(t, api), owner, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.ContainerRemove(context.WithoutCancel(t.Context()), id) })
	}
	open(t, b, spec("sweep"))
	for _, name := range []string{"dead-boot", "dead-pid", "dead-reused"} {
		if ids := containers(t, api, name); len(ids) != 0 {
			t.Errorf("%s: the container is left", name)
		}
	}
	for _, name := range []string{"live", "elsewhere", "machine", "foreign"} {
		if ids := containers(t, api, name); len(ids) != 1 {
			t.Errorf("%s: the container was removed", name)
		}
	}
}

// TestErrorsSayWhatHelps: no engine, an engine elsewhere, no image.
func TestErrorsSayWhatHelps(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*docker.Config)
		code   sandboxmcp.Code
		hint   string
	}{
		{"no engine", func(c *docker.Config) { c.Host = "unix:///nowhere/docker.sock" }, sandboxmcp.CodeDockerUnavailable, "systemctl start docker"},
		{"elsewhere", func(c *docker.Config) { c.Host = "tcp://192.0.2.1:2375" }, sandboxmcp.CodeDockerUnavailable, "docker_host"},
		{"no image", func(c *docker.Config) { c.Image = "missing:image" }, sandboxmcp.CodeDockerError, "docker pull missing:image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend(t, c.change)
			defer func() { _ = b.Close(t.Context()) }()
			_, err := b.Open(t.Context(), spec("error"))
			if e := sandboxmcp.AsError(err); err == nil || e.Code != c.code || !strings.Contains(e.Hint, c.hint) {
				t.Errorf("got %v, want %s with a hint on %s", err, c.code, c.hint)
			}
		})
	}
}
