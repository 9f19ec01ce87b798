package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
)

// box is a sandbox that has files and runs nothing.
type box struct {
	backend.Sandbox

	files    map[string]string
	provided map[string]string
	made     []string // directories
	closed   bool

	mark   string   // of every file
	marks  []string // in place of mark, one for each question
	claims int64    // size that files say they have; 0: their own
	onRead func()   // nil: nothing
}

func (b *box) Close(context.Context) error { b.closed = true; return nil }

func (b *box) Files() backend.Files { return boxFiles{b: b} }

func (b *box) Provide(_ context.Context, files []backend.ProgramFile) error {
	if b.closed {
		return fs.ErrClosed
	}
	for _, f := range files {
		b.provided[f.Name] = string(f.Data)
	}
	return nil
}

type boxFiles struct {
	backend.Files

	b *box
}

func (f boxFiles) Mkdir(_ context.Context, name string) error {
	f.b.made = append(f.b.made, name)
	return nil
}

func (f boxFiles) Open(_ context.Context, name string) (backend.File, error) {
	text, ok := f.b.files[name]
	switch {
	case f.b.closed:
		return nil, fs.ErrClosed
	case !ok:
		return nil, fs.ErrNotExist
	}
	return boxFile{bytes.NewReader([]byte(text)), f.b}, nil
}

func (f boxFiles) List(_ context.Context, dir string, _ int) ([]backend.FileInfo, bool, error) {
	if f.b.closed {
		return nil, false, fs.ErrClosed
	}
	var list []backend.FileInfo
	for name, text := range f.b.files {
		if dir != "." {
			rest, below := strings.CutPrefix(name, dir+"/")
			if !below {
				continue
			}
			name = rest
		}
		if !strings.Contains(name, "/") {
			list = append(list, backend.FileInfo{Name: name, Mode: 0o644, Size: int64(len(text)), Links: 1})
		}
	}
	return list, false, nil
}

func (f boxFiles) Put(_ context.Context, name string, data []byte, overwrite bool) error {
	if f.b.closed {
		return fs.ErrClosed
	}
	if _, ok := f.b.files[name]; ok && !overwrite {
		return fs.ErrExist
	}
	f.b.files[name] = string(data)
	return nil
}

func (f boxFiles) Remove(_ context.Context, name string) error {
	if f.b.closed {
		return fs.ErrClosed
	}
	if _, ok := f.b.files[name]; !ok {
		return fs.ErrNotExist
	}
	delete(f.b.files, name)
	return nil
}

type boxFile struct {
	r *bytes.Reader
	b *box
}

func (f boxFile) Close() error { return nil }

func (f boxFile) Read(p []byte) (int, error) {
	if f.b.onRead != nil {
		f.b.onRead()
	}
	return f.r.Read(p)
}

func (f boxFile) Stat(context.Context) (backend.FileInfo, error) {
	info := backend.FileInfo{Size: f.r.Size(), Mark: f.b.mark}
	if f.b.claims > 0 {
		info.Size = f.b.claims
	}
	if len(f.b.marks) > 0 {
		info.Mark, f.b.marks = f.b.marks[0], f.b.marks[1:]
	}
	return info, nil
}

// live makes a live session with files.
func (k *kit) live(t *testing.T, id string, files map[string]string) (*session.Live, *box) {
	t.Helper()
	return k.liveWith(t, id, files, session.LiveConfig{})
}

func (k *kit) liveWith(t *testing.T, id string, files map[string]string, cfg session.LiveConfig) (*session.Live, *box) {
	t.Helper()
	s, fresh, err := k.Claim(t.Context(), "", info(id), time.Hour, true)
	if err != nil || !fresh {
		t.Fatalf("Claim %s: fresh %v, %v", id, fresh, err)
	}
	b := &box{files: files, provided: map[string]string{}}
	cfg.Sandbox, cfg.Logger = b, slog.New(slog.DiscardHandler)
	l := session.NewLive(s, cfg)
	if err := s.Furnish(t.Context(), l, info(id)); err != nil {
		t.Fatal(err)
	}
	s.Release()
	return l, b
}

func path(t *testing.T, p string) session.Path {
	t.Helper()
	parsed, err := session.ParsePath(p)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func wantCode(t *testing.T, what string, err error, want sandboxmcp.Code) {
	t.Helper()
	if got := sandboxmcp.CodeOf(err); got != want {
		t.Errorf("%s: got %v with the code %q, want %q", what, err, got, want)
	}
}

func TestPathsLieBelowTheWorkingDirectory(t *testing.T) {
	for p, want := range map[string]string{
		"a.txt": "a.txt", "a//b/./c": "a/b/c", "/mnt/data/a": "a", "/mnt/data//a/b/": "a/b", ".hidden": ".hidden",
		"": "", ".": "", "./": "", "..": "", "a/../b": "", "/mnt/data": "", "/mnt/data/": "", "/etc/passwd": "", "//mnt/data/a": "", "/mnt/database": "", "a\x00b": "",
	} {
		got, err := session.ParsePath(p)
		if got.Name() != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q and %v, want %q", p, got.Name(), err, want)
		}
		if want == "" {
			wantCode(t, p, err, sandboxmcp.CodeInvalidPath)
		} else if got.Abs() != "/mnt/data/"+want {
			t.Errorf("%q: got %q inside, want it below /mnt/data", p, got.Abs())
		}
	}
}

