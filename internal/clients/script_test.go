package clients_test

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// turn is one tool call of the scripted model.
type turn struct {
	name string // heading in the golden file
	tool string // as our server calls it, or a tool of the client's own
	args map[string]any
	own  bool // the client's tool
}

//go:embed testdata/picture.png
var picture []byte

// script is what both agents' models do.
func script() []turn {
	code := func(text string, more ...string) map[string]any {
		args := map[string]any{"code": text}
		for i := 0; i < len(more); i += 2 {
			args[more[i]] = more[i+1]
		}
		return args
	}
	pixels := "import base64\npixels = base64.b64decode('" + base64.StdEncoding.EncodeToString(picture) + "')\n"
	return []turn{
		{name: "output and an exit code", tool: "execute_code", args: code("import sys\nprint('hello')\nprint('oops', file=sys.stderr)\nsys.exit(3)")},
		{name: "a program that fails", tool: "execute_code", args: code("raise ValueError('boom')")},
		{name: "another language", tool: "execute_code", args: code("console.log([1, 2].map(x => x * 2))", "language", "node")},
		{name: "a long output", tool: "execute_code", args: code("for i in range(40000): print(i)")},
		{name: "a session keeps a variable", tool: "execute_code", args: code("x = 41", "session_id", "kept")},
		{name: "and has it", tool: "execute_code", args: code("x + 1", "session_id", "kept")},
		{name: "a picture that is shown", tool: "execute_code", args: code(pixels+
			"import sandbox\nclass Picture:\n    def __repr__(self): return 'a picture'\n    def _repr_png_(self): return pixels\nsandbox.display(Picture())", "session_id", "kept")},
		{name: "a picture that is a file", tool: "execute_code", args: code(pixels + "open('picture.png', 'wb').write(pixels) and None")},
		{name: "a small file and a large one", tool: "execute_code", args: code("open('small.csv', 'w').write('a,b\\n1,2\\n')\nopen('large.txt', 'w').write('line\\n' * 4000) and None")},
		{name: "the tool of the five", tool: "sandbox_run_python", args: code("print(6 * 7)\nopen('report.csv', 'w').write('a,b\\n')", "session_id", "five")},
		{name: "its file", tool: "sandbox_read_artifact", args: map[string]any{"session_id": "five", "path": "/mnt/data/report.csv"}},
		{name: "an unknown session", tool: "sandbox_list_artifacts", args: map[string]any{"session_id": "nobody"}},
		{name: "a value that is not allowed", tool: "execute_code", args: code("1", "language", "ruby")},
	}
}

// part is a piece of what a model reads about one call.
type part struct {
	text  string
	image []byte // then text is its MIME type
}

// reading is what a model reads about one call.
type reading struct {
	parts   []part
	isError bool
}

// toolSpec is a tool as it is described to a model.
type toolSpec struct {
	Description string
	Schema      any
}

// model replaces a model's service by a script. It plays one turn after the other. Every
// request shows how many turns were played.
type model struct {
	*httptest.Server
	script []turn
	called func(tool string) string // what the client calls a tool of ours

	mu    sync.Mutex
	last  []byte              // the longest conversation
	tools map[string]toolSpec // by the client's name
	stray []string            // what went elsewhere, or was not understood
}

// newModel starts a scripted model whose service is handle. It is a proxy too, which lets
// nothing through and keeps the addresses that were requested.
func newModel(t *testing.T, turns []turn, prefix string, handle func(*model, http.ResponseWriter, *http.Request)) *model {
	t.Helper()
	m := &model{script: turns, tools: map[string]toolSpec{}, called: func(tool string) string { return prefix + tool }}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect || r.URL.IsAbs() {
			m.strays("%s %s", r.Method, r.RequestURI)
			http.Error(w, "there is no way out", http.StatusBadGateway)
			return
		}
		handle(m, w, r)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *model) strays(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stray = append(m.stray, fmt.Sprintf(format, args...))
}

// keep remembers a conversation, which is the longest yet, and its tools.
func (m *model) keep(body []byte, tools map[string]toolSpec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = body
	maps.Copy(m.tools, tools)
}

// next returns the call after n calls, nil after the last.
func (m *model) next(n int) (name string, args map[string]any, ok bool) {
	if n >= len(m.script) {
		return "", nil, false
	}
	s := m.script[n]
	if s.own {
		return s.tool, s.args, true
	}
	return m.called(s.tool), s.args, true
}

func turnID(n int) string { return fmt.Sprintf("turn-%d", n) }

// reply writes v as JSON, or as the only event of a stream.
func reply(w http.ResponseWriter, stream bool, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", b)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// conversation is the last that was kept.
func (m *model) conversation() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// check compares what the model has read with the golden file and with the
// server's own words.
func (m *model) check(t *testing.T, file string, readings map[string]reading) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.stray) > 0 {
		t.Errorf("the client went elsewhere: %q", m.stray)
	}
	var out strings.Builder
	pictures := 0
	for i, s := range m.script {
		r, ok := readings[turnID(i)]
		if !ok {
			t.Errorf("%s: the model has read nothing", s.name)
			continue
		}
		name, _, _ := m.next(i)
		fmt.Fprintf(&out, "== %s: %s\n", s.name, name)
		if r.isError {
			out.WriteString("-- as an error\n")
		}
		for _, p := range r.parts {
			if p.image == nil {
				out.WriteString(steady(p.text) + "\n")
				continue
			}
			fmt.Fprintf(&out, "-- a picture, %s\n", p.text)
			pictures++
			if !bytes.Equal(p.image, picture) {
				t.Errorf("%s: the picture has %d bytes that are not those of testdata/picture.png", s.name, len(p.image))
			}
		}
	}
	if pictures != 2 {
		t.Errorf("the model has seen %d pictures, want 2", pictures)
	}
	golden(t, file, out.String())
	m.checkTools(t)
}

// checkTools compares what the model is told of the tools that it has, and the
// instructions, with what the server says.
func (m *model) checkTools(t *testing.T) {
	t.Helper()
	for _, end := range []string{"Runs Python, Node.js and shell programs in a sandbox.", "A failed call has error, message and hint."} {
		if !bytes.Contains(unescaped(t, m.last), []byte(end)) {
			t.Errorf("the model has not read the server's instructions, or not whole: %q is missing", end)
		}
	}
	for tool, want := range served(t) {
		if !bytes.Contains(m.last, []byte(m.called(tool))) {
			t.Errorf("the model does not know of %s", tool)
		}
		uses := slices.ContainsFunc(m.script, func(s turn) bool { return s.tool == tool })
		got, ok := m.tools[m.called(tool)]
		if !ok && uses {
			t.Errorf("the model has no schema of %s", tool)
		}
		if d := cmp.Diff(want, got); ok && d != "" {
			t.Errorf("what the model is told of %s is not what the server says (-want +got):\n%s", tool, d)
		}
	}
}

// unescaped is JSON with as few escapes as there can be.
func unescaped(t *testing.T, b []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(out.Bytes())
}

// served is what the server tells of its tools, from its own golden file.
func served(t *testing.T) map[string]toolSpec {
	t.Helper()
	b, err := os.ReadFile("../server/testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name, Description string
		InputSchema       any
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	tools := map[string]toolSpec{}
	for _, l := range list {
		tools[l.Name] = toolSpec{l.Description, l.InputSchema}
	}
	return tools
}
