package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// answers returns a server whose execute_code answers r.
func answers(t *testing.T, f *fake, r sandboxmcp.Result) map[string]any {
	t.Helper()
	f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return r, nil }
	return legacy(t, f).execute("x")
}

// smallest returns a server with small answers and as much room for streams as hosts show.
func smallest() *fake {
	f := newFake()
	f.config.Small, f.config.OutputChars = true, 39_000
	return f
}

func TestStreamsAreShortened(t *testing.T) {
	long := func(n int, of string) string { return "HEAD" + strings.Repeat(of, n/len(of)) + "TAIL\n" }
	uri := func(s string) string { return "run://" + runID + "/" + s }
	for _, c := range []struct {
		name, stdout, stderr       string
		wantOut, wantErr           bool // shortened
		roomOut, roomErr, minChars int  // as they stand in JSON
	}{
		{"short", "a", "b", false, false, 1, 1, 0},
		{"38000 characters fit", strings.Repeat("é", 37_999), "b", false, false, 37_999, 1, 0},
		{"stdout alone", long(200_000, "é"), "", true, false, 39_000, 0, 38_000},
		{"stdout, little stderr", long(200_000, "é"), "oops", true, false, 38_996, 4, 38_000},
		{"stderr, little stdout", "oops", long(200_000, "é"), false, true, 4, 38_996, 38_000},
		{"both", long(200_000, "é"), long(100_000, "é"), true, true, 19_500, 19_500, 38_000},
		{"short lines", long(60_000, "1\n2\n"), "", true, false, 39_000, 0, 38_000},
		{"quotes", long(30_000, `"`), "", true, false, 39_000, 0, 38_000},
		{"NULs", long(30_000, "\x00"), "", true, false, 39_000, 0, 38_000},
		{"line separators", long(60_000, "\u2028"), "", true, false, 39_000, 0, 38_000},
		{"two units of UTF-16", long(200_000, "\U0001f600"), "", true, false, 39_000, 0, 38_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := result(sandboxmcp.Request{}, c.stdout)
			r.Stderr = c.stderr
			res := answers(t, smallest(), r)
			body := structured(res)
			sameText(t, c.name, res)
			total := 0
			for _, s := range []struct {
				name, whole string
				shortened   bool
				room        int
			}{{"stdout", c.stdout, c.wantOut, c.roomOut}, {"stderr", c.stderr, c.wantErr, c.roomErr}} {
				got, _ := body[s.name].(string)
				chars := jsonChars(t, got) - 2
				total += chars
				if chars > s.room {
					t.Errorf("%s: got %d characters, want at most %d", s.name, chars, s.room)
				}
				if !s.shortened {
					if got != s.whole || body[s.name+"_uri"] != nil {
						t.Errorf("%s: got another text, want it as it is", s.name)
					}
					continue
				}
				if body[s.name+"_uri"] != uri(s.name) {
					t.Errorf("%s_uri: got %v, want %v", s.name, body[s.name+"_uri"], uri(s.name))
				}
				head, rest, _ := strings.Cut(got, "\n[… ")
				mark, tail, _ := strings.Cut(rest, " …]\n")
				if !strings.HasPrefix(head, "HEAD") || !strings.HasSuffix(tail, "TAIL\n") || !strings.HasPrefix(s.whole, head) || !strings.HasSuffix(s.whole, tail) {
					t.Errorf("%s: got %.40q … %q, want its head and tail", s.name, got, tail[max(0, len(tail)-20):])
				}
				var n int
				if err := json.Unmarshal([]byte(mark[:strings.IndexByte(mark, ' ')]), &n); err != nil || n != len(s.whole)-len(head)-len(tail) {
					t.Errorf("%s: got %q, want %d bytes", s.name, mark, len(s.whole)-len(head)-len(tail))
				}
			}
			if total < c.minChars {
				t.Errorf("got %d characters, want at least %d", total, c.minChars)
			}
			fits(t, res)
		})
	}
}

