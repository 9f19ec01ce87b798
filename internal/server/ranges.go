package server

import (
	"net/http"

	"github.com/sandboxmcp/sandboxmcp"
)

// contentWriter is the ResponseWriter that [http.ServeContent] writes a file to. If
// ServeContent refuses the request, contentWriter replaces its text by the product's error
// body.
type contentWriter struct {
	http.ResponseWriter

	sending *sending
	refused bool
}

// WriteHeader sends the status, and the error body if the status is a refusal.
func (w *contentWriter) WriteHeader(status int) {
	var why *sandboxmcp.Error
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		why = sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the file has none of the bytes that Range names").
			WithHint("omit Range, or request bytes below the size in Content-Range")
	case http.StatusPreconditionFailed:
		why = sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the file does not meet the conditions of the request").
			WithHint("omit If-Match and If-Unmodified-Since")
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
