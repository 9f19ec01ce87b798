package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandboxmcp/sandboxmcp"
)

// Engine is a container engine with Docker's API.
type Engine struct {
	api  *client.Client
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
// docker_unavailable. The caller closes the engine.
func Connect(ctx context.Context, env []string) (*Engine, error) {
	host := variable(env, "DOCKER_HOST")
	if host == "" {
		host = client.DefaultDockerHost
	}
	options := []client.Opt{client.WithHost(host)}
	if dir := variable(env, "DOCKER_CERT_PATH"); dir != "" && variable(env, "DOCKER_TLS_VERIFY") != "" {
		options = append(options, client.WithTLSClientConfig(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	}
	api, err := client.New(options...)
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "the engine at %s cannot be used: %s", host, err).WithHint("correct DOCKER_HOST, or DOCKER_CERT_PATH if DOCKER_TLS_VERIFY is set")
	}
	e := &Engine{api, host}
	if _, err = api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		_ = api.Close()
		return nil, e.failed(err)
	}
	return e, nil
}

// Close ends the connection.
func (e *Engine) Close() { _ = e.api.Close() }

// failed returns the error for a call that has failed.
func (e *Engine) failed(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "this user may not use the engine at %s", e.host).
			WithHint("run it as root, or as a user of the socket's group, which is usually docker")
	case client.IsErrConnectionFailed(err):
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "no engine answers at %s", e.host).
			WithHint("start Docker, set DOCKER_HOST, or make a directory for the process backend with --rootfs DIR")
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "the engine at %s failed: %s", e.host, err)
}

// Images lists the images that this program, or its Dockerfile, has made.
func (e *Engine) Images(ctx context.Context) ([]Image, error) {
	list, err := e.api.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", labelSet)})
	if err != nil {
		return nil, e.failed(err)
	}
	all := make([]Image, 0, len(list.Items))
	for _, i := range list.Items {
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
	answer, err := e.api.ImageImport(ctx, client.ImageImportSource{Source: f, SourceName: "-"}, "", client.ImageImportOptions{Changes: changes, Message: "sandboxmcp image build " + o.Set.Name})
	if err != nil {
		return e.failed(err)
	}
	r.ID, err = imported(answer)
	if err = errors.Join(err, answer.Close()); err != nil {
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
		if _, err = e.api.ImageTag(ctx, client.ImageTagOptions{Source: r.ID, Target: name}); err != nil {
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
		return !errdefs.IsNotFound(err)
	}
	return i.Config == nil || i.Config.Labels[labelSet] == ""
}

// imported reads the answer of an import, which is a sequence of JSON messages, and returns the id
// of the image.
func imported(answer io.Reader) (id string, err error) {
	for d := json.NewDecoder(answer); ; {
		var m struct {
			Status string          `json:"status"`
			Error  string          `json:"error"`
			ID     json.RawMessage `json:"id"`
		}
		switch err = d.Decode(&m); {
		case errors.Is(err, io.EOF) && id != "":
			return id, nil
		case err != nil:
			return "", fmt.Errorf("read the answer of the import: %w", err)
		case m.Error != "":
			return "", errors.New(m.Error)
		case bytes.HasPrefix([]byte(m.Status), []byte("sha256:")):
			id = m.Status
		}
	}
}
