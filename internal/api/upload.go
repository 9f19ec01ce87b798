package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"

	"github.com/sandboxmcp/sandboxmcp"
)

// uploadRoute puts a file into a session. The body is the file's bytes.
type uploadRoute struct{}

const uploadPath = "/v1/sessions/{id}/file"

type uploadIn struct {
	ID        sandboxmcp.SessionID    `path:"id"`
	Path      string                  `query:"path"`
	Overwrite bool                    `query:"overwrite"`
	Session   *sandboxmcp.SessionSpec `query:"session"`
}

func (uploadRoute) about() description {
	return description{method: "PUT", path: uploadPath, in: reflect.TypeFor[uploadIn](), out: reflect.TypeFor[uploaded]()}
}

func (uploadRoute) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	c, err := h.caller(r, false)
	var in uploadIn
	if err == nil {
		err = decodeInput(w, r, 0, "", &in)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	unhurried(w)
	content, err := receiveFile(w, r, h.maxUpload())
	if err != nil {
		h.fail(w, err)
		return
	}
	id, path, err := h.service.Upload(r.Context(), c, sandboxmcp.Upload{SessionID: in.ID, Name: in.Path, Content: content, Overwrite: in.Overwrite, Session: in.Session})
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, uploaded{id, path})
}

// receiveFile reads a file. If its size is given, it allocates the file once, or refuses
// it unread if it is too large.
func receiveFile(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var content []byte
	long := r.ContentLength > limit
	var err error
	switch {
	case long:
	case r.ContentLength >= 0:
		content = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, content)
	default:
		content, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		_, long = errors.AsType[*http.MaxBytesError](err)
	}
	switch {
	case long:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeUploadTooLarge, "the file has more than %d bytes", limit).
			WithHint("ask the operator to raise SANDBOX_MAX_UPLOAD_BYTES").With("limit_bytes", limit)
	case err != nil:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the upload ended before the whole file was received").WithHint("send it again")
	}
	return content, nil
}

// Upload puts a file into a session. It streams u.Body; an error of reading that is
// returned wrapped.
func (c *Client) Upload(ctx context.Context, who sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	path, query, _, err := encodeInput(uploadPath, uploadIn{u.SessionID, u.Name, u.Overwrite, u.Session})
	if err != nil {
		return "", "", err
	}
	if u.Body == nil {
		u.Body, u.Size = bytes.NewReader(u.Content), int64(len(u.Content))
	}
	q := question{method: http.MethodPut, path: path, query: naming(query, who), stream: u.Body, size: u.Size, limit: maxResponse, time: workTimeout}
	var out uploaded
	err = c.call(ctx, q, &out)
	return out.SessionID, out.Path, err
}