// jsonChars counts the characters of v in JSON as a host written in JavaScript
// does, in units of UTF-16.
func jsonChars(t *testing.T, v any) int {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return len(utf16.Encode([]rune(strings.TrimSuffix(b.String(), "\n"))))
}

// fits checks that no host cuts the answer: Gemini CLI cuts at 40,000 characters
// of text, words of its own and lines for links included.
func fits(t *testing.T, res map[string]any) {
	t.Helper()
	text, _ := blocks(res, "text")[0]["text"].(string)
	n := len(utf16.Encode([]rune(text)))
	for _, link := range blocks(res, "resource_link") {
		n += len(fmt.Sprintf("Resource Link: %s at %s\n", link["name"], link["uri"]))
	}
	if limit := 39_500; n > limit {
		t.Errorf("got %d characters, want at most %d", n, limit)
	}
}

// TestValuesAreWholeInFull: a program that parses an answer in full has all of the values and the
// exception, and streams of up to 39,000 characters. Files that are not small are links.
func TestValuesAreWholeInFull(t *testing.T) {
	r := result(sandboxmcp.Request{}, strings.Repeat("out\n", 3_500))
	r.Stderr = strings.Repeat("err\n", 3_500)
	for range 5 {
		r.Results = append(r.Results, sandboxmcp.RichResult{"text/plain": strings.Repeat("\"r\"", 3000), "image/png": strings.Repeat("j", 30_000)})
	}
	r.Error = &sandboxmcp.ProgramError{Name: "E", Value: strings.Repeat("v", 9000), Traceback: strings.Split(strings.Repeat("line\n", 500), "\n")}
	for i := range 12 {
		r.Artifacts = append(r.Artifacts, artifact(fmt.Sprintf("file %d.txt", i), bytes.Repeat([]byte("f"), 4<<10)))
	}
	res := answers(t, newFake(), r)
	body := structured(res)
	want, err := json.Marshal(map[string]any{"stdout": r.Stdout, "stderr": r.Stderr, "results": r.Results, "error": r.Error, "stdout_uri": nil})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(map[string]any{"stdout": body["stdout"], "stderr": body["stderr"], "results": body["results"], "error": body["error"], "stdout_uri": body["stdout_uri"]})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(decoded(t, want), decoded(t, got)); d != "" {
		t.Errorf("in full (-want +got):\n%.2000s", d)
	}
	var whole int
	list, _ := body["artifacts"].([]any)
	for _, x := range list {
		if a, _ := x.(map[string]any); a["content_b64"] != "" {
			whole++
		}
	}
	if links := len(blocks(res, "resource_link")); whole != 2 || links != 10 {
		t.Errorf("got %d files shown and %d linked, want 2 and 10", whole, links)
	}
}

