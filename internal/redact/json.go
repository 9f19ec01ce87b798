package redact

import (
	"bytes"
	"encoding/json"
)

// JSON masks a JSON value in its strings and member names; the result is valid JSON. A
// number that contains a secret becomes a string. If a secret spans several parts of the
// value, the whole value becomes a mask.
func (m *Masker) JSON(raw json.RawMessage) json.RawMessage {
	if m == nil || !m.touches(string(raw)) && !bytes.ContainsRune(raw, '\\') {
		return raw
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return maskJSON
	}
	before, err := json.Marshal(v)
	if err != nil {
		return maskJSON
	}
	text, err := json.Marshal(m.value(v))
	if err == nil && bytes.Equal(before, text) && !m.touches(string(raw)) {
		return raw
	}
	if err != nil || m.touches(string(text)) { // a secret spans several strings
		return maskJSON
	}
	return text
}

var maskJSON = json.RawMessage(`"` + Mask + `"`)

func (m *Masker) touches(s string) bool { return m.Text(s) != s }

// value masks a value as package json decodes it.
func (m *Masker) value(v any) any {
	switch v := v.(type) {
	case string:
		return m.Text(v)
	case json.Number:
		if s := m.Text(v.String()); s != v.String() {
			return s
		}
	case []any:
		for i := range v {
			v[i] = m.value(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[m.Text(k)] = m.value(e)
		}
		return out
	}
	return v
}
