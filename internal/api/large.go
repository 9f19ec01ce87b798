package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of the results that are held over HTTP while clients receive them.
const (
	smallResult = 128 << 10       // bytes of a result that is not counted
	allResults  = 256 << 20       // bytes of all counted results
	patience    = 5 * time.Second // time to receive a result that other callers wait for
	lookAgain   = time.Second
)

// answers bounds the bytes of the results that are held while clients receive them. A result that
// does not fit waits, and is not held meanwhile. Of those that wait, the one goes first whose caller
// holds least. A client is disconnected if it takes longer than patience and its caller holds more
// than another that waits. A result above the bound is held alone. Its methods may be called
// concurrently.
type answers struct {
	most     int64
	patience time.Duration

	mu    sync.Mutex // guards the fields below
	held  int64
	by    map[string]int64 // by caller
	list  []*sentAnswer    // held, oldest first
	queue []*sentAnswer    // waiting, oldest first
}

func newAnswers() *answers {
	return &answers{most: allResults, patience: patience, by: map[string]int64{}}
}

// sentAnswer is a result that is sent, or waits for that.
type sentAnswer struct {
	all    *answers
	caller string
	bytes  int64
	cut    func() // disconnects the client
	fits   chan struct{}
	since  time.Time // when it fitted
	ended  bool      // the client was disconnected
}

// add returns an answer of so many bytes. The caller calls leave, and before it sends the answer,
// wait if fitted returns false.
func (a *answers) add(caller string, bytes int64, w http.ResponseWriter) *sentAnswer {
	control := http.NewResponseController(w)
	s := &sentAnswer{all: a, caller: caller, bytes: bytes, fits: make(chan struct{}), cut: func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) }}
	if bytes <= smallResult {
		s.bytes = 0
		close(s.fits)
		return s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, s)
	a.admitLocked()
	return s
}

// admitLocked admits those that wait and fit.
func (a *answers) admitLocked() {
	for len(a.queue) > 0 {
		next := 0
		for i, s := range a.queue {
			if a.by[s.caller] < a.by[a.queue[next].caller] {
				next = i
			}
		}
		s := a.queue[next]
		if a.held > 0 && a.held+s.bytes > a.most {
			return
		}
		a.queue = slices.Delete(a.queue, next, next+1)
		a.list = append(a.list, s)
		a.held += s.bytes
		a.by[s.caller] += s.bytes
		s.since = time.Now()
		close(s.fits)
	}
}

// fitted reports whether the answer can be sent now.
func (s *sentAnswer) fitted() bool {
	select {
	case <-s.fits:
		return true
	default:
		return false
	}
}

// wait waits until the answer can be sent.
func (s *sentAnswer) wait(ctx context.Context) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		s.all.hurry(s)
		select {
		case <-s.fits:
			return nil
		case <-again.C:
		case <-ctx.Done():
			return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled").WithCause(context.Cause(ctx))
		}
	}
}

// hurry disconnects the client that s waits for longest, if its caller holds most and more than
// that of s.
func (a *answers) hurry(s *sentAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var slow *sentAnswer
	for _, h := range a.list {
		if a.by[h.caller] > a.by[s.caller] && (slow == nil || a.by[h.caller] > a.by[slow.caller]) {
			slow = h
		}
	}
	if slow != nil && time.Since(slow.since) >= a.patience {
		slow.ended = true
		slow.cut() // again in a while if that was too early
	}
}

// leave ends the answer.
func (s *sentAnswer) leave() {
	a := s.all
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.list, s); i >= 0 {
		a.list = slices.Delete(a.list, i, i+1)
		a.held -= s.bytes
		if a.by[s.caller] -= s.bytes; a.by[s.caller] == 0 {
			delete(a.by, s.caller)
		}
	}
	if i := slices.Index(a.queue, s); i >= 0 {
		a.queue = slices.Delete(a.queue, i, i+1)
	}
	a.admitLocked()
}

// disconnected reports whether the client was disconnected.
func (s *sentAnswer) disconnected() bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.ended
}

// sentWriter writes an answer in pieces until the client is disconnected.
type sentWriter struct {
	http.ResponseWriter
	answer *sentAnswer
}

