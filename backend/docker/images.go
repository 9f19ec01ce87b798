package docker

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/image"
)

// images are those that an engine has for containers. A container is made from an id, so that
// containers of one server never differ.
type images struct {
	name string                         // of the image of every container; empty: each language has its own
	of   map[sandboxmcp.Language]string // names of the images of languages, if they differ
	ids  map[string]string              // by name
}

// id returns the id of an image by its name; empty: the first one.
func (i images) id(name string) string {
	if name == "" {
		name = i.names()[0]
	}
	return i.ids[name]
}

// names returns the names of all images.
func (i images) names() []string {
	if i.name != "" {
		return []string{i.name}
	}
	var names []string
	for _, l := range sandboxmcp.Languages() {
		if name, ok := i.of[l]; ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// named returns the image of a language for backend.Spec. It returns an empty name if every container
// has the same image.
func (i images) named(l sandboxmcp.Language) (name string, ok bool) {
	if i.name != "" {
		return "", true
	}
	name, ok = i.of[l]
	return name, ok
}

// choice says which images an engine is asked for.
type choice struct {
	names []string                       // the first of them that it has is the image of every container
	usual map[sandboxmcp.Language]string // if it has none: the image of each language
}

// findImages finds the images. It fails if the engine has none, or if one of them declares volumes. It is called with mu held.
func (e *Engine) findImages(ctx context.Context, api *dockerapi.Client) (images, error) {
	found := images{ids: map[string]string{}}
	look := func(name string) (bool, error) {
		i, err := api.ImageInspect(ctx, name)
		switch {
		case err == nil && len(i.Config.Volumes) > 0:
			return false, withVolumes(name, slices.Sorted(maps.Keys(i.Config.Volumes)))
		case err == nil:
			found.ids[name] = i.ID
		case !dockerapi.IsNotFound(err):
			return false, e.failure("look for the image "+name, err)
		}
		return err == nil, nil
	}
	for _, name := range e.choice.names {
		if ok, err := look(name); ok || err != nil {
			found.name = name
			return found, err
		}
	}
	found.of = maps.Clone(e.choice.usual)
	for l, name := range e.choice.usual {
		ok, err := look(name)
		if err != nil {
			return found, err
		}
		if !ok {
			delete(found.of, l)
		}
	}
	if len(found.of) == 0 {
		return found, image.Missing(e.choice.names[0])
	}
	return found, nil
}

// withVolumes is the error of an image with volumes. An engine makes a writable directory on its disk for each, whose
// size nothing bounds, and no container of the image is without them.
func withVolumes(name string, at []string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "the image %s declares volumes (%s), which would be writable directories without a bound on the engine's disk", sandboxmcp.Quote(name), sandboxmcp.Quote(strings.Join(at, ", "))).
		WithHint("use an image without VOLUME lines: make one with `sandboxmcp image build`, or export this one's files and import them (`docker export`, `docker import`)")
}

// imageNames returns the names of the images that were found.
func (e *Engine) imageNames() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.images.names()
}
