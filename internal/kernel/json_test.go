package kernel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

func TestCleanJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for in, want := range map[string]string{
		`{"b": [1, "x\n"], "a" : {}, "b":null}`:                                 `{"b": [1, "x\n"], "a" : {}, "b":null}`,                          // as it stands
		"{\"b\": [1, {\"x\": \"<\xff\"}], \"a\" : {}, \"b\":[[], null, false]}": "{\"b\":[1,{\"x\":\"<\uFFFD\"}],\"a\":{},\"b\":[[],null,false]}", // in its order
		`"<b> & ü 😀"`:            `"<b> & ü 😀"`,
		`"\ud83d\ude00"`:         `"😀"`,
		`"\ud83d"`:               "\"\uFFFD\"",
		"\"\xff\"":               "\"\uFFFD\"",
		"{\"\xff\": [\"\xc3\"]}": "{\"\uFFFD\":[\"\uFFFD\"]}",
		`["\ud800", 1e400, 12345678901234567890, -0.10]`: `["�",1e400,12345678901234567890,-0.10]`, // every digit
		` true `:                       ` true `,
		`["\ud83d", "a\\ud800", "\""]`: `["�","a\\ud800","\""]`, // the second is no escape of a surrogate
		deep(50):                       deep(50),
		deep(51):                       "",
		deep(9999):                     "",
		deep(20000):                    "",
		`NaN`:                          "",
		`{} {}`:                        "",
		`{"a":1,}`:                     "",
		``:                             "",
	} {
		got, err := kernel.CleanJSON([]byte(in))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%.40q: got %.60q, %v; want %.60q", in, got, err, want)
		}
	}
}

// A form that a reader of the answer might stumble over is not among the results,
// or is repaired.
func TestShownFormsAreClean(t *testing.T) {
	for in, want := range map[string]sandboxmcp.RichResult{
		"\"\xff\xfe\"":                        {"application/json": json.RawMessage("\"\uFFFD\uFFFD\""), "text/plain": "x", "is_main_result": false},
		`"\ud800"`:                            {"application/json": json.RawMessage("\"\uFFFD\""), "text/plain": "x", "is_main_result": false},
		`[1e308]`:                             {"application/json": json.RawMessage(`[1e308]`), "text/plain": "x", "is_main_result": false},
		`[1e309]`:                             {"text/plain": "x", "is_main_result": false},
		`[-1E+309]`:                           {"text/plain": "x", "is_main_result": false},
		`{"1e309":-0.5e-3}`:                   {"application/json": json.RawMessage(`{"1e309":-0.5e-3}`), "text/plain": "x", "is_main_result": false},
		"[1" + strings.Repeat("0", 400) + "]": {"text/plain": "x", "is_main_result": false},
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): {"text/plain": "x", "is_main_result": false},
	} {
		rep, _ := kernel.Read(strings.NewReader(frame("{\"type\":\"display\",\"data\":{\"text/plain\":\"x\",\"application/json\":"+in+"}}")), nil)
		if d := cmp.Diff([]sandboxmcp.RichResult{want}, rep.Results); d != "" {
			t.Errorf("%.20q (-want +got): %s", in, d)
		}
		if text, err := json.Marshal(rep.Results); err != nil || !utf8.Valid(text) {
			t.Errorf("%.20q: got %q, %v; want JSON in UTF-8", in, text, err)
		}
	}
}

// TestAttackShownPartsAreBounded: each part of a value takes the server's time, and a program can
// send half a million in a frame.
func TestAttackShownPartsAreBounded(t *testing.T) {
	for in, shown := range map[string]bool{
		"[" + strings.Repeat("0,", 1<<17-1) + "0]":   true,
		"[" + strings.Repeat("0,", 1<<17) + "0]":     false,
		"[" + strings.Repeat("{},", 1<<16+1) + "{}]": false,
	} {
		rep, _ := kernel.Read(strings.NewReader(frame("{\"type\":\"display\",\"data\":{\"text/plain\":\"x\",\"application/json\":"+in+"}}")), nil)
		if len(rep.Results) != 1 || (rep.Results[0]["application/json"] != nil) != shown || rep.Results[0]["text/plain"] != "x" {
			t.Errorf("%.20q of %d bytes: got %d results, want the text, and the JSON: %v", in, len(in), len(rep.Results), shown)
		}
		if _, err := kernel.CleanJSON([]byte(in)); err != nil { // values of a bridge are bounded by their size
			t.Errorf("%.20q: got %v, want no error", in, err)
		}
	}
}

