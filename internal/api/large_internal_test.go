package api

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

// deadlines is a client whose connection has a deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	cut chan struct{}
}

func (d *deadlines) SetWriteDeadline(time.Time) error {
	select {
	case d.cut <- struct{}{}:
	default:
	}
	return nil
}

func newDeadlines() *deadlines {
	return &deadlines{ResponseRecorder: httptest.NewRecorder(), cut: make(chan struct{}, 1)}
}

// TestSlowReadersOfAnotherCaller: a caller whose client receives slowly takes no room for results from
// another one.
func TestSlowReadersOfAnotherCaller(t *testing.T) {
	const size = 2 * smallResult
	a := share.New(size, 0)
	client := newDeadlines()
	slow := placeFor(a, "slow", size, client)
	if !slow.Fits() {
		t.Fatal("the first answer does not fit")
	}
	small := placeFor(a, "other", smallResult, newDeadlines())
	if !small.Fits() {
		t.Error("a small answer waits")
	}
	other := placeFor(a, "other", size, newDeadlines())
	done := make(chan error, 1)
	go func() { done <- wait(t.Context(), other) }()
	<-client.cut
	w := &sentWriter{client, slow}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a disconnected client receives more")
	}
	slow.Leave()
	if err := <-done; err != nil {
		t.Errorf("the other caller got no room: %v", err)
	}
}

// TestNamesOfFilesCount: a result of many long names counts, without their contents.
func TestNamesOfFilesCount(t *testing.T) {
	r := sandboxmcp.Result{Metadata: map[string]any{"skipped": []sandboxmcp.SkippedFile{{Name: strings.Repeat("x", 1<<10)}}}}
	for range 200 {
		r.Artifacts = append(r.Artifacts, sandboxmcp.Artifact{Name: strings.Repeat("x", 2<<10), Path: strings.Repeat("x", 2<<10)})
	}
	if n := heldBytes(r); n < 1<<20 {
		t.Errorf("200 names of 2 KiB count %d bytes", n)
	}
	if a, b := heldBytes(jobStatus{Result: &r}), heldBytes(jobStatus{Stdout: "123"}); a != heldBytes(r) || b != 3 {
		t.Errorf("answers about jobs count %d and %d bytes", a, b)
	}
	shown := sandboxmcp.Result{Results: []sandboxmcp.RichResult{{"image/png": strings.Repeat("x", 1<<20), "application/json": map[string]any{"a": []any{strings.Repeat("x", 1<<20)}}}}}
	if n := heldBytes(shown); n < 2<<20 {
		t.Errorf("shown values of 2 MiB count %d bytes", n)
	}
}

// TestFormsOfManyValues: a body that would become many times its bytes is refused before it is
// decoded. 20 bodies of 14 MB took 2.2 GB and two minutes of the server's processors.
func TestFormsOfManyValues(t *testing.T) {
	for name, body := range map[string]string{
		"members":  `{"code":"1"` + strings.Repeat(`,"x":0`, formParts) + `}`,
		"elements": `{"code":"1","packages":[""` + strings.Repeat(`,""`, formParts) + `]}`,
		"nested":   `{"code":"1","env":{"A":"b"` + strings.Repeat(`,"A":"b"`, formParts) + `}}`,
	} {
		var in struct {
			Code     string            `json:"code"`
			Packages []string          `json:"packages,omitempty"`
			Env      map[string]string `json:"env,omitempty"`
			X        int               `json:"x,omitempty"`
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/execute", strings.NewReader(body))
		if err := (formReader{limit: maxForm}).read(httptest.NewRecorder(), r, &in); err == nil || in.Code != "" {
			t.Errorf("%s: the body was decoded", name)
		}
		code, err := json.Marshal(map[string]string{"code": body})
		if err != nil {
			t.Fatal(err)
		}
		r = httptest.NewRequestWithContext(t.Context(), "POST", "/execute", strings.NewReader(string(code)))
		if err := (formReader{limit: maxForm}).read(httptest.NewRecorder(), r, &in); err != nil || in.Code != body {
			t.Errorf("%s: a program with the same text is refused: %v", name, err)
		}
	}
}

// cutWriter gives a client up after some bytes of an answer.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return w.ResponseWriter.Write(p)
}

// TestACutAnswerDoesNotEndLikeAWholeOne: a client that is given up while it receives an answer learns that
// the answer was not complete.
func TestACutAnswerDoesNotEndLikeAWholeOne(t *testing.T) {
	h := &handler{logger: slog.New(slog.DiscardHandler)}
	body := sandboxmcp.Result{Stdout: strings.Repeat("x", 4*bulkPart)}
	for left, whole := range map[int]bool{0: false, 2 * bulkPart: false, 100 * bulkPart: true} {
		s := httptest.NewServer(h.recovered(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h.answer(&cutWriter{w, left}, http.StatusOK, body)
		})))
		res, err := s.Client().Get(s.URL)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		if (err == nil) != whole {
			t.Errorf("after %d bytes: got error %v, want a complete answer: %t", left, err, whole)
		}
		s.Close()
	}
}
