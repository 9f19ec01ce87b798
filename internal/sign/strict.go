package sign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// strictJSON fails if two JSON parsers could read the text differently. That is so if an
// object has a name twice, if text follows the value, or if characters are not valid
// Unicode.
func strictJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it is not valid UTF-8")
	}
	if halfCharacter(data) {
		return errors.New("it has an escape of half a character (a lone surrogate)")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := walkValue(d); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the value")
	}
	return nil
}

// open is an object or array whose end was not read yet.
type open struct {
	names map[string]bool // names read so far; nil: an array
	value bool            // a name was read; its value comes next
}

// maxNested bounds the nesting of objects and arrays.
const maxNested = 1000

// walkValue reads one value and fails if an object has a name twice.
func walkValue(d *json.Decoder) error {
	var stack []*open
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		var in *open
		if len(stack) > 0 {
			in = stack[len(stack)-1]
		}
		if name, text := t.(string); text && in != nil && in.names != nil && !in.value {
			if in.names[name] {
				return fmt.Errorf("it has the name %s twice in one object", sandboxmcp.Quote(name))
			}
			in.names[name], in.value = true, true
			continue
		}
		if in != nil {
			in.value = false
		}
		switch t {
		case json.Delim('{'):
			stack = append(stack, &open{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, &open{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		if len(stack) == 0 {
			return nil
		}
		if len(stack) > maxNested {
			return fmt.Errorf("its values are nested deeper than %d levels", maxNested)
		}
	}
}

// halfCharacter reports whether the text escapes a lone UTF-16 surrogate. Parsers replace
// these differently.
func halfCharacter(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++
		unit, ok := escapedUnit(data, i)
		if !ok || !utf16.IsSurrogate(unit) {
			continue
		}
		i += 4
		low, ok := rune(0), i+1 < len(data) && data[i+1] == '\\'
		if ok {
			low, ok = escapedUnit(data, i+2)
		}
		if !ok || utf16.DecodeRune(unit, low) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escapedUnit parses uXXXX at an offset.
func escapedUnit(data []byte, at int) (rune, bool) {
	if at+5 > len(data) || data[at] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[at+1:at+5]), 16, 16)
	return rune(n), err == nil
}

// onlyMembers fails if an object has members other than the known ones.
func onlyMembers(what string, object any, known ...string) error {
	members, ok := object.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is not an object", what)
	}
	for name := range members {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s has the member %s, which is no part of it", what, sandboxmcp.Quote(name))
		}
	}
	return nil
}

// onceInAnyCase fails if two names of an object, or a name and a compared one, differ only
// in case. Some parsers treat such names as equal, those of Go among them.
func onceInAnyCase(object map[string]any, compared ...string) error {
	folded := map[string]string{}
	for _, name := range compared {
		folded[fold(name)] = name
	}
	for name := range object {
		low := fold(name)
		if as, is := folded[low]; is && as != name {
			return fmt.Errorf("it has the name %s, which some readers take for %s", sandboxmcp.Quote(name), sandboxmcp.Quote(as))
		}
		folded[low] = name
	}
	return nil
}

// fold replaces each letter by the first that Unicode folds to the same, as encoding/json does. Lower
// case alone is not enough: ſ (U+017F) is a small letter and counts as s.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
