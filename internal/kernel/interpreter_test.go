package kernel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

func TestPlanInterpreterRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		p    kernel.Program
		want sandboxmcp.Code
	}{
		"language":        {kernel.Program{Language: "cobol", Interpreter: "/x"}, sandboxmcp.CodeUnsupportedLanguage},
		"env":             {kernel.Program{Interpreter: "/x", Env: map[string]string{"PATH": "/"}}, sandboxmcp.CodeInvalidArgument},
		"relative binary": {kernel.Program{Interpreter: "python3"}, sandboxmcp.CodeInternal},
	} {
		if _, err := kernel.PlanInterpreter(c.p); sandboxmcp.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// counted counts the reads of a channel.
type counted struct {
	io.Reader
	reads int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}

// TestReadTakesWhatHasCome: one read takes all frames that have arrived, because each read may wait for another machine.
func TestReadTakesWhatHasCome(t *testing.T) {
	c := &counted{Reader: strings.NewReader(strings.Repeat(frame(`{"type":"display","data":{"text/plain":"x"}}`), 3))}
	rep, err := kernel.Read(c, nil)
	if err != nil || len(rep.Results) != 3 || c.reads > 2 {
		t.Errorf("got %d values, %v, after %d reads, want 3 after 2", len(rep.Results), err, c.reads)
	}
}

// deaf is a channel on which nothing that is written is read, until it is closed.
type deaf struct {
	io.Reader
	closed chan struct{}
}

func (d deaf) Write([]byte) (int, error) {
	<-d.closed
	return 0, io.ErrClosedPipe
}

func (d deaf) Close() error {
	close(d.closed)
	return nil
}

// scripted is a driver that says first, then waits for a cell, then says then.
type scripted struct {
	first, then io.Reader
	told        chan struct{}
}

func (s *scripted) Read(p []byte) (int, error) {
	if n, err := s.first.Read(p); n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	<-s.told
	return s.then.Read(p)
}

func (s *scripted) Write(p []byte) (int, error) {
	close(s.told)
	return len(p), nil
}

func (*scripted) Close() error { return nil }

// heard runs one cell with a driver that is ready and then says what in is.
func heard(ctx context.Context, in io.Reader, show func(sandboxmcp.RichResult)) (kernel.Report, error) {
	c := &scripted{strings.NewReader(frame(`{"type":"ready"}`)), in, make(chan struct{})}
	return kernel.Attach(c, sandboxmcp.Python).Execute(ctx, kernel.Cell{Code: "1"}, show)
}

func TestInterpreterWords(t *testing.T) {
	const start, done = `{"type":"start","id":1}`, `{"type":"done","id":1,"ok":true}`
	none := kernel.Report{Results: []sandboxmcp.RichResult{}}
	good := kernel.Report{Started: true, Done: true, Results: []sandboxmcp.RichResult{}}
	for name, c := range map[string]struct {
		in   []string
		want kernel.Report
		gone bool
	}{
		"nothing":           {nil, none, true},
		"a cell":            {[]string{start, done}, good, false},
		"exit":              {[]string{start, `{"type":"done","id":1,"ok":false,"exit":3}`}, kernel.Report{Started: true, Done: true, Exit: 3, Results: []sandboxmcp.RichResult{}}, false},
		"failed":            {[]string{start, `{"type":"done","id":1}`}, kernel.Report{Started: true, Done: true, Exit: 1, Results: []sandboxmcp.RichResult{}}, false},
		"exit that is none": {[]string{start, `{"type":"done","id":1,"exit":-1}`}, kernel.Report{Started: true, Done: true, Exit: 255, Results: []sandboxmcp.RichResult{}}, false},
		"other ids":         {[]string{`{"type":"done","id":2}`, `{"type":"done"}`, `{"type":"error","id":9,"name":"E"}`, start, done}, good, false},
		"ended before":      {[]string{start}, kernel.Report{Started: true, Results: []sandboxmcp.RichResult{}}, true},
		"negative id":       {[]string{start, `{"type":"done","id":-1}`, done}, kernel.Report{Started: true, Results: []sandboxmcp.RichResult{}}, true},
		"large start":       {[]string{`{"type":"start","x":"` + strings.Repeat("x", 100) + `"}`, start, done}, none, true},
		"not JSON":          {[]string{start, "x", done}, kernel.Report{Started: true, Results: []sandboxmcp.RichResult{}}, true},
		"error": {[]string{`{"type":"syntax","id":1,"name":"SyntaxError","line":2}`, `{"type":"error","id":1,"name":"SyntaxError"}`, `{"type":"done","id":1}`}, kernel.Report{
			Done: true, Exit: 1, Results: []sandboxmcp.RichResult{}, Syntax: &kernel.SyntaxError{Name: "SyntaxError", Line: 2}, Error: &sandboxmcp.ProgramError{Name: "SyntaxError", Traceback: []string{}},
		}, false},
	} {
		var in strings.Builder
		for _, f := range c.in {
			in.WriteString(frame(f))
		}
		got, err := heard(t.Context(), strings.NewReader(in.String()), nil)
		if errors.Is(err, kernel.ErrGone) != c.gone || err != nil && !c.gone {
			t.Errorf("%s: %v, want gone: %v", name, err, c.gone)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
}

// asked is a driver in Go: it answers each execute frame with what answer says.
func asked(t *testing.T, answer func(id int) []string) io.ReadWriteCloser {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	go func() {
		_, _ = io.WriteString(theirs, frame(`{"type":"ready"}`))
		for id := 1; ; id++ {
			head := make([]byte, 4)
			if _, err := io.ReadFull(theirs, head); err != nil {
				return
			}
			n := int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
			if _, err := io.CopyN(io.Discard, theirs, int64(n)); err != nil {
				return
			}
			for _, f := range answer(id) {
				if _, err := io.WriteString(theirs, frame(f)); err != nil {
					return
				}
			}
		}
	}()
	return ours
}

func TestInterpreterShows(t *testing.T) {
	i := kernel.Attach(asked(t, func(id int) []string {
		n := string(rune('0' + id))
		return []string{`{"type":"start","id":` + n + `}`, `{"type":"display","id":` + n + `,"data":{"text/plain":"` + n + `"}}`, `{"type":"display","id":0,"data":{"text/plain":"no"}}`, `{"type":"done","id":` + n + `,"ok":true}`}
	}), sandboxmcp.Python)
	for _, want := range []string{"1", "2"} {
		var shown []sandboxmcp.RichResult
		rep, err := i.Execute(t.Context(), kernel.Cell{}, func(r sandboxmcp.RichResult) { shown = append(shown, r) })
		if d := cmp.Diff([]sandboxmcp.RichResult{{"text/plain": want, "is_main_result": false}}, shown); d != "" || err != nil || !cmp.Equal(rep.Results, shown) {
			t.Errorf("got %v %+v, want no error and the displayed values %s", err, rep, d)
		}
	}
}

// A driver that does not read, or that reports without end, delays its caller for no longer
// than the limits.
func TestInterpreterDoesNotWaitForEver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	talk := &endless{frame: frame(`{"type":"display","id":1,"data":{"text/plain":"` + strings.Repeat("x", 1<<14) + `"}}`), n: 1 << 40}
	i := kernel.Attach(&scripted{strings.NewReader(frame(`{"type":"ready"}`)), talk, make(chan struct{})}, sandboxmcp.Python)
	rep, err := i.Execute(ctx, kernel.Cell{}, func(sandboxmcp.RichResult) {
		if n++; n == 10 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(rep.Results) < 10 {
		t.Errorf("got %v, %d results; want canceled and at least 10", err, len(rep.Results))
	}
	for !errors.Is(err, kernel.ErrGone) { // no caller waits for it, so it has a limit
		<-time.NewTimer(time.Millisecond).C
		_, err = i.Execute(ctx, kernel.Cell{}, nil)
	}
	ctx, cancel = context.WithCancel(t.Context())
	c := deaf{io.MultiReader(strings.NewReader(frame(`{"type":"ready"}`)), &hook{f: cancel}), make(chan struct{})}
	defer func() { _ = c.Close() }()
	if _, err := kernel.Attach(c, sandboxmcp.Python).Execute(ctx, kernel.Cell{}, nil); !errors.Is(err, context.Canceled) && !errors.Is(err, kernel.ErrGone) {
		t.Errorf("a driver that does not read: got %v, want canceled or gone", err)
	}
	// Where no cell goes, a limit ends the conversation.
	idle := &endless{frame: frame(`{"type":"display","id":1,"data":{"text/plain":"` + strings.Repeat("x", 1<<19) + `"}}`), n: 1 << 40}
	talks := deaf{idle, make(chan struct{})}
	defer func() { _ = talks.Close() }()
	if _, err := kernel.Attach(talks, sandboxmcp.Python).Execute(t.Context(), kernel.Cell{}, nil); !errors.Is(err, kernel.ErrGone) {
		t.Errorf("a driver that reports for another cell for ever: got %v, want gone", err)
	}
}

// hook is a reader that calls f and then waits for ever, as a silent driver does.
type hook struct{ f func() }

func (h *hook) Read([]byte) (int, error) {
	h.f()
	select {}
}

func TestInterpreterIsBounded(t *testing.T) {
	big := `{"type":"display","id":1,"data":{"text/plain":"` + strings.Repeat("x", 900<<10) + `"}}`
	i := kernel.Attach(asked(t, func(int) []string {
		all := make([]string, 30)
		for n := range all {
			all[n] = big
		}
		return append(all, `{"type":"done","id":1,"ok":true}`)
	}), sandboxmcp.Python)
	rep, err := i.Execute(t.Context(), kernel.Cell{}, nil)
	if err != nil || len(rep.Results) != 9 || !rep.Done {
		t.Errorf("%v, %d results, want the 9 that fit into 8 MiB", err, len(rep.Results))
	}
	least := uint64(1 << 62) // what else the process does counts, too
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = heard(t.Context(), strings.NewReader("\x7f\xff\xff\xff"+strings.Repeat("x", 1000)), nil)
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > kernel.MaxFrame || !errors.Is(err, kernel.ErrGone) {
		t.Errorf("a length of 2 GiB: got %d bytes allocated, %v; want at most one frame, and gone", least, err)
	}
}

// The law: whatever a driver says, Execute ends when it does, with done or
// without, and its report can be shown and keeps the bounds.
func FuzzInterpreter(f *testing.F) {
	f.Add([]byte(frame(`{"type":"start","id":1}`) + frame(`{"type":"done","id":1,"ok":true}`)))
	f.Add([]byte(frame(`{"type":"error","id":1,"name":"E","traceback":["a"]}`) + "\xff\xff\xff\xff"))
	f.Add([]byte(frame(`{"type":"display","id":1,"data":{"application/json":[[]],"text/html":"x"}}`) + "ab"))
	f.Add([]byte(frame(`{"type":"done","id":1,"exit":9007199254740993}`)))
	f.Add([]byte(frame(`{"type":"syntax","id":1,"line":1e3}`)))
	f.Fuzz(func(t *testing.T, in []byte) {
		shown := 0
		rep, err := heard(t.Context(), bytes.NewReader(in), func(sandboxmcp.RichResult) { shown++ })
		if err != nil && !errors.Is(err, kernel.ErrGone) || rep.Done != (err == nil) {
			t.Fatalf("got %v with %+v, want done or gone", err, rep)
		}
		if rep.Results == nil || shown != len(rep.Results) || shown > 256 || rep.Exit < 0 || rep.Exit > 255 || rep.Started && rep.Syntax != nil {
			t.Fatalf("got %d values shown, %+v; want as many as in the report, within its bounds", shown, rep)
		}
		if e := rep.Error; e != nil && (len(e.Name) > 256 || len(e.Value) > 64<<10 || len(e.Traceback) > 200) {
			t.Fatalf("got error %+v, want it within its bounds", e)
		}
		if out, jsonErr := json.Marshal(rep.Results); jsonErr != nil || len(out) > 6*len(in)+64 {
			t.Fatalf("got %d bytes of results from %d, %v; want at most six for each", len(out), len(in), jsonErr)
		}
	})
}

// TestACellAsksForPackages: requests are answered one after the other, a flood of them is dropped,
// and the next cell is sent after the answers.
func TestACellAsksForPackages(t *testing.T) {
	ours, theirs := net.Pipe()
	i := kernel.Attach(ours, sandboxmcp.Python)
	defer ours.Close()
	say := func(texts ...string) {
		for _, text := range texts {
			if _, err := theirs.Write(append([]byte{0, 0, byte(len(text) >> 8), byte(len(text))}, text...)); err != nil {
				t.Error(err)
			}
		}
	}
	read := func() (m map[string]any) {
		var head [4]byte
		if _, err := io.ReadFull(theirs, head[:]); err != nil {
			t.Error(err)
			return nil
		}
		body := make([]byte, int(head[2])<<8|int(head[3]))
		if _, err := io.ReadFull(theirs, body); err != nil || json.Unmarshal(body, &m) != nil {
			t.Errorf("got %q, %v", body, err)
		}
		return m
	}
	asks, begun := make(chan []string, 4), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		say(`{"type":"ready"}`)
		read()
		say(`{"type":"install","id":1,"language":"python","packages":["a"]}`, `{"type":"install","id":1,"language":"python","packages":["b"]}`,
			`{"type":"install","id":1,"language":"python","packages":["dropped"]}`, `{"type":"display","id":1,"data":{"text/plain":"all are heard"}}`)
		for range 2 {
			if m := read(); m["type"] != "installed" || m["ok"] != true || m["output"] != "there" {
				t.Errorf("got the answer %v", m)
			}
		}
		say(`{"type":"done","id":1,"ok":true}`)
		if m := read(); m["type"] != "execute" || m["code"] != "2" {
			t.Errorf("got %v, want the next cell", m)
		}
		say(`{"type":"install","id":2,"language":"node","packages":[]}`)
		if m := read(); m["missing"] != true {
			t.Errorf("without Install: got %v, want that it is missing", m)
		}
		say(`{"type":"done","id":2,"ok":true}`)
	}()
	_, err := i.Execute(t.Context(), kernel.Cell{Code: "1", Install: func(_ sandboxmcp.Language, packages []string) kernel.Installed {
		asks <- packages
		<-begun
		return kernel.Installed{OK: true, Output: "there"}
	}}, func(sandboxmcp.RichResult) { close(begun) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err = i.Execute(t.Context(), kernel.Cell{Code: "2"}, nil); err != nil {
		t.Fatal(err)
	}
	<-done
	close(asks)
	var all [][]string
	for a := range asks {
		all = append(all, a)
	}
	if diff := cmp.Diff([][]string{{"a"}, {"b"}}, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOneCellInstallsSoOften: each installation asks an index and writes to the record, so a cell
// that forges requests one after the other does not get all of them carried out.
func TestOneCellInstallsSoOften(t *testing.T) {
	const most, asked = 32, 40
	ours, theirs := net.Pipe()
	i := kernel.Attach(ours, sandboxmcp.Python)
	defer ours.Close()
	say := func(text string) {
		if _, err := theirs.Write(append([]byte{0, 0, byte(len(text) >> 8), byte(len(text))}, text...)); err != nil {
			t.Error(err)
		}
	}
	read := func() string {
		var head [4]byte
		if _, err := io.ReadFull(theirs, head[:]); err != nil {
			t.Error(err)
		}
		body := make([]byte, int(head[2])<<8|int(head[3]))
		if _, err := io.ReadFull(theirs, body); err != nil {
			t.Error(err)
		}
		return string(body)
	}
	cell := func(id, most int) (installed int) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			read()
			for n := range asked {
				say(`{"type":"install","id":` + strconv.Itoa(id) + `,"language":"python","packages":["a"]}`)
				if got, want := read(), n >= most; strings.Contains(got, `"missing":true`) != want {
					t.Errorf("request %d: got %s, want missing to be %v", n+1, got, want)
				}
			}
			say(`{"type":"done","id":` + strconv.Itoa(id) + `,"ok":true}`)
		}()
		_, err := i.Execute(t.Context(), kernel.Cell{Install: func(sandboxmcp.Language, []string) kernel.Installed {
			installed++
			return kernel.Installed{OK: true}
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-done
		return installed
	}
	go say(`{"type":"ready"}`)
	for id := 1; id <= 2; id++ {
		if got := cell(id, most); got != most {
			t.Errorf("cell %d: got %d installations, want %d", id, got, most)
		}
	}
}

// TestThenComesBeforeTheEnd: Execute waits for Cell.Then, which is called once the driver has reported the end, and no
// longer than its context says.
func TestThenComesBeforeTheEnd(t *testing.T) {
	i := kernel.Attach(asked(t, func(id int) []string {
		return []string{`{"type":"start","id":` + strconv.Itoa(id) + `}`, `{"type":"done","id":` + strconv.Itoa(id) + `,"ok":true}`}
	}), sandboxmcp.Python)
	called := 0
	if _, err := i.Execute(t.Context(), kernel.Cell{Then: func() { called++ }}, nil); err != nil || called != 1 {
		t.Errorf("got %v, %d calls of Then, want one before the end", err, called)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	rep, err := i.Execute(ctx, kernel.Cell{Then: func() {
		cancel()
		<-left
	}}, nil)
	if !errors.Is(err, context.Canceled) || !rep.Done {
		t.Errorf("got %v, %+v, want the context's error and a report that is done", err, rep)
	}
	close(left)
	if rep, err = i.Execute(t.Context(), kernel.Cell{}, nil); err != nil || !rep.Done {
		t.Errorf("the next cell: got %v, %+v", err, rep)
	}
}