// A caller sees a name masked, and can read and remove the file by that name.
func TestAMaskedNameStandsForTheRealOne(t *testing.T) {
	const secret = "Kit-5up3r-s3cret-t0ken"
	masks := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	l, b := newKit(t, t.TempDir(), 2).live(t, "a", map[string]string{secret + ".txt": "x", "plain.txt": "yy", ".bridge/v.json": "1"})
	list, err := l.Files(masks).List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("got %v and %v, want two files", list, err)
	}
	shown := list[0].Filename
	if strings.Contains(shown, secret) || !strings.Contains(shown, redact.Mask) || list[1].SHA256 == "" {
		t.Errorf("got %+v, want the first name masked and the files hashed", list)
	}
	f, data, err := l.Files(masks).Read(t.Context(), path(t, shown), 10)
	if err != nil || string(data) != "x" || f.Filename != shown {
		t.Errorf("got %+v with %q and %v, want the file", f, data, err)
	}
	_, _, err = l.Files(masks).Read(t.Context(), path(t, "plain.txt"), 1)
	wantCode(t, "a file above the limit", err, sandboxmcp.CodeArtifactTooLarge)
	if err := l.Files(masks).Remove(t.Context(), path(t, shown)); err != nil || b.files[secret+".txt"] != "" {
		t.Errorf("got %v and the files %v, want the first removed", err, b.files)
	}
	wantCode(t, "removed twice", l.Files(masks).Remove(t.Context(), path(t, shown)), sandboxmcp.CodeNotFound)
	wantCode(t, "there already", l.Put(t.Context(), path(t, "plain.txt"), nil, false), sandboxmcp.CodeFileExists)
}

// What is done to a session that ends meanwhile says so, also if a new session has its id.
func TestFilesOfASessionThatEndsMeanwhile(t *testing.T) {
	k := newKit(t, t.TempDir(), 2)
	l, _ := k.live(t, "a", map[string]string{})
	all := func(want sandboxmcp.Code) {
		t.Helper()
		_, _, err := l.Files(nil).Read(t.Context(), path(t, "f"), 1)
		wantCode(t, "Read", err, want)
		_, err = l.Files(nil).List(t.Context())
		wantCode(t, "List", err, want)
		wantCode(t, "Remove", l.Files(nil).Remove(t.Context(), path(t, "f")), want)
		wantCode(t, "Put", l.Put(t.Context(), path(t, "f"), nil, true), want)
		_, err = l.Published(t.Context(), nil)
		wantCode(t, "Published", err, want)
		wantCode(t, "Provide", l.Provide(t.Context(), map[string]json.RawMessage{"k": json.RawMessage("1")}), want)
	}
	s, err := k.Remove(t.Context(), "ns", "a", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Room().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all(sandboxmcp.CodeSessionNotFound)
	k.live(t, "a", map[string]string{})
	all(sandboxmcp.CodeSessionNotFound)
}

func TestBridgedValues(t *testing.T) {
	l, b := newKit(t, t.TempDir(), 2).live(t, "a", map[string]string{".bridge/x.json": "1", ".bridge/y.json": "2", ".bridge/no key.json": "3", ".bridge/z": "4"})
	got, err := l.Published(t.Context(), nil)
	if d := cmp.Diff(map[string]json.RawMessage{"x": json.RawMessage("1"), "y": json.RawMessage("2")}, got); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}
	_, err = l.Published(t.Context(), []string{"x", "gone"})
	wantCode(t, "a key without a value", err, sandboxmcp.CodeNotFound)

	for what, c := range map[string]struct {
		b    sandboxmcp.Bridge
		want sandboxmcp.Code
	}{
		"neither":   {sandboxmcp.Bridge{}, sandboxmcp.CodeInvalidArgument},
		"both":      {sandboxmcp.Bridge{Data: got, From: "a"}, sandboxmcp.CodeInvalidArgument},
		"a bad key": {sandboxmcp.Bridge{From: "a", Keys: []string{"../x"}}, sandboxmcp.CodeInvalidArgument},
		"many keys": {sandboxmcp.Bridge{From: "a", Keys: make([]string, 101)}, sandboxmcp.CodeInvalidArgument},
		"good":      {sandboxmcp.Bridge{From: "a", Keys: []string{"x"}}, ""},
	} {
		wantCode(t, what, session.CheckBridge(c.b), c.want)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 3<<20) + `"`)
	for what, c := range map[string]struct {
		data map[string]json.RawMessage
		want sandboxmcp.Code
	}{
		"a bad key":      {map[string]json.RawMessage{".x": json.RawMessage("1")}, sandboxmcp.CodeInvalidArgument},
		"not JSON":       {map[string]json.RawMessage{"x": json.RawMessage("{")}, sandboxmcp.CodeInvalidContent},
		"too many bytes": {map[string]json.RawMessage{"x": large, "y": large}, sandboxmcp.CodeFileTooLarge},
	} {
		_, err := session.CleanValues(c.data)
		wantCode(t, what, err, c.want)
	}
	clean, err := session.CleanValues(map[string]json.RawMessage{"y": json.RawMessage("2"), "x": json.RawMessage("1")})
	if d := cmp.Diff(sandboxmcp.Bridged{Data: got, Keys: []string{"x", "y"}, Bytes: 2}, clean); d != "" || err != nil {
		t.Errorf("%v, %s", err, d)
	}

	var later session.Values
	for what, c := range map[string]struct {
		ns   sandboxmcp.Namespace
		want sandboxmcp.Code
	}{"first": {"one", ""}, "of another namespace": {"two", ""}} {
		wantCode(t, what, later.Keep(c.ns, map[string]json.RawMessage{"x": large}), c.want)
	}
	wantCode(t, "too many together", later.Keep("one", map[string]json.RawMessage{"y": large}), sandboxmcp.CodeFileTooLarge)
	wantCode(t, "replaced", later.Keep("one", map[string]json.RawMessage{"x": json.RawMessage("7")}), "")
	if err := later.Prepare(t.Context(), "one", b); err != nil || !cmp.Equal(b.provided, map[string]string{"bridge/x.json": "7"}) {
		t.Errorf("got %v and %v, want the value of the namespace", b.provided, err)
	}
	empty := &box{}
	if err := later.Prepare(t.Context(), "none", empty); err != nil || !cmp.Equal(empty.made, []string{".bridge"}) || empty.provided != nil {
		t.Errorf("namespace without values: got %v, directories %v and values %v, want the directory for values alone", err, empty.made, empty.provided)
	}
}