func TestLongStreamsAreResourcesInFull(t *testing.T) {
	body := structured(answers(t, newFake(), result(sandboxmcp.Request{}, "HEAD"+strings.Repeat("x", 200_000)+"TAIL")))
	got, _ := body["stdout"].(string)
	if len(got) > 39_000 || !strings.HasPrefix(got, "HEAD") || !strings.HasSuffix(got, "TAIL") || body["stdout_uri"] != "run://"+runID+"/stdout" {
		t.Errorf("got %d characters and the uri %v, want at most 39,000 with head and tail, and where the rest is", len(got), body["stdout_uri"])
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNothingIsNull(t *testing.T) {
	r := result(sandboxmcp.Request{}, "")
	r.Isolation = &sandboxmcp.Isolation{}
	r.Error = &sandboxmcp.ProgramError{Name: "E"}
	res := answers(t, newFake(), r)
	text, _ := blocks(res, "text")[0]["text"].(string)
	for _, want := range []string{`"artifacts":[]`, `"results":[]`, `"metadata":{}`, `"allowed":[]`, `"denied":[]`, `"walls":[]`, `"weak":[]`, `"traceback":[]`} {
		if !strings.Contains(text, want) {
			t.Errorf("got %[2]s, want %[1]s in it", want, text)
		}
	}
}

func TestFiles(t *testing.T) {
	f := newFake()
	small, large := bytes.Repeat([]byte("s"), 8<<10), bytes.Repeat([]byte("l"), 8<<10+1)
	r := result(sandboxmcp.Request{}, "")
	r.Artifacts = []sandboxmcp.Artifact{artifact("small.txt", small), artifact("large ü.txt", large), artifact("empty.txt", nil)}
	res := answers(t, f, r)
	list, _ := structured(res)["artifacts"].([]any)
	var got []string
	for _, x := range list {
		a, _ := x.(map[string]any)
		content, _ := a["content_b64"].(string)
		got = append(got, content)
	}
	if d := cmp.Diff([]string{base64.StdEncoding.EncodeToString(small), "", ""}, got); d != "" {
		t.Errorf("content_b64 (-want +got):\n%s", d)
	}
	links := blocks(res, "resource_link")
	if len(links) != 1 {
		t.Fatalf("got links %v, want one", links)
	}
	want := map[string]any{"type": "resource_link", "uri": "artifact://" + runID + "/large%20%C3%BC.txt", "name": "large ü.txt", "mimeType": "text/plain; charset=utf-8", "size": 8193.0}
	if d := cmp.Diff(want, links[0]); d != "" {
		t.Errorf("link (-want +got):\n%s", d)
	}
	if got, want := len(r.Artifacts[1].ContentB64), len(large); got != want {
		t.Errorf("the engine's own result was changed: %d bytes, want %d", got, want)
	}
}

func TestOldClientsGetNoLinks(t *testing.T) {
	f := newFake()
	f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) {
		r := result(sandboxmcp.Request{}, "")
		r.Artifacts = []sandboxmcp.Artifact{artifact("l.txt", make([]byte, 9000))}
		return r, nil
	}
	p := dial(t, f)
	p.hello("2025-03-26")
	if got := blocks(p.execute("x"), "resource_link"); got != nil {
		t.Errorf("a client of 2025-03-26: got %v, want no links", got)
	}
}

func TestGetArtifacts(t *testing.T) {
	f := newFake()
	f.files["a.txt"] = []byte("abc")
	f.files["p.png"] = picture(t, 4, 4, png.Encode)
	p := legacy(t, f)
	res := p.call("get_artifacts", map[string]any{"request_id": runID})
	if d := cmp.Diff(any(map[string]any{"a.txt": "sum-a.txt", "p.png": "sum-p.png"}), structured(res)["manifest"]); d != "" {
		t.Errorf("manifest (-want +got):\n%s", d)
	}
	if got := len(blocks(res, "image")); got != 1 {
		t.Errorf("%d image blocks, want 1", got)
	}
	res = p.call("get_artifacts", map[string]any{"request_id": runID, "include_content": false})
	list, _ := structured(res)["artifacts"].([]any)
	for _, x := range list {
		if a, _ := x.(map[string]any); a["content_b64"] != "" {
			t.Errorf("got %v with include_content false, want no content", a)
		}
	}
	if got := len(blocks(res, "image")); got != 0 {
		t.Errorf("got %d pictures with include_content false, want none", got)
	}
	if got := len(blocks(res, "resource_link")); got != 2 {
		t.Errorf("include_content false has %d links, want 2", got)
	}
}

// picture is a picture of noise, which does not compress.
func picture[O any](t *testing.T, w, h int, encode func(w io.Writer, m image.Image) O) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	_, _ = rand.Read(m.Pix)
	var b bytes.Buffer
	encode(&b, m)
	return b.Bytes()
}

