package engine

import (
	"io"

	"github.com/sandboxmcp/sandboxmcp"
)

// contentOf returns the content of an upload. It reads at most as much of a Body as fits into
// /mnt/data.
func (e *Engine) contentOf(u sandboxmcp.Upload) ([]byte, error) {
	if u.Body == nil {
		return u.Content, nil
	}
	limit := int64(e.settings().WorkQuotaMB) << 20
	data, err := io.ReadAll(io.LimitReader(u.Body, limit+1))
	switch {
	case err != nil:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the content of %s cannot be read", sandboxmcp.Quote(u.Name)).WithCause(err)
	case int64(len(data)) > limit:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeUploadTooLarge, "%s has more than the %d bytes of /mnt/data", sandboxmcp.Quote(u.Name), limit)
	case u.Size > 0 && u.Size != int64(len(data)):
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "%s has %d bytes, but %d were announced", sandboxmcp.Quote(u.Name), len(data), u.Size)
	}
	return data, nil
}
