package dockerapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Image is an image in a list.
type Image struct {
	ID       string `json:"Id"`
	RepoTags []string
	Labels   map[string]string
	Size     int64 // bytes
	Created  int64 // seconds since 1970
}

// ImageList returns the images with a label. The label is a name, or NAME=VALUE.
func (a *Client) ImageList(ctx context.Context, label string) (list []Image, err error) {
	return list, a.Call(ctx, Request{Method: http.MethodGet, Path: "/images/json", Query: filters(map[string]string{"label": label})}, &list)
}

// Inspected is what an engine reports about an image.
type Inspected struct {
	ID     string `json:"Id"`
	Config struct {
		Labels  map[string]string
		Volumes map[string]struct{} // by path: the engine makes a writable directory on its disk for each
	}
}

// ImageInspect describes an image by its name or id. IsNotFound is true of the error if the engine does not have it.
func (a *Client) ImageInspect(ctx context.Context, name string) (i Inspected, err error) {
	path, err := imagePath(name)
	if err != nil {
		return i, err
	}
	err = a.Call(ctx, Request{Method: http.MethodGet, Path: path + "/json"}, &i)
	if err == nil && i.ID == "" {
		err = errors.New("the engine does not tell the id of the image " + name)
	}
	return i, err
}

// ImageTag gives an image one more name: NAME, or NAME:TAG. Without a tag it is latest.
func (a *Client) ImageTag(ctx context.Context, image, name string) error {
	path, err := imagePath(image)
	if err != nil {
		return err
	}
	repo, tag, err := splitName(name)
	if err != nil {
		return err
	}
	return a.Call(ctx, Request{Method: http.MethodPost, Path: path + "/tag", Query: url.Values{"repo": {repo}, "tag": {tag}}}, nil)
}

// splitName splits the name of an image. The engine checks both parts.
func splitName(name string) (repo, tag string, err error) {
	if name == "" || strings.Contains(name, "@") {
		return "", "", fmt.Errorf("%q is no name for an image: it is NAME or NAME:TAG", name)
	}
	at := strings.LastIndexByte(name, ':')
	if at < 0 || strings.Contains(name[at:], "/") { // the colon of a port
		return name, "latest", nil
	}
	return name[:at], name[at+1:], nil
}

// ImageImport makes an image of a tar file, and returns its id. Changes are lines of a Dockerfile.
func (a *Client) ImageImport(ctx context.Context, tar io.Reader, changes []string, message string) (id string, err error) {
	q := url.Values{"fromSrc": {"-"}, "message": {message}, "changes": changes}
	res, err := a.open(ctx, Request{Method: http.MethodPost, Path: "/images/create", Query: q, Body: tar})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	for d := json.NewDecoder(io.LimitReader(res.Body, mostAnswer)); ; {
		var m struct {
			Status string `json:"status"`
			Error  string `json:"error"` // of engines before 29
			Detail struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		switch err = d.Decode(&m); {
		case errors.Is(err, io.EOF) && id != "":
			return id, nil
		case errors.Is(err, io.EOF):
			return "", errors.New("the engine does not name the image that it has made")
		case err != nil && ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", fmt.Errorf("read the answer of the import: %w", err)
		case m.Error != "" || m.Detail.Message != "":
			return "", &Error{Status: res.StatusCode, Message: cmp.Or(m.Detail.Message, m.Error)}
		case strings.HasPrefix(m.Status, "sha256:"):
			id = m.Status
		}
	}
}

// imagePath returns the path of an image. It refuses names that would name another path.
func imagePath(name string) (string, error) {
	if parts := strings.Split(name, "/"); slices.Contains(parts, "") || slices.Contains(parts, ".") || slices.Contains(parts, "..") {
		return "", fmt.Errorf("%q is no name of an image", name)
	}
	return "/images/" + name, nil
}
