package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a program's JSON value. Some readers stop at 64 levels,
// and answers nest the value in further ones.
const maxDepth = 50

var (
	errDeep  = errors.New("the JSON value is nested too deep")
	errLarge = errors.New("the JSON value has a number that is too large")
)

// CleanJSON returns a program's JSON value in a form that can be embedded in an answer:
// valid UTF-8, no lone surrogates, and at most maxDepth levels. json.RawMessage checks
// none of these, and a client with a strict parser would drop the connection.
func CleanJSON(text []byte) (json.RawMessage, error) {
	return cleanJSON(text, func(json.Number) error { return nil })
}

// cleanShown is CleanJSON for display frames. It also refuses numbers that do not fit
// into a double, because clients read numbers as doubles.
func cleanShown(text []byte) (json.RawMessage, error) {
	return cleanJSON(text, func(n json.Number) error {
		if _, err := strconv.ParseFloat(n.String(), 64); err != nil {
			return errLarge
		}
		return nil
	})
}

func cleanJSON(text []byte, check func(json.Number) error) (json.RawMessage, error) {
	if !json.Valid(text) {
		return nil, errors.New("the value is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	c := cleaner{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if utf8.Valid(text) && !halves.Match(text) {
				return slices.Clone(text), nil // unchanged
			}
			return c.out.Bytes(), nil
		}
		if n, ok := token.(json.Number); ok && err == nil {
			err = check(n)
		}
		if err == nil {
			err = c.write(token)
		}
		if err != nil {
			return nil, err
		}
	}
}

// halves matches escapes of surrogates.
var halves = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// cleaner writes a JSON value token by token.
type cleaner struct {
	out  bytes.Buffer
	open []level
}

// level is an open array or object.
type level struct {
	object bool
	count  int // values so far; in an object names, too
}

func (c *cleaner) write(token json.Token) error {
	if end, ok := token.(json.Delim); ok && (end == ']' || end == '}') {
		c.open = c.open[:len(c.open)-1]
		c.out.WriteByte(byte(end))
		return nil
	}
	if n := len(c.open); n > 0 {
		l := &c.open[n-1]
		switch {
		case l.object && l.count%2 == 1:
			c.out.WriteByte(':')
		case l.count > 0:
			c.out.WriteByte(',')
		}
		l.count++
	}
	if begin, ok := token.(json.Delim); ok {
		if len(c.open) == maxDepth {
			return errDeep
		}
		c.open = append(c.open, level{object: begin == '{'})
		c.out.WriteByte(byte(begin))
		return nil
	}
	e := json.NewEncoder(&c.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(token); err != nil {
		return err
	}
	c.out.Truncate(c.out.Len() - 1) // the newline of Encode
	return nil
}
