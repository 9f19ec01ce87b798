package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jsonparts"
)

// A form is a body for people who write JSON by hand: `body:"form"`. Its type is a struct whose
// tags say what is valid, for the decoder and for documents: a field without omitempty is
// required; `enum:"a,b"` lists values; `min:"n"`, `max:"n"` and `above:"n"` bound a number;
// `filled:"true"` refuses an empty text; `doc:"text"` describes it. null counts as absent, but is
// refused in lists and objects of texts. A form with `body:"form,secret"` has no content in its errors.

// part is a field of a form.
type part struct {
	name     string
	required bool
	index    int
	kind     reflect.Type
	tag      reflect.StructTag
}

// partsOf lists the fields of a form, or of any other struct in JSON without embedded structs.
func partsOf(t reflect.Type) []part {
	var all []part
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || f.Anonymous {
			continue
		}
		all = append(all, part{name: name, required: !strings.Contains(options, "omit"), index: i, kind: f.Type, tag: f.Tag})
	}
	return all
}

// formParts is the most members, elements and brackets of a body. Decoded, each takes some hundred
// bytes.
const formParts = 16 << 10

// formReader reads forms.
type formReader struct {
	limit  int64       // bytes of the body at most
	own    namespaceOf // the argument namespace that the body may also have
	secret bool        // errors have no content of the body
}

// read reads the body of a request into a form.
func (f formReader) read(w http.ResponseWriter, r *http.Request, into any) error {
	tooLong := sandboxmcp.Errorf(sandboxmcp.CodeUploadTooLarge, "the body has more than %d bytes", f.limit).With("limit_bytes", f.limit)
	if r.ContentLength > f.limit {
		w.Header().Set("Connection", "close")
		return tooLong
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, f.limit))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return tooLong
	}
	if err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the body ended before all of it was received").WithHint("send it again")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	if jsonparts.Count(data) > formParts {
		return invalid("the body has more than %d values", formParts).WithHint("send large data as text, or as a file")
	}
	if err = jsonparts.Check(data); err != nil {
		err = invalid("%v", err)
	} else {
		err = fillForm("", data, f.own, reflect.ValueOf(into).Elem())
	}
	if f.secret && sandboxmcp.CodeOf(err) == sandboxmcp.CodeInvalidArgument {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the body is not valid for %s", r.URL.Path).
			WithHint("send an object with the fields " + strings.Join(namesOf(reflect.TypeOf(into).Elem()), ", "))
	}
	return err
}

func namesOf(t reflect.Type) []string {
	var names []string
	for _, p := range partsOf(t) {
		names = append(names, p.name)
	}
	return names
}

// fillForm sets the fields of a form from a JSON object. The prefix is put before names in
// messages.
func fillForm(prefix string, data []byte, own namespaceOf, form reflect.Value) error {
	var sent map[string]json.RawMessage
	switch err := json.Unmarshal(data, &sent); {
	case err != nil || sent == nil:
		return invalid("the body is not a JSON object").WithCause(err)
	case !utf8.Valid(data):
		return invalid("the body is not UTF-8")
	}
	if value, there := sent[namespaceArgument]; there && own != "" {
		var name string
		if json.Unmarshal(value, &name) != nil {
			return invalid("%s is %s; it has to be a text", namespaceArgument, jsonKind(value))
		}
		if err := own.check(name); err != nil {
			return err
		}
		delete(sent, namespaceArgument)
	}
	parts := partsOf(form.Type())
	for name := range sent {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return invalid("%s is not known", sandboxmcp.Quote(prefix+name)).WithHint("the fields are " + strings.Join(namesOf(form.Type()), ", "))
		}
	}
	for _, p := range parts {
		value, there := sent[p.name]
		switch {
		case there && string(value) != "null":
			if err := p.fill(prefix, value, form.Field(p.index)); err != nil {
				return err
			}
		case p.required:
			return invalid("%s is missing", prefix+p.name)
		}
	}
	return nil
}

