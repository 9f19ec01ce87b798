package server

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

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

// checkMessage refuses a message that would take much memory, and one that decoders read
// differently. It accepts what is not JSON, which the decoder refuses.
func checkMessage(text []byte) error {
	if err := checkSize(text); err != nil {
		return err
	}
	if !utf8.Valid(text) || jsonparts.Follows(text) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the message is not one JSON value in UTF-8").WithHint("send one message, or a batch")
	}
	if err := jsonparts.Check(text); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%v", err).WithHint("correct the message")
	}
	if changedID(text) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the id is a number that is not whole, or too large").WithHint("send a whole number up to 2^53, or a text")
	}
	return nil
}

// changedID reports whether the SDK changes the id of a message, or of one in a batch. The SDK cuts off
// fractions and rounds large numbers, so an answer could be taken for that to another request.
func changedID(text []byte) bool {
	in := jsonparts.Scanner(text)
	if !isBatch(text) {
		return changesID(in)
	}
	_, err := in.ReadToken()
	for err == nil && in.PeekKind() != ']' {
		if in.PeekKind() != '{' {
			err = in.SkipValue()
		} else if changesID(in) {
			return true
		}
	}
	return false
}

// changesID is changedID for the message that a decoder reads next.
func changesID(in *jsontext.Decoder) (changes bool) {
	if begin, err := in.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	for in.PeekKind() == '"' {
		token, err := in.ReadToken()
		if err != nil {
			return false
		}
		if token.String() != "id" || in.PeekKind() != '0' {
			err = in.SkipValue()
		} else if token, err = in.ReadToken(); err == nil {
			n := token.Float()
			changes = n != math.Trunc(n) || math.Abs(n) > maxWhole || math.Abs(n) == maxWhole && strings.TrimPrefix(token.String(), "-") != strconv.Itoa(maxWhole)
		}
		if err != nil {
			return false
		}
	}
	_, _ = in.ReadToken()
	return changes
}

// checkSize refuses a message that would take much memory.
func checkSize(text []byte) error {
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
	in := jsonparts.Scanner(text)
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
	in := jsonparts.Scanner(text)
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
	return checkMessage(body)
}
