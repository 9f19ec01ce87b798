package guard

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// Failure returns err with secrets masked in its message, hint, fields and cause.
func Failure(m *redact.Masker, err *sandboxmcp.Error) *sandboxmcp.Error {
	if err == nil || m == nil {
		return err
	}
	masked := *err
	masked.Message, masked.Hint, masked.Err = m.Text(err.Message), m.Text(err.Hint), Cause(m, err.Err)
	masked.Fields = maps.Clone(err.Fields)
	for name, v := range masked.Fields {
		if v != nil {
			masked.Fields[name] = field(m, reflect.ValueOf(v)).Interface()
		}
	}
	return &masked
}

// field returns a copy of a field of an error with secrets masked in its texts. A value of another
// kind than texts, lists and structs of them has no words of a program and stays as it is.
func field(m *redact.Masker, v reflect.Value) reflect.Value {
	switch v.Kind() { //nolint:exhaustive // the others are in the comment
	case reflect.String:
		return reflect.ValueOf(m.Text(v.String())).Convert(v.Type())
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			list.Index(i).Set(field(m, v.Index(i)))
		}
		return list
	case reflect.Struct:
		row := reflect.New(v.Type()).Elem()
		row.Set(v)
		for i := range v.NumField() {
			if row.Field(i).CanSet() {
				row.Field(i).Set(field(m, v.Field(i)))
			}
		}
		return row
	}
	return v
}

// maskedError is a cause with secrets masked in its text, for the log. Causes contain file names,
// which programs choose.
type maskedError struct {
	text  string
	cause error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.cause }

// Cause returns err with secrets masked in its text.
func Cause(m *redact.Masker, err error) error {
	if err == nil || m == nil {
		return err
	}
	if text := m.Text(err.Error()); text != err.Error() {
		return &maskedError{text, err}
	}
	return err
}

// Masked returns an error with secrets masked in the text of its cause.
func Masked(m *redact.Masker, err error) error {
	coded, ok := errors.AsType[*sandboxmcp.Error](err)
	if !ok || m == nil {
		return err
	}
	masked := *coded
	masked.Err = Cause(m, masked.Err)
	return &masked
}

// Result masks secrets in every form of a displayed value. A picture that contains a
// secret is removed, because it cannot be masked.
func Result(m *redact.Masker, r sandboxmcp.RichResult) sandboxmcp.RichResult {
	if m == nil {
		return r
	}
	for form, v := range r {
		switch v := v.(type) {
		case json.RawMessage:
			r[form] = m.JSON(v)
		case string:
			if text := m.Text(v); text != v && !isPicture(form) {
				r[form] = text
			} else if text != v || isPicture(form) && m.Find(pictureBytes(v)) != "" {
				delete(r, form)
			}
		}
	}
	if len(r) <= 1 { // only is_main_result is left
		r["text/plain"] = redact.Mask
	}
	return r
}

func isPicture(form string) bool { return form == "image/png" || form == "image/jpeg" }

func pictureBytes(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil
	}
	return data
}

// Bridge masks secrets in values that leave a session. It drops values whose key contains
// a secret.
func Bridge(m *redact.Masker, data map[string]json.RawMessage) {
	if m == nil {
		return
	}
	for k, v := range data {
		if m.Find([]byte(k)) != "" {
			delete(data, k)
			continue
		}
		data[k] = m.JSON(v)
	}
}

// FileError is the error for reading a file that contains a secret.
func FileError(name, key string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "%s holds the secret %s, and is not handed out", sandboxmcp.Quote(name), key).
		WithHint("leave the secret out of the file; an operator lets such files out with allow_secret_artifacts")
}
