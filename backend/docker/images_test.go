package docker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
)

// variant makes an image in which a directory names it, and removes it at the end.
func variant(t *testing.T, api *client.Client, name string) {
	t.Helper()
	made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config:     &container.Config{Image: anImage(t, api), User: "0:0", Entrypoint: []string{"/bin/mkdir", "/" + name}, Cmd: []string{}},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _ = api.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, client.ContainerRemoveOptions{Force: true})
	}()
	wait := api.ContainerWait(t.Context(), made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err = api.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-wait.Result:
		if r.StatusCode != 0 {
			t.Fatalf("mkdir ended with %d", r.StatusCode)
		}
	case err = <-wait.Error:
		t.Fatal(err)
	}
	if _, err = api.ContainerCommit(t.Context(), made.ID, client.ContainerCommitOptions{Reference: name + ":test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = api.ImageRemove(context.WithoutCancel(t.Context()), name+":test", client.ImageRemoveOptions{Force: true})
	})
}

// TestImageOfEachLanguage: if the engine has none of the images that have every language, each language
// runs in its own image, and a language without one is not available.
func TestImageOfEachLanguage(t *testing.T) {
	api := engine(t)
	variant(t, api, "of-python")
	variant(t, api, "of-node")
	b := newBackend(t)
	defer func() { _ = b.Close(t.Context()) }()
	docker.Choose(b, []string{"nowhere:1"}, map[sandboxmcp.Language]string{
		sandboxmcp.Python: "of-python:test", sandboxmcp.Node: "of-node:test", sandboxmcp.Shell: "nowhere:2",
	})
	for l, dir := range map[sandboxmcp.Language]string{sandboxmcp.Python: "of-python", sandboxmcp.Node: "of-node"} {
		in, err := b.Interpreter(t.Context(), l)
		if err != nil || in.Image != dir+":test" {
			t.Fatalf("%s: got %+v %v, want the image %s:test", l, in, err, dir)
		}
		for range 2 { // one of them may have been kept ready
			s := spec("image-" + dir)
			s.Image = in.Image
			if got := output(t, open(t, b, s), "cd /; echo of-*"); got != dir+"\n" {
				t.Errorf("%s: got %q, want %s", l, got, dir)
			}
		}
	}
	if _, err := b.Interpreter(t.Context(), sandboxmcp.Shell); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRuntimeUnavailable || !strings.Contains(err.Error(), "of-python:test, of-node:test") {
		t.Errorf("got %v, want runtime_unavailable with the images", err)
	}
}

// TestNoImageAtAll: the error names the first image that was looked for.
func TestNoImageAtAll(t *testing.T) {
	b := newBackend(t)
	defer func() { _ = b.Close(t.Context()) }()
	docker.Choose(b, []string{"nowhere:1"}, map[sandboxmcp.Language]string{sandboxmcp.Python: "nowhere:2"})
	_, err := b.Open(t.Context(), backend.Spec{ID: "none"})
	if f := sandboxmcp.AsError(err); f == nil || f.Code != sandboxmcp.CodeDockerError || !strings.Contains(f.Message, "nowhere:1") {
		t.Errorf("got %v, want docker_error that names nowhere:1", err)
	}
}
