package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/sandboxmcp/sandboxmcp"
)

const timeFormat = "2006-01-02T15:04:05.000000000Z"

// zeroHash is the prev of entry 1.
const zeroHash = "0000000000000000000000000000000000000000000000000000000000000000"

// row is an entry as it is stored and hashed.
type row struct {
	ID, Namespace                  string
	Seq                            int64
	Timestamp, Action, Phase       string
	RequestID, SessionID, Language string
	ExitCode                       *int64
	DurationMS                     *float64
	Success                        *int64 // 0 or 1
	Detail, Actor                  string
	Usage, Metadata                *string // canonical JSON
	Prev, Hash                     string

	values []any // column values; see prepare
}

// hash computes the hash of the row. A valid entry has the same value in Hash.
func (r *row) hash() string {
	b := make([]byte, 0, 1024)
	b = append(b, `{"action":`...)
	b = appendString(b, r.Action)
	b = append(b, `,"actor":`...)
	b = appendString(b, r.Actor)
	b = append(b, `,"detail":`...)
	b = appendString(b, r.Detail)
	b = append(b, `,"duration_ms":`...)
	if r.DurationMS == nil {
		b = append(b, "null"...)
	} else {
		b = appendDouble(b, *r.DurationMS)
	}
	b = append(b, `,"exit_code":`...)
	if r.ExitCode == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, *r.ExitCode, 10)
	}
	b = append(b, `,"id":`...)
	b = appendString(b, r.ID)
	b = append(b, `,"language":`...)
	b = appendString(b, r.Language)
	b = append(b, `,"metadata":`...)
	b = appendRaw(b, r.Metadata)
	b = append(b, `,"namespace":`...)
	b = appendString(b, r.Namespace)
	b = append(b, `,"phase":`...)
	b = appendString(b, r.Phase)
	b = append(b, `,"prev":`...)
	b = appendString(b, r.Prev)
	b = append(b, `,"request_id":`...)
	b = appendString(b, r.RequestID)
	b = append(b, `,"resource_usage":`...)
	b = appendRaw(b, r.Usage)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, r.Seq, 10)
	b = append(b, `,"session_id":`...)
	b = appendString(b, r.SessionID)
	b = append(b, `,"success":`...)
	if r.Success == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendBool(b, *r.Success != 0)
	}
	b = append(b, `,"timestamp":`...)
	b = appendString(b, r.Timestamp)
	b = append(b, '}')
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func appendRaw(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return append(b, *s...)
}

func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}

// appendDouble writes f as ECMAScript does. No server stores a number that is not finite; of one in the database it writes a
// text that no JSON has, so its row has a wrong hash.
func appendDouble(b []byte, f float64) []byte {
	switch {
	case f == 0: // also minus zero
		return append(b, '0')
	case math.IsInf(f, 0) || math.IsNaN(f):
		return strconv.AppendFloat(b, f, 'g', -1, 64)
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	b = append(append(b, mantissa...), 'e', exp[0]) // exp[0] is the sign, which FormatFloat always writes
	return append(b, strings.TrimLeft(exp[1:], "0")...)
}

func appendNumber(b []byte, n json.Number) ([]byte, error) {
	s := n.String()
	if !strings.ContainsAny(s, ".eE") && s != "-0" {
		if _, err := strconv.ParseInt(s, 10, 64); err == nil {
			return append(b, s...), nil
		}
		if _, err := strconv.ParseUint(s, 10, 64); err == nil {
			return append(b, s...), nil
		}
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s: %w", s, err)
	}
	return appendDouble(b, f), nil
}

func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return appendString(b, v), nil
	case json.Number:
		return appendNumber(b, v)
	case []any:
		return appendList(b, v, appendValue)
	case map[string]any:
		return appendMap(b, v, appendValue)
	}
	return nil, fmt.Errorf("value of type %T", v)
}

// compareUTF16 compares strings by UTF-16 code units, as RFC 8785 does. The result differs
// from a comparison of bytes only between characters above U+FFFF and characters from
// U+E000 to U+FFFF.
func compareUTF16(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && a[i] >= 0xee && b[i] >= 0xee { // first bytes of the characters for which the orders differ
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		}
		if a[i] != b[i] {
			break
		}
	}
	return strings.Compare(a, b)
}

// The canonical form is that of RFC 8785, except that integers above 2^53 stay exact and
// characters that are not UTF-8 become U+FFFD. It is written here because every run needs it
// three times: for the metadata of a run it takes 5 µs and 3 allocations, and
// github.com/gowebpki/jcs takes 37 µs and 167 after encoding/json.

