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
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

// Bounds of the results that are held over HTTP while clients receive them.
const (
	smallResult = 128 << 10       // bytes of a result that is not counted
	allResults  = 256 << 20       // bytes of all counted results
	patience    = 5 * time.Second // time to receive a result that other callers wait for
)

// newAnswers returns the bound on the bytes of the results that are held while clients receive them. A
// result that does not fit waits, and is not held meanwhile. A result above the bound is held alone.
func newAnswers() *share.Bound { return share.New(allResults, patience) }

// placeFor returns the place of an answer of so many bytes. The caller calls Leave, and before it sends
// the answer, wait if Fits returns false.
func placeFor(all *share.Bound, caller string, bytes int64, w http.ResponseWriter) *share.Place {
	if bytes <= smallResult {
		bytes = 0
	}
	control := http.NewResponseController(w)
	return all.Enter(share.Ask{Caller: caller, Size: bytes, End: func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) }})
}

// wait waits until an answer can be sent.
func wait(ctx context.Context, p *share.Place) error {
	if err := p.Wait(ctx); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled").WithCause(err)
	}
	return nil
}

// sentWriter writes an answer in pieces until the client is disconnected.
type sentWriter struct {
	http.ResponseWriter
	answer *share.Place
}

// Unwrap is for [http.ResponseController].
func (w *sentWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes a piece.
func (w *sentWriter) Write(p []byte) (int, error) {
	if w.answer.Ended() {
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
