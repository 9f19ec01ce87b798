package enroll

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// order is the order of the fields in a new entry. Others follow by name.
var order = []string{"type", "command", "args", "env"}

// showJSON returns a document that has the entry alone.
func showJSON(ch change) ([]byte, error) { return editJSON(nil, ch) }

// editJSON changes the entry in a JSON document, which may have comments and trailing commas.
// It keeps all of the rest, byte for byte.
func editJSON(data []byte, ch change) ([]byte, error) {
	whole := data
	if len(bytes.TrimSpace(data)) == 0 {
		whole = []byte("{}\n")
	}
	if at := tooDeep(whole); at >= 0 {
		return nil, faultAt(whole, at, fmt.Sprintf("its values are nested deeper than %d levels", maxNested))
	}
	doc, err := hujson.Parse(whole)
	if err != nil {
		return nil, syntaxFault(whole, err)
	}
	before, err := decodeJSON(whole)
	if err != nil {
		return nil, err
	}
	top, ok := doc.Value.(*hujson.Object)
	if !ok {
		return nil, faultAt(whole, doc.StartOffset, "the document has to be an object")
	}
	if ch.fields == nil {
		err = removeJSON(whole, top, ch)
	} else {
		err = enterJSON(whole, top, ch)
	}
	if err != nil {
		return nil, err
	}
	out := doc.Pack()
	after, err := decodeJSON(out)
	if err != nil {
		return nil, fmt.Errorf("edit configuration: %w", err)
	}
	if !sameButFor(before, after, ch) {
		return nil, &placeError{text: "the entry cannot be changed without a change of others"}
	}
	if ch.fields == nil && bytes.Equal(out, whole) {
		return data, nil
	}
	return out, nil
}

// maxNested bounds the nesting of values, because the parser is recursive.
const maxNested = 1000

// tooDeep returns the offset of a bracket that is nested too deep, or -1. Brackets in texts and comments do not
// count. It skips these as the parser does, so that none of them hides brackets from it.
func tooDeep(data []byte) int {
	depth := 0
	for i := 0; i < len(data); {
		if n := skipped(data[i:]); n > 0 {
			i += n
			continue
		}
		switch data[i] {
		case '{', '[':
			if depth++; depth > maxNested {
				return i
			}
		case '}', ']':
			depth--
		}
		i++
	}
	return -1
}

// skipped returns the length of the text or comment that data begins with; 0: neither.
func skipped(data []byte) int {
	end := ""
	switch {
	case bytes.HasPrefix(data, []byte("//")):
		end = "\n"
	case bytes.HasPrefix(data, []byte("/*")):
		end = "*/"
	case data[0] == '"':
		return skippedText(data)
	default:
		return 0
	}
	if n := bytes.Index(data[2:], []byte(end)); n >= 0 {
		return 2 + n + len(end)
	}
	return len(data)
}

// skippedText is skipped for a text.
func skippedText(data []byte) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// enterJSON adds or updates the entry.
func enterJSON(data []byte, top *hujson.Object, ch change) error {
	unit := indentOf(data)
	servers, err := member(data, top, ch.key)
	if err != nil {
		return err
	}
	if servers == nil {
		servers = add(top, ch.key, &hujson.Object{}, unit, 1)
	}
	table, ok := servers.Value.(*hujson.Object)
	if !ok {
		return faultAt(data, servers.StartOffset, ch.key+" has to be an object")
	}
	old, err := member(data, table, ch.server)
	if err != nil {
		return err
	}
	if old == nil {
		value, err := valueOf(ch.fields, unit, 2)
		if err != nil {
			return err
		}
		add(table, ch.server, value, unit, 2)
		return nil
	}
	entry, ok := old.Value.(*hujson.Object)
	if !ok {
		return faultAt(data, old.StartOffset, "the entry "+ch.server+" has to be an object")
	}
	var was map[string]any
	if err := json.Unmarshal(standard(*old), &was); err != nil {
		return faultAt(data, old.StartOffset, err.Error())
	}
	if remote(was) {
		return faultAt(data, old.StartOffset, "the entry "+ch.server+" is a server with a URL, which is not replaced")
	}
	want := merged(was, ch.fields)
	for _, k := range fieldNames(ch.fields) {
		if reflect.DeepEqual(was[k], want[k]) {
			continue
		}
		value, err := valueOf(want[k], unit, 3)
		if err != nil {
			return err
		}
		field, err := member(data, entry, k)
		if err != nil {
			return err
		}
		if field == nil {
			add(entry, k, value, unit, 3)
		} else {
			field.Value = value
		}
	}
	return nil
}

// removeJSON removes the entry. Comments before it stay.
func removeJSON(data []byte, top *hujson.Object, ch change) error {
	servers, err := member(data, top, ch.key)
	if err != nil || servers == nil {
		return err
	}
	table, ok := servers.Value.(*hujson.Object)
	if !ok {
		return faultAt(data, servers.StartOffset, ch.key+" has to be an object")
	}
	if old, err := member(data, table, ch.server); err != nil || old == nil {
		return err
	}
	i := slices.IndexFunc(table.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == ch.server })
	kept := table.Members[i].Name.BeforeExtra
	last := i == len(table.Members)-1
	trailing := last && table.Members[i].Value.AfterExtra != nil
	table.Members = slices.Delete(table.Members, i, i+1)
	switch {
	case !hasComment(kept):
	case last:
		table.AfterExtra = append(slices.Clone(kept), table.AfterExtra...)
	default:
		next := &table.Members[i].Name
		next.BeforeExtra = append(slices.Clone(kept), next.BeforeExtra...)
	}
	if last && i > 0 && !trailing { // the member before it was followed by a comma
		v := &table.Members[i-1].Value
		if hasComment(v.AfterExtra) {
			table.AfterExtra = append(slices.Clone(v.AfterExtra), table.AfterExtra...)
		}
		v.AfterExtra = nil
	}
	return nil
}