// Unwrap is for [http.ResponseController].
func (w *sentWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes a piece.
func (w *sentWriter) Write(p []byte) (int, error) {
	if w.answer.disconnected() {
		return 0, os.ErrDeadlineExceeded
	}
	return w.ResponseWriter.Write(p)
}

// resultOf returns the result in an answer; nil: it has none.
func resultOf(answer any) *sandboxmcp.Result {
	switch b := answer.(type) {
	case sandboxmcp.Result:
		return &b
	case jobStatus:
		if b.Result != nil {
			return b.Result
		}
		return &sandboxmcp.Result{RequestID: b.JobID, Stdout: b.Stdout, Stderr: b.Stderr}
	}
	return nil
}

// heldBytes is about how many bytes an answer holds.
func heldBytes(answer any) int64 {
	r := resultOf(answer)
	if r == nil {
		return 0
	}
	sum := int64(len(r.Stdout) + len(r.Stderr))
	for _, f := range r.Artifacts { // its names are encoded as a whole, and the receipt has them, too
		sum += int64(len(f.ContentB64) + 4*(len(f.Name)+len(f.Path)+len(f.URI)+len(f.Signature)))
	}
	if skipped, ok := r.Metadata["skipped"].([]sandboxmcp.SkippedFile); ok {
		for _, f := range skipped {
			sum += int64(2 * (len(f.Name) + len(f.Reason)))
		}
	}
	for _, shown := range r.Results {
		sum += heldValue(map[string]any(shown))
	}
	return sum
}

// heldValue is about how many bytes a shown value holds.
func heldValue(v any) int64 {
	const each = 16 // of a value beside its text
	sum := int64(each)
	switch v := v.(type) {
	case string:
		sum += int64(len(v))
	case json.RawMessage:
		sum += int64(len(v))
	case []any:
		for _, x := range v {
			sum += heldValue(x)
		}
	case map[string]any:
		for name, x := range v {
			sum += int64(len(name)) + heldValue(x)
		}
	default:
	}
	return sum
}

// bulk is a long part of an answer, which is encoded while it is sent.
type bulk struct {
	mark string // the text that stands for it in the answer
	text string
	data []byte
}

const (
	bulkSize = 16 << 10 // bytes of a part from which on it is encoded apart
	bulkPart = 32 << 10 // bytes that are encoded at once
)

// withoutBulk returns a copy of an answer with marks in place of its long parts, and these parts.
func withoutBulk(answer any) (any, []bulk) {
	var parts []bulk
	text := func(s *string) {
		if len(*s) > bulkSize {
			_, mark := newMark()
			parts = append(parts, bulk{mark: mark, text: *s})
			*s = mark
		}
	}
	result := func(r sandboxmcp.Result) sandboxmcp.Result {
		text(&r.Stdout)
		text(&r.Stderr)
		r.Artifacts = slices.Clone(r.Artifacts)
		for i := range r.Artifacts {
			if f := &r.Artifacts[i]; len(f.ContentB64) > bulkSize {
				data, mark := newMark()
				parts = append(parts, bulk{mark: mark, data: f.ContentB64})
				f.ContentB64 = data
			}
		}
		return r
	}
	switch b := answer.(type) {
	case sandboxmcp.Result:
		answer = result(b)
	case jobStatus:
		text(&b.Stdout)
		text(&b.Stderr)
		if b.Result != nil {
			r := result(*b.Result)
			b.Result = &r
		}
		answer = b
	}
	return answer, parts
}

// newMark returns bytes that nobody can guess, and their base64.
func newMark() (data []byte, mark string) {
	data = make([]byte, 18)
	_, _ = rand.Read(data)
	return data, base64.StdEncoding.EncodeToString(data)
}

var errNoMark = errors.New("a mark is missing in the answer")

// write writes the part as a JSON string, like [json.Marshal].
func (b bulk) write(w io.Writer) error {
	if _, err := io.WriteString(w, `"`); err != nil {
		return err
	}
	if b.data != nil {
		e := base64.NewEncoder(base64.StdEncoding, w)
		if _, err := e.Write(b.data); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	} else if err := writeText(w, b.text); err != nil {
		return err
	}
	_, err := io.WriteString(w, `"`)
	return err
}

// writeText writes the inside of a JSON string.
func writeText(w io.Writer, text string) error {
	for text != "" {
		n := min(bulkPart, len(text))
		for back := 0; n < len(text) && back < utf8.UTFMax-1 && !utf8.RuneStart(text[n]); back++ {
			n--
		}
		part, err := json.Marshal(text[:n])
		if err != nil {
			return err
		}
		if _, err = w.Write(part[1 : len(part)-1]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// writeAnswer writes an answer that was encoded with marks.
func writeAnswer(to io.Writer, encoded []byte, parts []bulk) error {
	w := bufio.NewWriterSize(to, bulkPart)
	at := func(b bulk) int { return bytes.Index(encoded, []byte(`"`+b.mark+`"`)) }
	slices.SortFunc(parts, func(a, b bulk) int { return at(a) - at(b) })
	done := 0
	for _, b := range parts {
		i := at(b)
		if i < done {
			return errNoMark
		}
		if _, err := w.Write(encoded[done:i]); err != nil {
			return err
		}
		if err := b.write(w); err != nil {
			return err
		}
		done = i + len(b.mark) + 2
	}
	if _, err := w.Write(encoded[done:]); err != nil {
		return err
	}
	return w.Flush()
}