func TestPictures(t *testing.T) {
	f := newFake()
	plain := picture(t, 96, 64, png.Encode)
	noise := picture(t, 1500, 1200, png.Encode) // about 7 MB
	var anim bytes.Buffer
	if err := gif.Encode(&anim, image.NewPaletted(image.Rect(0, 0, 9, 9), color.Palette{color.Black, color.White}), nil); err != nil {
		t.Fatal(err)
	}
	wide := picture(t, 9000, 2, png.Encode)
	if c, err := png.DecodeConfig(bytes.NewReader(bomb())); err != nil || c.Width != 60_000 {
		t.Fatalf("got the bomb %v and %v, want a width of 60000", c, err)
	}
	other := picture(t, 9, 9, png.Encode)
	f.files["late.png"] = other
	late := artifact("late.png", other)
	late.ContentB64 = nil // not in the result, but kept
	r := result(sandboxmcp.Request{}, "")
	r.Artifacts = []sandboxmcp.Artifact{
		artifact("fake.png", []byte("no picture")), artifact("bomb.png", bomb()), artifact("a.png", plain), artifact("again.png", plain),
		artifact("noise.png", noise), artifact("wide.png", wide), late, artifact("five.gif", anim.Bytes()),
	}
	res := answers(t, f, r)
	if note, _ := structured(res)["note"].(string); !strings.Contains(note, "more pictures are not shown") {
		t.Errorf("got the note %q, want one that says how many pictures are left out", note)
	}
	images := blocks(res, "image")
	if got, want := len(images), 4; got != want {
		t.Fatalf("%d pictures, want %d", got, want)
	}
	decode := func(i int) ([]byte, image.Config, string) {
		text, _ := images[i]["data"].(string)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		c, format, err := image.DecodeConfig(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return data, c, format
	}
	if data, _, _ := decode(0); !bytes.Equal(data, plain) || images[0]["mimeType"] != "image/png" {
		t.Error("got another picture, want the small one byte for byte")
	}
	data, c, format := decode(1)
	if len(data) > 1<<20 || "image/"+format != images[1]["mimeType"] || c.Width >= 1500 && format == "png" || c.Width*4 != c.Height*5 {
		t.Errorf("scaled: got %d bytes, %dx%d %s as %v, want at most 1 MiB, 5:4 and its own type", len(data), c.Width, c.Height, format, images[1]["mimeType"])
	}
	if _, c, _ := decode(2); c.Width != 2000 || c.Height != 1 {
		t.Errorf("got a wide picture of %dx%d, want 2000x1", c.Width, c.Height)
	}
	if data, _, _ := decode(3); !bytes.Equal(data, other) {
		t.Error("got no picture, want the one that was not in the result")
	}
}

// bomb is a PNG whose head promises 60 000 x 60 000 pixels, too long to be
// passed on unread.
func bomb() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1)))
	p := b.Bytes()
	binary.BigEndian.PutUint32(p[16:], 60_000)
	binary.BigEndian.PutUint32(p[20:], 60_000)
	binary.BigEndian.PutUint32(p[29:], crc32.ChecksumIEEE(p[12:29]))
	return append(p, make([]byte, 2<<20)...)
}

func TestRichResultsAreShortened(t *testing.T) {
	f := smallest()
	var jpg bytes.Buffer
	m := image.NewRGBA(image.Rect(0, 0, 300, 300))
	_, _ = rand.Read(m.Pix)
	if err := jpeg.Encode(&jpg, m, nil); err != nil {
		t.Fatal(err)
	}
	shot := base64.StdEncoding.EncodeToString(jpg.Bytes())
	html := "<b>" + strings.Repeat("x", 100_000) + "</b>"
	r := result(sandboxmcp.Request{}, "")
	r.Results = []sandboxmcp.RichResult{
		{"image/jpeg": shot, "text/plain": "<Figure>", "is_main_result": true},
		{"text/html": html},
		{"text/html": html, "application/json": map[string]any{"a": strings.Repeat("y", 9000)}},
	}
	f.results = r.Results
	f.execute = func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error) { return r, nil }
	p := legacy(t, f)
	res := p.execute("x")
	if got := len(blocks(res, "image")); got != 1 {
		t.Errorf("%d pictures, want 1", got)
	}
	list, _ := structured(res)["results"].([]any)
	first, _ := list[0].(map[string]any)
	if d := cmp.Diff(map[string]any{"image/jpeg": "shown"}, first); d != "" {
		t.Errorf("first result (-want +got):\n%s", d)
	}
	second, _ := list[1].(map[string]any)
	if got, _ := second["text/html"].(string); len(got) > 9000 || !strings.HasPrefix(got, "<b>") || !strings.HasSuffix(got, "</b>") {
		t.Errorf("got %d bytes of text/html, want at most 9000, begun and ended", len(got))
	}
	third, _ := list[2].(map[string]any)
	if got, ok := third["application/json"].(string); !ok || len(got) > 200 {
		t.Errorf("got application/json %v, want at most 200 bytes", third["application/json"])
	}
	got := read(t, p, "run://"+runID+"/results")
	var whole []sandboxmcp.RichResult
	if text, _ := got["text"].(string); json.Unmarshal([]byte(text), &whole) != nil || whole[1]["text/html"] != html || whole[0]["image/jpeg"] != "run://"+runID+"/results/0/image/jpeg" {
		t.Error("got a part in the resource, want the whole results, and the picture as its uri")
	}
}

