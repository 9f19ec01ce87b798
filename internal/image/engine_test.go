package image_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/image"
)

// fakeEngine answers as an engine that has an image with a name of each of foreign.
type fakeEngine struct {
	foreign []string
	failure string // of the import

	mu       sync.Mutex
	imported int64
	changes  []string
	tags     []string
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
	w.Header().Set("API-Version", "1.41")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/_ping"):
	case path == "images/create":
		e.imported, _ = io.Copy(io.Discard, r.Body)
		e.changes = r.URL.Query()["changes"]
		if e.failure != "" {
			_ = json.NewEncoder(w).Encode(map[string]any{"errorDetail": map[string]string{"message": e.failure}, "error": e.failure})
			return
		}
		fmt.Fprintln(w, `{"status":"sha256:0123"}`)
	case strings.HasSuffix(path, "/tag"):
		name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Query().Get("repo"), "docker.io/"), "library/")
		e.tags = append(e.tags, name+":"+r.URL.Query().Get("tag"))
		w.WriteHeader(http.StatusCreated)
	case strings.HasSuffix(path, "/json"):
		for _, name := range e.foreign {
			if path == "images/"+name+"/json" {
				fmt.Fprintln(w, `{"Id":"sha256:9","Config":{"Labels":{"of":"somebody"}}}`)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, `{"message":"no such image"}`)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// serve serves an engine on a socket, and returns an order that uses it.
func (e *fakeEngine) serve(t *testing.T) image.Order {
	t.Helper()
	o, dir, _ := order(t, "")
	socket := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(e)
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	o.Env = append(o.Env, "DOCKER_HOST=unix://"+socket)
	return o
}

func TestImportNamesTheImage(t *testing.T) {
	for name, c := range map[string]struct {
		foreign, names   []string
		wantTags, wantNo []string
	}{
		"nothing there":            {nil, nil, []string{image.Name, image.Compatible}, nil},
		"a name of another image":  {[]string{image.Compatible}, nil, []string{image.Name}, []string{image.Compatible}},
		"that name was asked for":  {[]string{image.Compatible}, []string{image.Compatible}, []string{image.Compatible}, nil},
		"a name without a version": {nil, []string{"mine"}, []string{"mine:latest"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEngine{foreign: c.foreign}
			o := e.serve(t)
			o.Names = c.names
			r, err := image.Build(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.wantTags, e.tags); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.wantNo, r.Kept); diff != "" {
				t.Errorf("kept by another image (-want +got):\n%s", diff)
			}
			if e.imported != r.Bytes || r.ID != "sha256:0123" {
				t.Errorf("import: got %d bytes as %s, want the %d bytes of the tar", e.imported, r.ID, r.Bytes)
			}
			if all := strings.Join(e.changes, "\n"); !strings.Contains(all, "USER 1000:1000") || !strings.Contains(all, r.SHA256) {
				t.Errorf("settings of the image: got %s, want the user and the hash", all)
			}
		})
	}
}

func TestImportThatFails(t *testing.T) {
	o := (&fakeEngine{failure: "no space left on device"}).serve(t)
	_, err := image.Build(t.Context(), o)
	if got := sandboxmcp.CodeOf(err); got != sandboxmcp.CodeDockerError || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got %v, want docker_error with the engine's words", err)
	}
}