// fill sets one field.
func (p part) fill(prefix string, value []byte, to reflect.Value) error {
	name := prefix + p.name
	if p.kind.Kind() == reflect.Struct {
		if jsonKind(value) != "an object" {
			return invalid("%s has to be an object", name)
		}
		return fillForm(name+".", value, "", to)
	}
	if err := decodeField(name, value, to); err != nil {
		return err
	}
	if to.Kind() == reflect.String && to.Len() == 0 && p.tag.Get("filled") != "" {
		return invalid("%s is empty; it has to be a value, or be left out", name)
	}
	if err := checkID(to); err != nil {
		return err
	}
	if list, ok := p.tag.Lookup("enum"); ok && !slices.Contains(strings.Split(list, ","), to.String()) {
		return invalid("%s is %s; it has to be one of %s", name, sandboxmcp.Quote(to.String()), strings.ReplaceAll(list, ",", ", "))
	}
	return p.checkBounds(name, to)
}

// decodeField decodes the value of a field without coercion. It decodes elements of lists and
// objects by the same rules. A number without a fraction, such as 1.0, is a whole number, as in
// JSON Schema.
func decodeField(name string, value []byte, to reflect.Value) error {
	kind := to.Type()
	if kind.Kind() == reflect.Pointer {
		to.Set(reflect.New(kind.Elem()))
		return decodeField(name, value, to.Elem())
	}
	wrong := invalid("%s is %s; it has to be %s", name, jsonKind(value), kindWords(kind))
	switch kind.Kind() {
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			return wrong
		}
		to.Set(reflect.MakeSlice(kind, len(list), len(list)))
		for i, element := range list {
			if err := decodeField(name+"["+strconv.Itoa(i)+"]", element, to.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Map:
		var all map[string]json.RawMessage
		if json.Unmarshal(value, &all) != nil {
			return wrong
		}
		to.Set(reflect.MakeMap(kind))
		for _, key := range slices.Sorted(maps.Keys(all)) {
			element := reflect.New(kind.Elem()).Elem()
			if err := decodeField(name+"["+sandboxmcp.Quote(key)+"]", all[key], element); err != nil {
				return err
			}
			to.SetMapIndex(reflect.ValueOf(key), element)
		}
		return nil
	case reflect.Int, reflect.Int64:
		var n float64
		if json.Unmarshal(value, &n) == nil && n == math.Trunc(n) && math.Abs(n) <= maxWhole && string(value) != "null" {
			to.SetInt(int64(n))
			return nil
		}
		return wrong
	default:
		if string(value) == "null" || json.Unmarshal(value, to.Addr().Interface()) != nil {
			return wrong
		}
		return nil
	}
}

// maxWhole is the largest n for which float64 represents all whole numbers up to n exactly.
const maxWhole = 1 << 53

// checkBounds checks the bounds on a number.
func (p part) checkBounds(name string, to reflect.Value) error {
	if low, ok := p.bound("above"); ok && number(to) <= low {
		return invalid("%s is %s; it has to be above %s", name, digits(number(to)), p.tag.Get("above"))
	}
	if low, ok := p.bound("min"); ok && number(to) < low {
		return invalid("%s is %s; it has to be at least %s", name, digits(number(to)), p.tag.Get("min"))
	}
	if high, ok := p.bound("max"); ok && number(to) > high {
		return invalid("%s is %s; it has to be at most %s", name, digits(number(to)), p.tag.Get("max"))
	}
	return nil
}

// bound returns a bound on a number.
func (p part) bound(tag string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(p.tag.Get(tag), 64)
	return n, err == nil
}

func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// jsonKind names the kind of a JSON value.
func jsonKind(value []byte) string {
	switch value[0] {
	case '"':
		return "a text"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return string(value[:min(len(value), 40)])
}

// kindWords says what JSON value a Go type takes.
func kindWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list of texts"
	case reflect.Map:
		return "an object with texts"
	default:
		return "a text"
	}
}

func invalid(format string, args ...any) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, format, args...)
}