// What is no JSON is not sent as JSON: the interpreter lives on, and the text is shown.
func TestPythonShowsWhatIsNoJSON(t *testing.T) {
	l := begin(t, kernel.Program{Interpreter: pythons(t)[0]})
	for _, code := range []string{"from sandbox import display\ndisplay({'a': float('nan')})", "class A:\n    def __repr__(self): return \"{'a': nan}\"\n    def _repr_json_(self): return [float('inf')]\nA()"} {
		s := l.py(t, code)
		if s.Err != nil || !s.Done || len(s.Results) != 1 || s.Results[0]["text/plain"] != "{'a': nan}" || s.Results[0]["application/json"] != nil {
			t.Errorf("%s: got %+v, want text and no JSON", code, s)
		}
	}
}

// TestInterpreterHearsNoFlood: the reports of one cell are bounded, also if each of them is
// valid.
func TestInterpreterHearsNoFlood(t *testing.T) {
	const most = 40 << 20
	for _, word := range []string{`{"type":"later","id":1,"x":"%s"}`, `{"type":"error","id":1,"name":"%s"}`, `{"type":"display","id":2,"x":"%s"}`} {
		word = fmt.Sprintf(word, strings.Repeat("x", 1000))
		flood := &endless{frame: frame(word), n: most / len(frame(word))}
		_, err := heard(t.Context(), io.MultiReader(flood, strings.NewReader(frame(`{"type":"done","id":1,"ok":true}`))), nil)
		if !errors.Is(err, kernel.ErrGone) {
			t.Errorf("%.20s: after %d bytes of it %v, want the end of the conversation", word, most, err)
		}
	}
}

// TestAttackPartsOfFramesCount: the server decodes each member and element of a frame, shown or not. A
// frame with many of them counts for more than its bytes.
func TestAttackPartsOfFramesCount(t *testing.T) {
	const frames = 12 // of at most a megabyte; by their bytes alone, all of them and what follows are read
	members := strings.Repeat(`"x":0,`, 150_000) + `"x":0`
	for what, in := range map[string]string{
		"members of a value": `{"type":"later","id":1,"data":{` + members + `}}`,
		"own members":        `{"type":"later","id":1,` + members + `}`,
		"lines":              `{"type":"later","id":1,"traceback":[` + strings.Repeat(`"",`, 200_000) + `""]}`,
	} {
		shown := frame(`{"type":"display","id":1,"data":{"text/plain":"x"}}`)
		rep, err := kernel.Read(strings.NewReader(strings.Repeat(frame(in), frames)+shown), nil)
		if err != nil || !rep.Cut || len(rep.Results) != 0 {
			t.Errorf("%s: got %d results, cut %v, %v; want the frames to use up what is read", what, len(rep.Results), rep.Cut, err)
		}
		all := strings.Repeat(frame(in), frames) + frame(`{"type":"done","id":1,"ok":true}`)
		if _, err := heard(t.Context(), strings.NewReader(all), nil); !errors.Is(err, kernel.ErrGone) {
			t.Errorf("%s of a cell: got %v, want the end of the conversation", what, err)
		}
		rep, err = kernel.Read(strings.NewReader(frame(in)+shown), nil)
		if err != nil || rep.Cut || len(rep.Results) != 1 {
			t.Errorf("%s of one frame: got %d results, cut %v, %v; want the value", what, len(rep.Results), rep.Cut, err)
		}
	}
}

// TestRepairsTakeNoMemoryForEachString: a value may have 130 000 strings that have to be repaired.
func TestRepairsTakeNoMemoryForEachString(t *testing.T) {
	const count = 10_000
	for _, bad := range []string{`"\ud800"`, "\"\xff\""} {
		in := []byte("[" + strings.Repeat(bad+",", count) + "0]")
		allocs := testing.AllocsPerRun(3, func() {
			if _, err := kernel.CleanJSON(in); err != nil {
				t.Error(err)
			}
		})
		if allocs > count/10 {
			t.Errorf("%q: got %.0f allocations for %d strings, want fewer than one for ten", bad, allocs, count)
		}
	}
}
