package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// The input of a route is a struct whose tags say where a field is sent: `path:"name"` in
// the path, `query:"name"` in the query, `header:"Name"` in a header that clients of other programs
// send, and `body:"json"` or `body:"form"` as the whole body. Client and server use the same tags. Fields are strings, booleans, integers, [time.Time] or
// [time.Duration]. In the query they may also be pointers, which are sent as JSON.

// encodeInput returns the path, query and body of a request.
func encodeInput(pattern string, in any) (path string, query url.Values, body []byte, err error) {
	path, query = pattern, url.Values{}
	v := reflect.ValueOf(in)
	for i := range v.NumField() {
		f, tag := v.Field(i), v.Type().Field(i).Tag
		if name, ok := tag.Lookup("path"); ok {
			part := text(f)
			if err = checkID(f); err != nil {
				return "", nil, nil, err
			}
			if part == "" {
				return "", nil, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is empty", name)
			}
			path = strings.Replace(path, "{"+name+"}", escape(part), 1)
		}
		if name, ok := tag.Lookup("query"); ok && !f.IsZero() {
			query.Set(name, text(f))
			if f.Kind() == reflect.Pointer {
				var data []byte
				if data, err = encode(pattern, f); err != nil {
					return "", nil, nil, err
				}
				query.Set(name, string(data))
			}
		}
		if _, ok := tag.Lookup("body"); ok {
			if body, err = encode(pattern, f); err != nil {
				return "", nil, nil, err
			}
		}
	}
	return path, query, body, nil
}

// encode encodes a field as JSON. A value that JSON cannot express, such as NaN, is
// invalid_argument.
func encode(pattern string, v reflect.Value) ([]byte, error) {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the request of %s cannot be encoded", pattern).WithCause(err)
	}
	return data, nil
}

// escape makes a text one segment of a path. It also escapes the dots of "." and "..",
// because servers remove such segments from a path.
func escape(part string) string {
	if part == "." || part == ".." {
		return strings.ReplaceAll(part, ".", "%2E")
	}
	return url.PathEscape(part)
}

// checkID refuses an id that no request or session can have.
func checkID(v reflect.Value) (err error) {
	switch id := v.Interface().(type) {
	case sandboxmcp.RequestID:
		_, err = sandboxmcp.ParseRequestID(string(id))
	case sandboxmcp.SessionID:
		_, err = sandboxmcp.ParseSessionID(string(id))
	}
	return err
}

func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Time:
		return x.Format(time.RFC3339Nano)
	case time.Duration:
		return x.String()
	}
	return fmt.Sprint(v.Interface())
}

// decodeInput reads a request into in, a pointer to a struct. Its error is
// invalid_argument, or that of own.
func decodeInput(w http.ResponseWriter, r *http.Request, limit int64, own namespaceOf, in any) error {
	v := reflect.ValueOf(in).Elem()
	form := r.URL.Query()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if name, ok := tag.Lookup("path"); ok {
			if err := parse(v.Field(i), name, r.PathValue(name)); err != nil {
				return err
			}
		}
		if name, ok := tag.Lookup("query"); ok && form.Get(name) != "" {
			if err := parse(v.Field(i), name, form.Get(name)); err != nil {
				return err
			}
			if err := (part{tag: tag}).checkBounds(name, v.Field(i)); err != nil {
				return err
			}
		}
		if name, ok := tag.Lookup("header"); ok && r.Header.Get(name) != "" {
			if err := parse(v.Field(i), name, r.Header.Get(name)); err != nil {
				return err
			}
		}
		if how, ok := tag.Lookup("body"); ok && strings.HasPrefix(how, "form") {
			if err := (formReader{limit, own, how != "form"}).read(w, r, v.Field(i).Addr().Interface()); err != nil {
				return err
			}
		} else if ok {
			if err := decodeBody(w, r, limit, how, v.Field(i).Addr().Interface()); err != nil {
				return err
			}
		}
	}
	return nil
}

// parse sets a field from text.
func parse(v reflect.Value, name, s string) error {
	var err error
	switch v.Interface().(type) {
	case time.Time:
		var t time.Time
		if t, err = time.Parse(time.RFC3339Nano, s); err == nil {
			v.Set(reflect.ValueOf(t))
		}
	case time.Duration:
		var d time.Duration
		if d, err = time.ParseDuration(s); err == nil {
			v.SetInt(int64(d))
		}
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString(s)
			if err = checkID(v); err != nil {
				return err
			}
		case reflect.Bool:
			var b bool
			if b, err = strconv.ParseBool(s); err == nil {
				v.SetBool(b)
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			err = decodeStrict([]byte(s), v.Interface())
		case reflect.Int, reflect.Int64:
			var n int64
			if n, err = strconv.ParseInt(s, 10, 64); err == nil {
				v.SetInt(n)
			}
		default:
			err = errors.New("no field of that kind")
		}
	}
	if err != nil {
		return invalid("%s is %s; it has to be %s", name, sandboxmcp.Quote(s), textWords(v))
	}
	return nil
}

// textWords describes the texts that a field accepts.
func textWords(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Time:
		return "a time with its zone, such as 2026-01-31T09:00:00Z"
	case time.Duration:
		return "a time such as 90s"
	}
	if v.Kind() == reflect.Pointer {
		return "JSON of " + v.Type().Elem().Name()
	}
	return kindWords(v.Type())
}

// decodeBody reads a body of at most limit bytes. It reads to the end, because net/http
// notices only then that the caller has closed the connection. The error for a secret
// body has nothing of its content.
func decodeBody(w http.ResponseWriter, r *http.Request, limit int64, how string, into any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		err = decodeStrict(data, into)
	}
	switch {
	case err == nil:
		return nil
	case how == "secret":
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the body is not valid for %s", r.URL.Path)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the body is not valid for %s: %v", r.URL.Path, err)
}

// decodeStrict decodes JSON. It refuses unknown fields and anything after the value.
func decodeStrict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the JSON value")
	}
	return nil
}