// canonicalText returns the canonical form of a JSON text. The text must be one value.
func canonicalText(text []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(text, " \t\r\n"))) {
		return "", fmt.Errorf("text after the JSON value")
	}
	b, err := appendValue(make([]byte, 0, len(text)), v)
	return string(b), err
}

// canonicalOf returns the canonical form of a value that encoding/json can print.
func canonicalOf(v any) (*string, error) {
	b, err := appendGo(make([]byte, 0, 512), v)
	if err != nil {
		return nil, err
	}
	s := string(b)
	return &s, nil
}

// appendGo appends the JSON of v in canonical form. It writes the types of entries itself
// and leaves the others to encoding/json.
func appendGo(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return appendString(b, valid(v)), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("a number is NaN or infinite")
		}
		return appendDouble(b, v), nil
	case map[string]any:
		return appendMap(b, v, appendGo)
	case []any:
		return appendList(b, v, appendGo)
	}
	r := reflect.ValueOf(v)
	if _, special := v.(json.Marshaler); special {
		return appendAny(b, v)
	}
	switch r.Kind() {
	case reflect.String:
		if _, number := v.(json.Number); !number {
			return appendString(b, valid(r.String())), nil
		}
	case reflect.Pointer:
		if r.IsNil() {
			return append(b, "null"...), nil
		}
		if r.Elem().Kind() == reflect.Struct {
			return appendGo(b, r.Elem().Interface())
		}
	case reflect.Struct:
		if fields := fieldsOf(r.Type()); fields != nil {
			return appendStruct(b, r, fields)
		}
	default:
	}
	return appendAny(b, v)
}

// appendAny appends v by way of encoding/json.
func appendAny(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s, err := canonicalText(text)
	return append(b, s...), err
}

func appendList(b []byte, list []any, value func([]byte, any) ([]byte, error)) (_ []byte, err error) {
	b = append(b, '[')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = value(b, e); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, m map[string]any, value func([]byte, any) ([]byte, error)) (_ []byte, err error) {
	var some [16]string
	keys := some[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareUTF16)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, valid(k)), ':')
		if b, err = value(b, m[k]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// field is a field of a struct and its JSON name.
type field struct {
	index int
	name  string
}

var structs sync.Map // reflect.Type to []field

// fieldsOf returns the fields of a struct type in the order of their JSON names. It returns
// nil if a field is unexported, is not of a plain kind, or has more than a name in its tag.
func fieldsOf(t reflect.Type) []field {
	if known, ok := structs.Load(t); ok {
		fields, _ := known.([]field)
		return fields
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("json")
		simple := f.IsExported() && !f.Anonymous && name != "" && name != "-" && !strings.ContainsAny(name, `,"\`)
		switch f.Type.Kind() {
		case reflect.Int, reflect.Int64, reflect.Float64, reflect.Bool, reflect.String:
			simple = simple && (f.Type.PkgPath() == "" || f.Type.Kind() == reflect.String && f.Type != reflect.TypeFor[json.Number]())
			simple = simple && !f.Type.Implements(reflect.TypeFor[json.Marshaler]()) && !f.Type.Implements(reflect.TypeFor[encoding.TextMarshaler]())
		default:
			simple = false
		}
		if !simple {
			structs.Store(t, []field(nil))
			return nil
		}
		fields = append(fields, field{i, name})
	}
	slices.SortFunc(fields, func(x, y field) int { return compareUTF16(x.name, y.name) })
	structs.Store(t, fields)
	return fields
}

func appendStruct(b []byte, r reflect.Value, fields []field) (_ []byte, err error) {
	b = append(b, '{')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, f.name), ':')
		switch v := r.Field(f.index); v.Kind() {
		case reflect.Int, reflect.Int64:
			b = strconv.AppendInt(b, v.Int(), 10)
		case reflect.Float64:
			b, err = appendGo(b, v.Float())
		case reflect.Bool:
			b = strconv.AppendBool(b, v.Bool())
		default:
			b = appendString(b, valid(v.String()))
		}
		if err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }

// checkTime fails for a time that timeFormat cannot hold. Nobody could read an entry or a checkpoint with such a time,
// and an entry stays.
func checkTime(t time.Time) error {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the year is %d by the clock of this machine, and the record has years from 0 to 9999", y).
			WithHint("set the clock of the machine")
	}
	return nil
}
