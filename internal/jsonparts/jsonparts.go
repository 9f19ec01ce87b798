// Package jsonparts measures and checks JSON before it is decoded. Decoded, small values take many
// times the bytes of their text.
package jsonparts

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Check returns an error if an object has two members of one name, because decoders differ in which
// they take. It returns no error for text that is not JSON.
func Check(text []byte) error {
	err := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowInvalidUTF8(true)).SkipValue()
	if twice, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return fmt.Errorf("%q occurs twice in one object", twice.JSONPointer.LastToken())
	}
	return nil
}

// Follows reports whether more text follows the first JSON value. Decoders that read a stream take
// the first value and leave the rest.
func Follows(text []byte) bool {
	in := Scanner(text)
	if in.SkipValue() != nil {
		return false
	}
	_, err := in.ReadToken()
	return !errors.Is(err, io.EOF)
}

// Scanner returns a decoder that, like other decoders, accepts duplicate names and invalid UTF-8.
func Scanner(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Count counts the members, elements and brackets of JSON. It accepts any text.
func Count(text []byte) (n int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '[', '{':
			n++
		case '"':
			i = closing(text, i)
		}
	}
	return n
}

// closing returns the place of the quote that closes the string that begins at i.
func closing(text []byte, i int) int {
	for i++; ; i++ {
		next := bytes.IndexByte(text[min(i, len(text)):], '"')
		if next < 0 {
			return len(text)
		}
		i += next
		escapes := i
		for text[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i
		}
	}
}
