package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

const requestOf = "00000000-0000-4000-8000-0000000000"

// heldWriter is a client that receives nothing before go is closed.
type heldWriter struct {
	*httptest.ResponseRecorder
	begun func() // called once, before the body
	once  sync.Once
	next  <-chan struct{}
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.once.Do(w.begun)
	<-w.next
	return w.ResponseRecorder.Write(p)
}

// TestResultsOfUnreadAnswers: clients that do not read their answers cannot fill the memory of the
// server with results. 24 of them took 1.7 GB.
func TestResultsOfUnreadAnswers(t *testing.T) {
	const clients, size = 48, 8<<20 - 4096 // 32 of them fit
	content := make([]byte, size)
	result := func(id sandboxmcp.RequestID) sandboxmcp.Result {
		return sandboxmcp.Result{
			RequestID: id, Status: sandboxmcp.StatusCompleted, Stdout: string(id),
			Artifacts: []sandboxmcp.Artifact{{Name: "a", SizeBytes: size, ContentB64: content}},
		}
	}
	var n, again atomic.Int64
	s := &service{
		run: func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
			return result(sandboxmcp.RequestID(requestOf + strconv.Itoa(int(10+n.Add(1))))), nil
		},
		lookup: func(l sandboxmcp.Lookup) (sandboxmcp.Result, error) {
			if l.Content {
				again.Add(1)
			}
			return result(l.RequestID), nil
		},
	}
	h, next := rest(t, s, tenant), make(chan struct{})
	var done sync.WaitGroup
	first := make(chan struct{}, clients)
	answers := make([]*httptest.ResponseRecorder, clients)
	for i := range clients {
		answers[i] = httptest.NewRecorder()
		w := &heldWriter{ResponseRecorder: answers[i], next: next, begun: func() { first <- struct{}{} }}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/execute", strings.NewReader(`{"code":"1"}`))
		r.Header.Set("Content-Type", "application/json")
		done.Go(func() { h.ServeHTTP(w, r) })
	}
	for range 32 {
		<-first
	}
	close(next)
	done.Wait()
	if again.Load() == 0 {
		t.Errorf("no result waited: %d bytes of results were held at once", clients*size)
	}
	for i, w := range answers {
		if text := w.Body.String(); len(text) < size/3*4 || !strings.HasSuffix(text, "}\n") {
			t.Fatalf("answer %d has %d bytes", i, len(text))
		}
	}
}

// sampledWriter is a client that counts the bytes of the answer, and sees what the server holds in
// the middle of it.
type sampledWriter struct {
	head   http.Header
	sample int64
	sent   int64
	heap   uint64
}

func (w *sampledWriter) Header() http.Header { return w.head }
func (w *sampledWriter) WriteHeader(int)     {}
func (w *sampledWriter) Write(p []byte) (int, error) {
	if w.sent += int64(len(p)); w.sent >= w.sample && w.heap == 0 {
		w.heap = heap()
	}
	return len(p), nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLongOutputsAreEncodedWhileTheyAreSent: control characters become six bytes each, so the answer
// with two outputs of 64 MiB took 2.5 GB.
func TestLongOutputsAreEncodedWhileTheyAreSent(t *testing.T) {
	const size = 16 << 20
	long := strings.Repeat("\x01", size)
	s := &service{run: func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		return sandboxmcp.Result{RequestID: requestOf + "10", Status: sandboxmcp.StatusCompleted, Stdout: long}, nil
	}}
	h := rest(t, s, tenant)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/execute", strings.NewReader(`{"code":"1"}`))
	r.Header.Set("Content-Type", "application/json")
	before := heap()
	w := &sampledWriter{head: http.Header{}, sample: size}
	h.ServeHTTP(w, r)
	if w.sent < 6*size {
		t.Fatalf("the answer has %d bytes", w.sent)
	}
	if grown := int64(w.heap) - int64(before); grown > size/2 {
		t.Errorf("the server holds %d bytes more in the middle of the answer", grown)
	}
	runtime.KeepAlive(long)
}

// TestLongPartsAreTheSameJSON: an answer with long parts is byte for byte what [json.Marshal] makes
// of it.
func TestLongPartsAreTheSameJSON(t *testing.T) {
	for name, unit := range map[string]string{
		"plain": "abc", "three bytes": "a€", "four bytes": "😀b", "broken": "\xf0\x9f\x98", "continued": "\x80", "quoted": "\"\\\n<&>", "separators": "\u2028x", "zero": "\x00",
	} {
		text := strings.Repeat(unit, 100_000)
		one := sandboxmcp.Result{
			RequestID: requestOf + "10", Status: sandboxmcp.StatusCompleted, Stdout: text, Stderr: text[1:], Results: []sandboxmcp.RichResult{}, Metadata: map[string]any{},
			Artifacts: []sandboxmcp.Artifact{{Name: "a", ContentB64: []byte(text)}, {Name: "b", ContentB64: []byte("short")}, {Name: "c", ContentB64: []byte(text[:99_998])}},
		}
		s := &service{run: func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return one, nil }, lookup: func(sandboxmcp.Lookup) (sandboxmcp.Result, error) { return one, nil }}
		h := rest(t, s, tenant)
		got := send(t, h, http.MethodPost, "/execute", `{"code":"1"}`, "Content-Type", "application/json")
		one.Network.Allowed, one.Network.Denied = []string{}, []sandboxmcp.DeniedRequest{}
		var want, have any
		whole, err := json.Marshal(one)
		if err != nil || json.Unmarshal(whole, &want) != nil || json.Unmarshal(got.Body.Bytes(), &have) != nil {
			t.Fatalf("%s: %v: no JSON: %.200s", name, err, got.Body.String())
		}
		if w, g := want.(map[string]any), have.(map[string]any); w["stdout"] != g["stdout"] || w["stderr"] != g["stderr"] {
			t.Errorf("%s: the streams differ", name)
		}
		again, _ := json.Marshal(have)
		if expect, _ := json.Marshal(want); len(again) < len(expect) {
			t.Errorf("%s: %d bytes, want %d", name, len(again), len(expect))
		}
		job := send(t, h, http.MethodGet, "/execute/"+requestOf+"10/status", "")
		if !strings.Contains(job.Body.String(), strings.TrimSuffix(got.Body.String(), "\n")) {
			t.Errorf("%s: the answer about the job has another result", name)
		}
	}
}
