package kernel_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

func TestPlanRefuses(t *testing.T) {
	good := kernel.Program{Code: "1", Interpreter: "/usr/bin/python3"}
	for name, c := range map[string]struct {
		change func(*kernel.Program)
		want   sandboxmcp.Code
	}{
		"language":        {func(p *kernel.Program) { p.Language = "cobol" }, sandboxmcp.CodeUnsupportedLanguage},
		"path":            {func(p *kernel.Program) { p.FileName = "../x.py" }, sandboxmcp.CodeInvalidFilename},
		"absolute":        {func(p *kernel.Program) { p.FileName = "/etc/x" }, sandboxmcp.CodeInvalidFilename},
		"dots":            {func(p *kernel.Program) { p.FileName = ".." }, sandboxmcp.CodeInvalidFilename},
		"newline":         {func(p *kernel.Program) { p.FileName = "a\nb" }, sandboxmcp.CodeInvalidFilename},
		"bytes":           {func(p *kernel.Program) { p.FileName = "a\xff" }, sandboxmcp.CodeInvalidFilename},
		"our own":         {func(p *kernel.Program) { p.FileName = ".hook.cjs" }, sandboxmcp.CodeInvalidFilename},
		"long":            {func(p *kernel.Program) { p.FileName = strings.Repeat("a", 300) }, sandboxmcp.CodeInvalidFilename},
		"env":             {func(p *kernel.Program) { p.Env = map[string]string{"PATH": "/"} }, sandboxmcp.CodeInvalidArgument},
		"relative binary": {func(p *kernel.Program) { p.Interpreter = "python3" }, sandboxmcp.CodeInternal},
	} {
		p := good
		c.change(&p)
		if _, err := kernel.Plan(p); sandboxmcp.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestCheckEnv(t *testing.T) {
	many := map[string]string{}
	for i := range 129 {
		many[strings.Repeat("A", i+1)] = ""
	}
	large := map[string]string{}
	for _, n := range []string{"A", "B", "C", "D", "E"} {
		large[n] = strings.Repeat("x", 60<<10)
	}
	for _, bad := range []map[string]string{
		{"": "x"},
		{"1A": "x"},
		{"A-B": "x"},
		{"A B": "x"},
		{"A=B": "x"},
		{"A\nB": "x"},
		{"Ä": "x"},
		{"A\x00": "x"},
		{"LD_PRELOAD": "x"},
		{"LD_AUDIT": ""},
		{"PATH": "x"},
		{"HOME": "x"},
		{"BASH_ENV": "x"},
		{"ENV": "x"},
		{"NODE_OPTIONS": "x"},
		{"PYTHONPATH": "x"},
		{"PYTHONSTARTUP": "x"},
		{"GIT_SSH_COMMAND": "x"},
		{"PS4": "x"},
		{"A": "x\x00y"},
		{"A": strings.Repeat("x", 64<<10+1)},
		many, large,
	} {
		err := kernel.CheckEnv(bad)
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%.40q: %v, want invalid_argument", bad, err)
		}
	}
	for _, good := range []map[string]string{nil, {"A": ""}, {"_a1": "ä\n"}, {"NODE_ENV": "test"}, {"LDX": "1"}, {"path": "x"}, {"LANG": "de_DE.UTF-8"}, {"A": strings.Repeat("x", 64<<10)}} {
		if err := kernel.CheckEnv(good); err != nil {
			t.Errorf("CheckEnv %.40q: got %v, want nil", good, err)
		}
	}
	secret := kernel.CheckEnv(map[string]string{"A": "hush\x00"})
	if strings.Contains(secret.Error(), "hush") {
		t.Errorf("message: got the value in %v, want it left out", secret)
	}
}

func frame(s string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func TestRead(t *testing.T) {
	const start = `{"type":"start"}`
	none := kernel.Report{Results: []sandboxmcp.RichResult{}}
	begun := kernel.Report{Started: true, Results: []sandboxmcp.RichResult{}}
	lines := make([]string, 500)
	for i := range lines {
		lines[i] = strings.Repeat("l", 600)
	}
	long, _ := json.Marshal(map[string]any{"type": "error", "name": strings.Repeat("é", 300), "traceback": lines})
	for name, c := range map[string]struct {
		in   string
		want kernel.Report
	}{
		"nothing":             {"", none},
		"start":               {frame(start), begun},
		"unknown type":        {frame(`{"type":"later"}`) + frame(start), begun},
		"syntax":              {frame(`{"type":"syntax","name":"SyntaxError","line":3,"col":-1,"message":"m"}`), kernel.Report{Results: []sandboxmcp.RichResult{}, Syntax: &kernel.SyntaxError{Name: "SyntaxError", Line: 3, Message: "m"}}},
		"syntax after start":  {frame(start) + frame(`{"type":"syntax","line":3}`), begun},
		"refused":             {frame(`{"type":"refused","issues":[]}`), kernel.Report{Results: []sandboxmcp.RichResult{}, Refused: json.RawMessage(`[]`)}},
		"refused after try":   {frame(`{"type":"try"}`) + frame(`{"type":"refused","issues":[]}`), kernel.Report{Tried: true, Results: []sandboxmcp.RichResult{}}},
		"once it is compiled": {frame(`{"type":"compiled"}`) + frame(`{"type":"refused","issues":[]}`) + frame(`{"type":"syntax"}`), kernel.Report{Tried: true, Sound: true, Results: []sandboxmcp.RichResult{}}},
		"truncated head":      {frame(start) + "\x00\x00", begun},
		"truncated body":      {frame(start) + "\x00\x00\x10\x00abc", begun},
		"giant":               {frame(start) + "\xff\xff\xff\xff" + frame(`{"type":"error"}`), begun},
		"not JSON":            {frame(start) + frame("x") + frame(`{"type":"error"}`), begun},
		"JSON of other shape": {frame(start) + frame(`[1]`) + frame(`{"type":"error"}`), begun},
		"empty frame":         {frame(start) + frame(""), begun},
		"large start":         {frame(`{"type":"start","x":"` + strings.Repeat("x", 100) + `"}`), none},
		"error":               {frame(start) + frame(`{"type":"error","name":"E","value":"v\ud800","traceback":["a"]}`), kernel.Report{Started: true, Results: []sandboxmcp.RichResult{}, Error: &sandboxmcp.ProgramError{Name: "E", Value: "v\ufffd", Traceback: []string{"a"}}}},
		"the last error":      {frame(`{"type":"error","name":"E"}`) + frame(`{"type":"error","name":"F"}`), kernel.Report{Results: []sandboxmcp.RichResult{}, Error: &sandboxmcp.ProgramError{Name: "F", Traceback: []string{}}}},
		"long error":          {frame(string(long)), kernel.Report{Results: []sandboxmcp.RichResult{}, Error: &sandboxmcp.ProgramError{Name: strings.Repeat("é", 128), Traceback: lines[:109]}}},
		"display": {frame(`{"type":"display","data":{"text/plain":"t","application/json":{"a":[1]},"image/png":5,"text/x-evil":"e","is_main_result":true}}`), kernel.Report{Results: []sandboxmcp.RichResult{
			{"text/plain": "t", "application/json": json.RawMessage(`{"a":[1]}`), "is_main_result": true},
		}}},
		"empty display": {frame(`{"type":"display","data":{"x":1}}`), none},
	} {
		got, err := kernel.Read(strings.NewReader(c.in), nil)
		if err != nil {
			t.Errorf("%q: got %v, want no error at the end of the channel", c.in, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
}

// endless is a channel on which one frame comes again and again.
type endless struct {
	frame string
	n     int
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := copy(p, e.frame[e.at:])
	if e.at += n; e.at == len(e.frame) {
		e.at, e.n = 0, e.n-1
	}
	return n, nil
}

func TestReadIsBounded(t *testing.T) {
	f := frame(`{"type":"display","data":{"text/plain":"` + strings.Repeat("x", 900<<10) + `"}}`)
	e := &endless{frame: f, n: 200}
	rep, _ := kernel.Read(e, nil)
	if e.n != 0 {
		t.Error("got a channel that is not read to its end, want all of it read: a writer would wait")
	}
	if len(rep.Results) != 9 {
		t.Errorf("%d results of 900 KiB, want the 9 that fit into 8 MiB", len(rep.Results))
	}
	small := &endless{frame: frame(`{"type":"display","data":{"text/plain":""}}`), n: 10000}
	if rep, _ := kernel.Read(small, nil); len(rep.Results) != 256 || small.n != 0 {
		t.Errorf("%d results, want 256", len(rep.Results))
	}
	many := strings.Repeat(frame(`{"type":"x"}`), 20000) + frame(`{"type":"error","name":"E"}`)
	if rep, _ := kernel.Read(strings.NewReader(many), nil); rep.Error != nil || !rep.Cut {
		t.Error("got a frame behind 20,000 small ones, want it left out")
	}
	least := uint64(1 << 62) // what else the process does counts, too
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = kernel.Read(strings.NewReader("\x7f\xff\xff\xff"+strings.Repeat("x", 1000)), nil)
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > kernel.MaxFrame {
		t.Errorf("a length of 2 GiB: got %d bytes allocated, want at most one frame", least)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestReadOfABrokenChannel(t *testing.T) {
	rep, _ := kernel.Read(io.MultiReader(strings.NewReader(frame(`{"type":"start"}`)), broken{}), nil)
	if !rep.Started {
		t.Errorf("report: got %+v, want a program that started", rep)
	}
}

// The law: whatever comes, a report can be shown, holds no more than the bounds
// and never says both that the program began and that it was not compiled; and
// what comes after a broken frame changes nothing.
func FuzzRead(f *testing.F) {
	f.Add([]byte(frame(`{"type":"start"}`)))
	f.Add([]byte(frame(`{"type":"error","name":"E","value":"v","traceback":["a"]}`) + "\xff\xff\xff\xff"))
	f.Add([]byte(frame(`{"type":"display","data":{"application/json":[[]],"text/html":"x"}}`) + "ab"))
	f.Add([]byte(frame(`{"type":"syntax","line":1e3}`)))
	f.Fuzz(func(t *testing.T, in []byte) {
		rep, _ := kernel.Read(bytes.NewReader(in), nil)
		if rep.Started && rep.Syntax != nil || rep.Results == nil {
			t.Fatalf("report: got %+v, want results, and no syntax error of a program that started", rep)
		}
		if e := rep.Error; e != nil && (len(e.Name) > 256 || len(e.Value) > 64<<10 || len(e.Traceback) > 200) {
			t.Fatalf("got error %+v, want it within its bounds", e)
		}
		if _, err := json.Marshal(rep.Results); err != nil {
			t.Fatal(err)
		}
		for _, r := range rep.Results {
			for k := range maps.Keys(r) {
				if k != "is_main_result" && !strings.Contains(k, "/") {
					t.Fatalf("got key %q, want a media type", k)
				}
			}
		}
		spoiled := append(append(append([]byte{}, in...), "\xff\xff\xff\xff"...), in...)
		if again, _ := kernel.Read(bytes.NewReader(spoiled), nil); !cmp.Equal(rep, again) && !tornAtEnd(in) {
			t.Fatal(cmp.Diff(rep, again))
		}
	})
}

// tornAtEnd reports whether the last frame of in is not whole, so that more
// bytes would make it another one.
func tornAtEnd(in []byte) bool {
	for len(in) >= 4 {
		n := int64(binary.BigEndian.Uint32(in))
		if n > kernel.MaxFrame {
			return false
		}
		if int64(len(in)) < 4+n {
			return true
		}
		in = in[4+n:]
	}
	return len(in) > 0
}
