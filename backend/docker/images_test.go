package docker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// variant makes an image in which a directory names it, and removes it at the end.
func variant(t *testing.T, api *dockerapi.Client, name string) {
	t.Helper()
	id, err := api.ContainerCreate(t.Context(), dockerapi.Container{
		Image: anImage(t, api), User: "0:0", Entrypoint: []string{"/bin/mkdir", "/" + name}, Cmd: []string{},
		HostConfig: dockerapi.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.ContainerRemove(context.WithoutCancel(t.Context()), id) }()
	if err = api.ContainerStart(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if status, err := api.ContainerWait(t.Context(), id, dockerapi.NotRunning); err != nil || status != 0 {
		t.Fatalf("mkdir ended with %d, %v, want 0", status, err)
	}
	commit := dockerapi.Request{Method: http.MethodPost, Path: "/commit", Query: url.Values{"container": {id}, "repo": {name}, "tag": {"test"}}}
	if err = api.Call(t.Context(), commit, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		remove := dockerapi.Request{Method: http.MethodDelete, Path: "/images/" + name + ":test", Query: url.Values{"force": {"1"}}}
		if err := api.Call(context.WithoutCancel(t.Context()), remove, nil); err != nil {
			t.Errorf("remove the image: %v", err)
		}
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

// TestImagesWithVolumesAreRefused: for each volume of an image an engine makes a writable directory on its disk that no
// quota holds. No backend makes containers of such an image, and the error says which directories those are.
func TestImagesWithVolumesAreRefused(t *testing.T) {
	answers := func(path string) any {
		switch {
		case strings.HasSuffix(path, "/version"):
			return map[string]any{"ApiVersion": "1.44", "Version": "25"}
		case strings.HasSuffix(path, "/info"):
			return map[string]any{"KernelVersion": "6.1.0", "Architecture": "x86_64", "Runtimes": map[string]any{"runc": map[string]any{}}}
		case strings.Contains(path, "/images/mine"):
			return map[string]any{"Id": "sha256:1", "Config": map[string]any{"Volumes": map[string]any{"/vol": struct{}{}, "/mnt/data/deep": struct{}{}}}}
		}
		return map[string]any{"message": "unexpected: " + path}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		if strings.Contains(r.URL.Path, "/containers/") {
			t.Errorf("got %s %s, want that no container is asked for", r.Method, r.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(answers(r.URL.Path))
	}))
	defer s.Close()
	cfg := docker.Config{Host: "tcp://" + s.Listener.Addr().String(), Image: "mine", Dir: t.TempDir(), Process: process.Config{TempDir: t.TempDir()}}
	for name, b := range map[string]backend.Backend{"init": docker.New(cfg), "relay": docker.NewRelayed(cfg)} {
		_, err := b.Open(t.Context(), spec("volumes"))
		if e := sandboxmcp.AsError(err); e == nil || e.Code != sandboxmcp.CodeDockerError || !strings.Contains(e.Message, "/mnt/data/deep, /vol") || !strings.Contains(e.Hint, "VOLUME") {
			t.Errorf("%s: got %+v, want docker_error that names the volumes", name, err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
