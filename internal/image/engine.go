package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// Engine is a container engine with Docker's API.
type Engine struct {
	api  *dockerapi.Client
	host string
}

// Image is an image of this program in an engine.
type Image struct {
	ID      string    `json:"id"`
	Names   []string  `json:"names"`
	Set     string    `json:"set"`
	SHA256  string    `json:"sha256,omitempty"` // of the root file system; empty: another builder made it
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

// Connect finds the engine that DOCKER_HOST names, or Docker's own. It fails with
// docker_unavailable.
func Connect(ctx context.Context, env []string) (*Engine, error) {
	host := variable(env, "DOCKER_HOST")
	if host == "" {
		host = dockerapi.DefaultHost
	}
	certs := ""
	if variable(env, "DOCKER_TLS_VERIFY") != "" {
		certs = variable(env, "DOCKER_CERT_PATH")
	}
	api, err := dockerapi.New(dockerapi.Config{Host: host, Certs: certs})
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "the engine at %s cannot be used: %s", host, err).WithHint("correct DOCKER_HOST, or DOCKER_CERT_PATH if DOCKER_TLS_VERIFY is set")
	}
	e := &Engine{api, host}
	if err = api.Ping(ctx); err != nil {
		return nil, e.failed(err)
	}
	return e, nil
}

// failed returns the error for a call that has failed.
func (e *Engine) failed(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "this user may not use the engine at %s", e.host).
			WithHint("run it as root, or as a user of the socket's group, which is usually docker")
	case dockerapi.IsUnreachable(err):
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "no engine answers at %s", e.host).
			WithHint("start Docker, set DOCKER_HOST, or make a directory for the process backend with --rootfs DIR")
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "the engine at %s failed: %s", e.host, err)
}

// Images lists the images that this program, or its Dockerfile, has made.
func (e *Engine) Images(ctx context.Context) ([]Image, error) {
	list, err := e.api.ImageList(ctx, labelSet)
	if err != nil {
		return nil, e.failed(err)
	}
	all := make([]Image, 0, len(list))
	for _, i := range list {
		names := slices.Sorted(slices.Values(i.RepoTags))
		all = append(all, Image{ID: i.ID, Names: names, Set: i.Labels[labelSet], SHA256: i.Labels[labelDigest], Bytes: i.Size, Created: time.Unix(i.Created, 0).UTC()})
	}
	return all, nil
}

// load imports a tar and names the image. It takes no name from an image of somebody else unless the
// order asks for the name.
func (e *Engine) load(ctx context.Context, o Order, file string, r *Report) error {
	f, err := os.Open(file)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	changes := append(settings(o.Set.Name), "LABEL "+labelDigest+"="+r.SHA256)
	if r.ID, err = e.api.ImageImport(ctx, f, changes, "sandboxmcp image build "+o.Set.Name); err != nil {
		return e.failed(err)
	}
	names := o.Names
	if len(names) == 0 {
		names = o.Set.Names
	}
	for _, name := range names {
		if len(o.Names) == 0 && e.foreign(ctx, name) {
			r.Kept = append(r.Kept, name)
			continue
		}
		if err = e.api.ImageTag(ctx, r.ID, name); err != nil {
			return e.failed(err)
		}
		r.Names = append(r.Names, name)
	}
	return nil
}

// foreign reports whether a name is that of an image that this program has not made.
func (e *Engine) foreign(ctx context.Context, name string) bool {
	i, err := e.api.ImageInspect(ctx, name)
	if err != nil {
		return !dockerapi.IsNotFound(err)
	}
	return i.Config.Labels[labelSet] == ""
}