func TestLongExceptionIsShortened(t *testing.T) {
	r := result(sandboxmcp.Request{}, "")
	r.Error = &sandboxmcp.ProgramError{Name: "ValueError", Value: strings.Repeat("v", 1<<20), Traceback: strings.Split(strings.Repeat("line\n", 5000)+"last", "\n")}
	e, _ := structured(answers(t, smallest(), r))["error"].(map[string]any)
	value, _ := e["value"].(string)
	frames, _ := e["traceback"].([]any)
	if len(value) > 4100 || len(frames) > 50 || frames[len(frames)-1] != "last" {
		t.Errorf("got a value of %d bytes and %d frames, the last %v, want at most 4100 and 50, the last one kept", len(value), len(frames), frames[len(frames)-1])
	}
}

func read(t *testing.T, p *pipe, uri string) map[string]any {
	t.Helper()
	m := p.request("resources/read", map[string]any{"uri": uri})
	res, _ := m["result"].(map[string]any)
	list, _ := res["contents"].([]any)
	if len(list) != 1 {
		t.Fatalf("resources/read %s: got %v, want the contents", uri, m)
	}
	c, _ := list[0].(map[string]any)
	if c["uri"] != uri {
		t.Errorf("got uri %v, want %s", c["uri"], uri)
	}
	return c
}

func TestResources(t *testing.T) {
	f := newFake()
	f.output["stdout"], f.output["stderr"] = []byte("kit\n"), nil
	f.files["ä b/c?.txt"] = []byte("text")
	f.files["b.bin"] = []byte{0, 1, 0xff}
	p := legacy(t, f)
	templates, _ := json.Marshal(p.request("resources/templates/list", map[string]any{})["result"])
	for _, want := range []string{"run://{request_id}/{+part}", "artifact://{id}/{+path}"} {
		if !strings.Contains(string(templates), want) {
			t.Errorf("got the templates %[2]s, want %[1]s in them", want, templates)
		}
	}
	if got := read(t, p, "run://"+runID+"/stdout"); got["text"] != "kit\n" {
		t.Errorf("got stdout %v, want kit", got)
	}
	if got := read(t, p, "run://"+runID+"/stderr"); got["blob"] != "" {
		t.Errorf("got stderr %v, want an empty blob", got)
	}
	if got := read(t, p, "artifact://"+runID+"/%C3%A4%20b/c%3F.txt"); got["text"] != "text" {
		t.Errorf("got file %v, want text", got)
	}
	if got := read(t, p, "artifact://"+runID+"/b.bin"); got["blob"] != "AAH/" {
		t.Errorf("got binary file %v, want AAH/", got)
	}
	m := p.request("resources/read", map[string]any{"uri": "artifact://" + runID + "/none"})
	e, _ := m["error"].(map[string]any)
	data, _ := e["data"].(map[string]any)
	if got, want := data["uri"], "artifact://"+runID+"/none"; got != want {
		t.Errorf("data.uri of an unknown file = %v, want %v", got, want)
	}
}
