package server

import (
	"net/http"

	"github.com/sandboxmcp/sandboxmcp"
)

// contentWriter is what [http.ServeContent] writes a file to. Where that refuses
// what was asked of the file in its own words, the one body of a failure is sent
// in their place.
type contentWriter struct {
	http.ResponseWriter

	sending *sending
	refused bool
}

// WriteHeader sends the status, and with that of a refusal its body.
func (w *contentWriter) WriteHeader(status int) {
	var why *sandboxmcp.Error
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		why = sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the file has none of the bytes that Range names").
			WithHint("ask without Range, or for bytes below the size that Content-Range tells")
	case http.StatusPreconditionFailed:
		why = sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the file is not the one that the conditions of the request name").
			WithHint("ask without If-Match and If-Unmodified-Since")
	default:
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	h := w.Header()
	h.Del("Content-Disposition")
	h.Del("Content-Length")
	refuseWith(w.ResponseWriter, status, why)
}

// Write sends bytes of the file.
func (w *contentWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	if err := w.sending.piece(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}