// The number of values that a call passes, and of those that a namespace keeps, is bounded. What
// is beyond the bound is an error, and is not left out.
func TestTheNumberOfBridgedValuesIsBounded(t *testing.T) {
	all, many := map[string]string{}, map[string]json.RawMessage{}
	for n := range 100 {
		all[".bridge/k"+strconv.Itoa(n)+".json"] = "1"
		all[".bridge/.temporary"+strconv.Itoa(n)] = "1"
		many[strconv.Itoa(n)] = json.RawMessage("1")
	}
	k := newKit(t, t.TempDir(), 2)
	l, _ := k.live(t, "a", all)
	if got, err := l.Published(t.Context(), nil); len(got) != 100 || err != nil {
		t.Errorf("got %d values and %v, want 100", len(got), err)
	}
	all[".bridge/more.json"] = "1"
	l, _ = k.live(t, "b", all)
	_, err := l.Published(t.Context(), nil)
	wantCode(t, "more values than a call passes", err, sandboxmcp.CodeInvalidArgument)

	var later session.Values
	wantCode(t, "as many as are kept", later.Keep("ns", many), "")
	wantCode(t, "the same again", later.Keep("ns", many), "")
	wantCode(t, "one more", later.Keep("ns", map[string]json.RawMessage{"x": json.RawMessage("1")}), sandboxmcp.CodeFileTooLarge)
}

func TestARequestJoinsASessionOfItsKind(t *testing.T) {
	k := newKit(t, t.TempDir(), 2)
	k.open(t, "a", time.Hour)
	s, err := k.Find(t.Context(), "ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		r    sandboxmcp.Request
		want sandboxmcp.Code
		in   sandboxmcp.Language
	}{
		"no language":      {sandboxmcp.Request{}, "", sandboxmcp.Python},
		"its language":     {sandboxmcp.Request{Language: sandboxmcp.Python}, "", sandboxmcp.Python},
		"another language": {sandboxmcp.Request{Language: sandboxmcp.Node}, "", sandboxmcp.Node},
		"another limit":    {sandboxmcp.Request{Limits: sandboxmcp.Limits{MaxRAMMB: 7}}, sandboxmcp.CodeInvalidArgument, ""},
		"a timeout":        {sandboxmcp.Request{Limits: sandboxmcp.Limits{TimeoutSeconds: 7}}, "", sandboxmcp.Python},
	} {
		_, err := s.Join(&c.r)
		if wantCode(t, what, err, c.want); err == nil && c.r.Language != c.in {
			t.Errorf("%s: got the language %q, want %q", what, c.r.Language, c.in)
		}
	}
}