// member returns the value of an object's member, or nil. It fails if the object has the name
// twice, because programs differ in which they use.
func member(data []byte, o *hujson.Object, name string) (*hujson.Value, error) {
	var found *hujson.Value
	for i := range o.Members {
		if nameOf(o.Members[i]) != name {
			continue
		}
		if found != nil {
			return nil, faultAt(data, o.Members[i].Name.StartOffset, "the name "+name+" is there twice")
		}
		found = &o.Members[i].Value
	}
	return found, nil
}

func nameOf(m hujson.ObjectMember) string {
	l, _ := m.Name.Value.(hujson.Literal)
	return l.String()
}

// add appends a member to an object, on a line of its own.
func add(o *hujson.Object, name string, value hujson.ValueTrimmed, unit string, depth int) *hujson.Value {
	line := hujson.Extra("\n" + strings.Repeat(unit, depth))
	m := hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: line, Value: hujson.String(name)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: value},
	}
	end := hujson.Extra("\n" + strings.Repeat(unit, depth-1))
	if n := len(o.Members); n > 0 {
		if o.Members[n-1].Value.AfterExtra != nil { // the object has a trailing comma
			m.Value.AfterExtra = hujson.Extra{}
		}
		if hasComment(o.AfterExtra) { // it belongs to the member before
			m.Name.BeforeExtra = append(bytes.TrimRight(slices.Clone(o.AfterExtra), " \t\r\n"), line...)
		}
	} else if hasComment(o.AfterExtra) {
		m.Name.BeforeExtra = append(bytes.TrimRight(slices.Clone(o.AfterExtra), " \t\r\n"), line...)
	}
	o.AfterExtra = end
	o.Members = append(o.Members, m)
	return &o.Members[len(o.Members)-1].Value
}

func hasComment(e hujson.Extra) bool { return len(bytes.TrimSpace(e)) > 0 }

// valueOf returns a value in lines that are indented for its depth.
func valueOf(v any, unit string, depth int) (hujson.ValueTrimmed, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent(strings.Repeat(unit, depth), unit)
	var err error
	if fields, ok := v.(map[string]any); ok && depth == 2 {
		err = enc.Encode(ordered(fields))
	} else {
		err = enc.Encode(v)
	}
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	parsed, err := hujson.Parse(text.Bytes())
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return parsed.Value, nil
}

// ordered is an entry whose fields are written in their order.
type ordered map[string]any

// MarshalJSON writes the fields in the order of fieldNames.
func (o ordered) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, k := range fieldNames(o) {
		v, err := json.Marshal(o[k])
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, hujson.String(k)...), ':'), v...)
	}
	return append(out, '}'), nil
}

// fieldNames returns the names of the fields in the order in which they are written.
func fieldNames(fields map[string]any) []string {
	return slices.SortedFunc(maps.Keys(fields), func(a, b string) int {
		x, y := slices.Index(order, a), slices.Index(order, b)
		switch {
		case x < 0 && y < 0:
			return strings.Compare(a, b)
		case x < 0:
			return 1
		case y < 0:
			return -1
		}
		return x - y
	})
}

// indentOf returns the indentation of the first indented line, or two spaces.
func indentOf(data []byte) string {
	for line := range bytes.Lines(data) {
		rest := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(rest); n > 0 && n <= 8 && len(bytes.TrimSpace(rest)) > 0 && rest[0] == '"' {
			return string(line[:n])
		}
	}
	return "  "
}

// syntaxFault adds the place to an error of the parser.
func syntaxFault(data []byte, err error) error {
	at := &placeError{text: err.Error()}
	if _, scanErr := fmt.Sscanf(at.text, "hujson: line %d, column %d:", &at.line, &at.column); scanErr == nil {
		if cause := errors.Unwrap(err); cause != nil {
			at.text = cause.Error()
		}
	}
	at.line = min(at.line, bytes.Count(data, []byte("\n"))+1)
	return at
}

// standard returns a value as JSON without comments.
func standard(v hujson.Value) []byte {
	v = v.Clone()
	v.Standardize()
	return v.Pack()
}

// decodeJSON decodes a document that may have comments. Numbers stay as they are written.
func decodeJSON(data []byte) (map[string]any, error) {
	plain, err := hujson.Standardize(slices.Clone(data))
	if err != nil {
		return nil, syntaxFault(data, err)
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	var all any
	if err := dec.Decode(&all); err != nil {
		return nil, &placeError{text: err.Error()}
	}
	doc, _ := all.(map[string]any)
	return doc, nil
}

// sameButFor reports whether two documents differ in nothing but the entry of a change, and
// whether the second has the entry as it should be.
func sameButFor(before, after map[string]any, ch change) bool {
	was, rest := without(before, ch)
	is, left := without(after, ch)
	if !reflect.DeepEqual(rest, left) {
		return false
	}
	if ch.fields == nil {
		return is == nil
	}
	old, _ := was.(map[string]any)
	return reflect.DeepEqual(is, any(merged(old, ch.fields)))
}

// without returns the entry of a change, and a document without it. An empty table of servers
// counts as none.
func without(doc map[string]any, ch change) (entry any, rest map[string]any) {
	rest = maps.Clone(doc)
	table, ok := rest[ch.key].(map[string]any)
	if !ok {
		return nil, rest
	}
	table = maps.Clone(table)
	entry = table[ch.server]
	delete(table, ch.server)
	rest[ch.key] = table
	if len(table) == 0 {
		delete(rest, ch.key)
	}
	return entry, rest
}
