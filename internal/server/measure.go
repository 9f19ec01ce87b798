package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jsonparts"
)

// Bounds of a message before it is decoded. Decoded, small values take 50 times the bytes of their
// JSON. load counts the memory of a tool call until it is answered. Nothing counts other messages, and
// some are kept as long as their session, so they have to be small.
const (
	maxParts   = 1 << 20   // members, elements and brackets of a tool call
	maxOther   = 256 << 10 // bytes of any other message, and of a whole batch
	otherParts = 4096      // members, elements and brackets of it
	maxBatch   = 20        // messages of a batch: each can have a long answer
)

// checkMessage refuses a message that would take much memory. It accepts what is not JSON, which
// the decoder refuses.
func checkMessage(text []byte) error {
	n := jsonparts.Count(text)
	small := len(text) <= maxOther && n <= otherParts
	switch batch := isBatch(text); {
	case batch && !(small && countBatch(text) <= maxBatch):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the batch has more than %d messages, %d KiB or %d values", maxBatch, maxOther>>10, otherParts).
			WithHint("send the messages one by one")
	case small:
		return nil
	case !callsTool(text):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the message has more than %d KiB or %d values, and calls no tool", maxOther>>10, otherParts).
			WithHint("send less")
	case n > maxParts:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the message has more than %d values", maxParts).WithHint("send large data as text, or as a file")
	}
	return nil
}

func isBatch(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && text[0] == '['
}

// countBatch counts the messages of a batch, up to one more than are accepted.
func countBatch(text []byte) (n int) {
	in := scanner(text)
	_, err := in.ReadToken()
	for err == nil && n <= maxBatch && in.PeekKind() != ']' {
		if err = in.SkipValue(); err == nil {
			n++
		}
	}
	return n
}

// callsTool reports whether a message is a tool call for every decoder, also if it has two members
// named method.
func callsTool(text []byte) bool {
	in := scanner(text)
	if begin, err := in.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	calls := false
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return false
		}
		if !strings.EqualFold(name.String(), "method") {
			if in.SkipValue() != nil {
				return false
			}
			continue
		}
		if method, err := in.ReadToken(); err != nil || method.Kind() != '"' || method.String() != toolsCall {
			return false
		}
		calls = true
	}
	return calls
}

// scanner returns a decoder that accepts the JSON that other decoders accept.
func scanner(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// measured checks the body of a request, which can then still be read.
func measured(r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	body, err := readBody(r, maxLine)
	r.Body = &reread{io.MultiReader(bytes.NewReader(body), endOf{err}, r.Body), r.Body}
	if err != nil || len(body) > maxLine {
		return nil //nolint:nilerr // the SDK finds it, too, and words it
	}
	if err = checkMessage(body); err == nil && unusableID(body) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the message cannot be answered: %v", errID).WithHint("use a text or a whole number as the id")
	}
	return err
}
