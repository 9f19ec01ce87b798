package api_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// large is a number that a float64 cannot hold.
const large = json.Number("9007199254740993")

// filled returns a value in which every field is set to something else than its
// zero value, no two to the same, and the same on each call. Fields of the given
// names stay zero. It panics on a type that it cannot fill.
func filled[T any](except ...string) T {
	var v T
	f := filler{except: except}
	f.fill(reflect.ValueOf(&v).Elem())
	return v
}

type filler struct {
	except []string
	n      int
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Interface().(type) {
	case sandboxmcp.Secret:
		v.Set(reflect.ValueOf(sandboxmcp.NewSecret(fmt.Sprintf("secret %d \xff", f.n))))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2031, 2, 3, 4, 5, 6, 7+f.n, time.UTC)))
		return
	case time.Duration:
		v.SetInt(int64(90*time.Second) + int64(f.n))
		return
	case sandboxmcp.Status: // these have closed lists
		v.SetString(string(sandboxmcp.StatusCompleted))
		return
	case sandboxmcp.JobStatus:
		v.SetString(string(sandboxmcp.JobRunning))
		return
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"n":%s,"of":%d}`, large, f.n))
		return
	case sandboxmcp.Denial: // it stays at the server that has refused a destination
		return
	case sandboxmcp.RequestID, sandboxmcp.SessionID, sandboxmcp.Namespace: // their forms are checked
		v.SetString("id_" + strconv.Itoa(f.n))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.25)
	case reflect.Uint8:
		v.SetUint(uint64(255 - f.n%16)) // no UTF-8
	case reflect.String:
		v.SetString(fmt.Sprintf("t%d /?&=+%%2F;é<\n\"", f.n))
	case reflect.Interface: // a value of a map[string]any; interfaces with methods are exempt by name
		v.Set(reflect.ValueOf(large))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !slices.Contains(f.except, name) {
				f.fill(v.Field(i))
			}
		}
	default:
		panic("a field of type " + v.Type().String() + " cannot be filled; teach filler about it")
	}
}

// diff compares values, secrets by their text.
func diff(want, got any) string {
	return cmp.Diff(want, got, cmp.Transformer("Reveal", func(s sandboxmcp.Secret) string { return s.Reveal() }))
}

// zeroFields returns the paths of fields that are zero.
func zeroFields(v reflect.Value, path string, except []string) []string {
	if v.IsZero() {
		return []string{path}
	}
	if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[sandboxmcp.Secret]() {
		return nil
	}
	var zero []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !slices.Contains(except, name) {
			zero = append(zero, zeroFields(v.Field(i), path+"."+name, except)...)
		}
	}
	return zero
}

// TestFilledLeavesNothingZero checks the tool of the tests below.
func TestFilledLeavesNothingZero(t *testing.T) {
	except := []string{"Stdout", "Stderr", "Shown", "Queued", "Note"}
	if got := zeroFields(reflect.ValueOf(filled[sandboxmcp.Request](except...)), "Request", except); len(got) > 0 {
		t.Errorf("got zero fields %v, want none", got)
	}
	if got := zeroFields(reflect.ValueOf(filled[sandboxmcp.Result]()), "Result", nil); len(got) > 0 {
		t.Errorf("got zero fields %v, want none", got)
	}
	if d := diff(filled[sandboxmcp.Result](), filled[sandboxmcp.Result]()); d != "" {
		t.Errorf("got two different values, want the same (-first +second):\n%s", d)
	}
}
