package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

const timeFormat = "2006-01-02T15:04:05.000000000Z"

// zeroHash is the prev of entry 1.
const zeroHash = "0000000000000000000000000000000000000000000000000000000000000000"

// row is an entry as it is kept and hashed.
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
}

// hash returns what Hash has to be.
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

// appendDouble writes f as ECMAScript does. f is finite.
func appendDouble(b []byte, f float64) []byte {
	if f == 0 { // and minus zero
		return append(b, '0')
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	b = append(append(b, mantissa...), 'e', exp[0]) // the sign always stands there
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

func appendValue(b []byte, v any) (_ []byte, err error) {
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
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, e); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, compareUTF16)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			if b, err = appendValue(b, v[k]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	return nil, fmt.Errorf("value of type %T", v)
}

// compareUTF16 orders as RFC 8785 does, which differs from the order of bytes
// only where characters above U+FFFF meet those of U+E000 to U+FFFF.
func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// canonicalText returns the canonical form of a JSON text. It refuses one with
// anything after its value.
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
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s, err := canonicalText(text)
	return &s, err
}

func formatTime(t time.Time) string { return t.UTC().Format(timeFormat) }
