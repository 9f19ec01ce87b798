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
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// strictJSON refuses a text that two readers of JSON could take for two values: one
// that has a name twice in an object, more text after the value, or characters that
// are no Unicode.
func strictJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it is not valid UTF-8")
	}
	if halfCharacter(data) {
		return errors.New("it has an escaped half of a character")
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

// open is an object or a list that has not ended yet.
type open struct {
	names map[string]bool // of an object; nil: a list
	value bool            // a name was read, and its value is next
}

// maxNested is how deep the objects and lists of a text may stand in each other.
const maxNested = 1000

// walkValue reads one value and finds names that come twice.
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

// halfCharacter reports whether an escape stands for half of a UTF-16 pair, which
// readers replace in different ways.
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

// escapedUnit reads uXXXX at a place.
func escapedUnit(data []byte, at int) (rune, bool) {
	if at+5 > len(data) || data[at] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[at+1:at+5]), 16, 16)
	return rune(n), err == nil
}

// onlyMembers refuses members of an object that its reader does not know.
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

// onceInAnyCase refuses an object with a name that differs from another, or from a
// compared one, by upper and lower case alone: some readers take one for the other.
func onceInAnyCase(object map[string]any, compared ...string) error {
	folded := map[string]string{}
	for _, name := range compared {
		folded[strings.ToLower(name)] = name
	}
	for name := range object {
		low := strings.ToLower(name)
		if as, is := folded[low]; is && as != name {
			return fmt.Errorf("it has the name %s, which some readers take for %s", sandboxmcp.Quote(name), sandboxmcp.Quote(as))
		}
		folded[low] = name
	}
	return nil
}
