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

// maxDepth is how deep a JSON value of a program may be nested: some readers stop
// at 64, and it is answered within others.
const maxDepth = 50

var (
	errDeep  = errors.New("it is nested too deep")
	errLarge = errors.New("a number in it is too large")
)

// CleanJSON returns a JSON value of a program's as text that is safe to hand on
// within another: in valid UTF-8, without half characters, and not nested too
// deep. Go's decoder lets all of that pass in a text that it does not look into,
// and one wrong byte ends the conversation with a reader that is strict.
func CleanJSON(text []byte) (json.RawMessage, error) {
	return cleanJSON(text, func(json.Number) error { return nil })
}

// cleanShown is CleanJSON for what is shown: readers take numbers for doubles.
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
		return nil, errors.New("it is no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	c := cleaner{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if utf8.Valid(text) && !halves.Match(text) {
				return slices.Clone(text), nil // as it was written
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

// halves are what may be escapes of half characters.
var halves = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// cleaner writes a JSON value token by token.
type cleaner struct {
	out  bytes.Buffer
	open []level
}

// level is an array or object that has not ended.
type level struct {
	object bool
	count  int // of values and, in an object, names so far
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
	c.out.Truncate(c.out.Len() - 1) // the line's end
	return nil
}
