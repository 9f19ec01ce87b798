package main

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes the container image for a target: a tar of an OCI layout, which also has the
// manifest.json of older versions of `docker load`.
func (r *release) image(t target, p program) error {
	img, err := r.compose(t, p)
	if err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "release-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	at, err := layout.Write(stage, empty.Index)
	if err != nil {
		return err
	}
	tag := "sandboxmcp:" + imageTag(r.version)
	platform := layout.WithPlatform(v1.Platform{OS: t.os, Architecture: t.arch})
	names := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
	if err = at.AppendImage(img, platform, names); err != nil {
		return err
	}
	entries, err := readTree(stage)
	if err != nil {
		return err
	}
	manifest, err := dockerManifest(img, tag)
	if err != nil {
		return err
	}
	entries = append(entries, entry{name: "manifest.json", mode: 0o644, data: manifest})
	return writeFile(r.file(t, ".oci.tar"), func(w io.Writer) error { return writeTar(w, entries, r.when) })
}

// imageTag returns a version as a tag may be spelled.
func imageTag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// compose returns the image: a root file system with interpreters, if there is one for the
// architecture, and the program above it.
func (r *release) compose(t target, p program) (v1.Image, error) {
	var layers []mutate.Addendum
	if file := r.bases[t.arch]; file != "" {
		base, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		layers = append(layers, r.addendum(base, "root file system"))
	}
	entries := []entry{{name: "usr/bin/sandboxmcp", mode: 0o755, data: p.data}}
	for _, name := range aliases {
		entries = append(entries, entry{name: "usr/bin/" + name, link: "sandboxmcp"})
	}
	entries = append(entries, entry{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777}) // the state directory is there
	pages, err := r.pages("usr/share/doc/sandboxmcp/", "LICENSE")
	if err != nil {
		return nil, err
	}
	entries = append(entries, pages...)
	var files bytes.Buffer
	if err = writeTar(&files, entries, r.when); err != nil {
		return nil, err
	}
	own, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	layers = append(layers, r.addendum(own, "sandboxmcp "+r.version))
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.Append(img, layers...); err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Created = t.os, t.arch, v1.Time{Time: r.when}
	cfg.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/sandboxmcp"},
		Cmd:        []string{"serve"},
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "SANDBOXMCP_STATE_DIR=/tmp/sandboxmcp"},
		WorkingDir: "/",
		User:       "1000:1000",
		Labels: map[string]string{
			"io.modelcontextprotocol.server.name":  serverName,
			"org.opencontainers.image.title":       "sandboxmcp",
			"org.opencontainers.image.description": about,
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.licenses":    license,
			"org.opencontainers.image.source":      repository,
		},
	}
	return mutate.ConfigFile(img, cfg)
}

func (r *release) addendum(layer v1.Layer, about string) mutate.Addendum {
	return mutate.Addendum{
		Layer:     layer,
		MediaType: types.OCILayer,
		History:   v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "make release", Comment: about},
	}
}

// dockerManifest returns the manifest.json of an image whose blobs lie in an OCI layout.
func dockerManifest(img v1.Image, tag string) ([]byte, error) {
	m, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	entry := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{Config: blob(m.Config.Digest), RepoTags: []string{tag}}
	for _, l := range m.Layers {
		entry.Layers = append(entry.Layers, blob(l.Digest))
	}
	return json.Marshal([]any{entry})
}

// readTree returns the files below a directory, sorted by name.
func readTree(dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		entries = append(entries, entry{name: filepath.ToSlash(name), mode: 0o644, data: data})
		return err
	})
	return entries, err
}
