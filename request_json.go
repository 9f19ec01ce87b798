package sandboxmcp

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// plainRequest is a Request with the default encoding.
type plainRequest Request

// encodedRequest has extra fields for text that is not valid UTF-8, because JSON would
// replace its bytes.
type encodedRequest struct {
	*plainRequest
	Raw *rawText `json:"raw,omitempty"`
}

// rawText has texts in base64.
type rawText struct {
	Code []byte   `json:"code_base64,omitempty"`
	Env  []rawVar `json:"env_base64,omitempty"`
}

// rawVar is a variable of Env.
type rawVar struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

// MarshalJSON encodes all fields except the writers. Code and values of Env that are not
// valid UTF-8 are preserved.
func (r Request) MarshalJSON() ([]byte, error) {
	raw := &rawText{}
	if !utf8.ValidString(r.Code) {
		raw.Code, r.Code = []byte(r.Code), ""
	}
	for name, value := range r.Env {
		if !utf8.ValidString(value) || !utf8.ValidString(name) {
			raw.Env = make([]rawVar, 0, len(r.Env))
			break
		}
	}
	if raw.Env != nil {
		for name, value := range r.Env {
			raw.Env = append(raw.Env, rawVar{[]byte(name), []byte(value)})
		}
		r.Env = nil
	}
	if raw.Code == nil && raw.Env == nil {
		raw = nil
	}
	return json.Marshal(encodedRequest{(*plainRequest)(&r), raw})
}

// UnmarshalJSON decodes the output of MarshalJSON. It refuses unknown fields.
func (r *Request) UnmarshalJSON(data []byte) error {
	in := encodedRequest{plainRequest: (*plainRequest)(r)}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return err
	}
	if in.Raw == nil {
		return nil
	}
	if in.Raw.Code != nil {
		r.Code = string(in.Raw.Code)
	}
	if in.Raw.Env != nil {
		r.Env = make(map[string]string, len(in.Raw.Env))
		for _, v := range in.Raw.Env {
			r.Env[string(v.Name)] = string(v.Value)
		}
	}
	return nil
}
