package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2" //nolint:depguard // tests that can be run again as they were
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

// reference masks as it is written down, and slowly: everywhere each form is
// looked for by itself, what is found is marked, and marked runs become masks.
func reference(secrets []Secret, text []byte) []byte {
	text = referenceDumps(secrets, text)
	marked := make([]bool, len(text))
	markForms(secrets, text, true, func(from, to int) {
		for i := from; i < to; i++ {
			marked[i] = true
		}
	})
	// … and where the soft breaks of quoted-printable text are left out.
	var joined []byte
	var at []int
	last := -1 // where the last one ends
	for i := 0; i < len(text); i++ {
		if rest := text[i:]; i != last && bytes.HasPrefix(rest, []byte("=\n")) {
			i++
			last = i + 1
		} else if i != last && bytes.HasPrefix(rest, []byte("=\r\n")) {
			i += 2
			last = i + 1
		} else {
			joined, at = append(joined, text[i]), append(at, i)
		}
	}
	markForms(secrets, joined, false, func(from, to int) {
		for i := at[from]; i <= at[to-1]; i++ {
			marked[i] = true
		}
	})
	var out []byte
	for i, c := range text {
		switch {
		case !marked[i]:
			out = append(out, c)
		case i == 0 || !marked[i-1]:
			out = append(out, Mask...)
		}
	}
	return out
}

// referenceDumps masks the lines of dumps that show a part of a form.
func referenceDumps(secrets []Secret, text []byte) (out []byte) {
	var run [][]byte
	end := func() {
		var all []byte
		var line []int
		for i, l := range run {
			data, _ := decodeDump(l)
			for range data {
				line = append(line, i)
			}
			all = append(all, data...)
		}
		masked := map[int]bool{}
		markForms(secrets, all, false, func(from, to int) {
			for _, i := range line[from:to] {
				masked[i] = true
			}
		})
		for i, l := range run {
			switch {
			case !masked[i]:
				out = append(out, l...)
			case !masked[i-1]:
				out = append(out, Mask...)
				if bytes.HasSuffix(l, []byte("\n")) {
					out = append(out, '\n')
				}
			}
		}
		run = nil
	}
	for l := range bytes.Lines(text) {
		if _, is := decodeDump(l); is {
			run = append(run, l)
		} else {
			end()
			out = append(out, l...)
		}
	}
	end()
	return out
}

// markForms returns where forms are, and how far long ones go on if that is followed.
func markForms(secrets []Secret, text []byte, follow bool, mark func(from, to int)) {
	for _, s := range secrets {
		if len(s.Value) < MinBytes {
			continue
		}
		for _, v := range variants(s.Value) {
			if len(s.Value) <= exactBytes || len(v) < printBytes {
				for i := range len(text) {
					if bytes.HasPrefix(text[i:], []byte(v)) {
						mark(i, i+len(v))
					}
				}
				continue
			}
			window := min(printBytes*max(1, (len(v)+len(s.Value)-1)/len(s.Value)), len(v))
			for _, from := range places(len(v), window, maxNodes) {
				for i := range len(text) {
					if !bytes.HasPrefix(text[i:], []byte(v[from:from+window])) {
						continue
					}
					n := window
					for follow && from+n < len(v) && i+n < len(text) && text[i+n] == v[from+n] {
						n++
					}
					mark(i, i+n)
				}
			}
		}
	}
}

// through sends a text in parts of lengths that next gives.
func through(m *Masker, text []byte, next func() int) []byte {
	if m == nil {
		return text
	}
	s := m.Stream()
	var out []byte
	for len(text) > 0 {
		n := min(max(next(), 0), len(text))
		out = s.Write(out, text[:n])
		text = text[n:]
	}
	return s.Close(out)
}

func secretsOf(values ...string) []Secret {
	var all []Secret
	for i, v := range values {
		all = append(all, Secret{"KEY" + strconv.Itoa(i), v})
	}
	return all
}

// forms are the forms that are promised, made by other means than variants'.
func forms(v string) map[string]string {
	utf := func(big bool) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(v)) {
			if big {
				b = append(b, byte(u>>8), byte(u))
			} else {
				b = append(b, byte(u), byte(u>>8))
			}
		}
		return string(b)
	}
	number := func(form string) string {
		var b strings.Builder
		for _, r := range v {
			fmt.Fprintf(&b, form, r)
		}
		return b.String()
	}
	r := []rune(v)
	slices.Reverse(r)
	plain, _ := json.Marshal(v)
	return map[string]string{
		"raw": v, "upper": strings.ToUpper(v), "lower": strings.ToLower(v), "reversed": string(r),
		"hex": hex.EncodeToString([]byte(v)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(v))),
		"utf-16le": utf(false), "utf-16be": utf(true),
		"query": url.QueryEscape(v), "path": url.PathEscape(v), "json": string(plain[1 : len(plain)-1]), "quoted": strings.Trim(strconv.QuoteToASCII(v), `"`),
		`\u`: number(`\u%04x`), `\U`: number(`\u%04X`), `\x`: number(`\x%02x`), `%`: number("%%%02X"),
	}
}

func TestForms(t *testing.T) {
	for _, v := range []string{"Ab12cd34/+\"Zz9f", "correct horse battery staple", `p@ss'w"o\r<d>&%$!`, "ABCDEFGH", strings.Repeat("xY7-", 16), strings.Repeat("k9/Q", 40) + "end"} {
		m := New(secretsOf(v), false)
		for name, form := range forms(v) {
			if got, want := m.Text("<"+form+">"), "<"+Mask+">"; got != want {
				t.Errorf("%s of %q: got %q, want %q", name, v, got, want)
			}
			if got := m.Find([]byte("x" + form + "y")); got != "KEY0" {
				t.Errorf("%s of %q is not found: %q", name, v, got)
			}
		}
		for before := range 3 {
			for name, enc := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.RawURLEncoding} {
				text := enc.EncodeToString([]byte("xyz"[:before] + v + "yy"))
				core := text[(8*before+5)/6 : 8*(before+len(v))/6]
				if got := m.Text(text); strings.Contains(got, core[:8]) || strings.Contains(got, core[len(core)-8:]) || !strings.Contains(got, Mask) {
					t.Errorf("%s of %q after %d bytes: got %q", name, v, before, got)
				}
			}
		}
	}
}

func TestNotMasked(t *testing.T) {
	m := New(secretsOf("hunter2-hunter2", "short"), false)
	for _, text := range []string{"", "hello", "hunter2-hunter", "unter2-hunter2", "short", "hunter2 hunter2"} {
		if got := m.Text(text); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	if New(secretsOf("short"), false) != nil {
		t.Error("a value that is too short: got a masker, want none")
	}
	var none *Masker
	if none.Text("x") != "x" || none.Find([]byte("x")) != "" || none.Stream() != nil {
		t.Error("the nil masker: got a change, want none")
	}
}

func TestOverlaps(t *testing.T) {
	a, b := "abcdefgh12", "gh12wxyz99"
	for _, tt := range []struct{ secrets, text, want string }{
		{a + " " + b, "-" + a + "wxyz99-", "-" + Mask + "-"},
		{a + " " + a + "-longer", a + "-longer " + a + " " + a + "-long", Mask + " " + Mask + " " + Mask + "-long"},
		{a + " x" + a + "x", "x" + a + "x x" + a + "y", Mask + " x" + Mask + "y"},
		{a, a + a + "." + a, Mask + "." + Mask},
		{"aaaaaaaa", strings.Repeat("a", 20) + "b", Mask + "b"},
	} {
		secrets := secretsOf(strings.Fields(tt.secrets)...)
		for size := 1; size < 40; size++ {
			if got := string(through(New(secrets, false), []byte(tt.text), func() int { return size })); got != tt.want {
				t.Errorf("%q by %d: got %q, want %q", tt.text, size, got, tt.want)
			}
		}
	}
}

// What cannot become a secret any more is not held back.
func TestHeld(t *testing.T) {
	s := New(secretsOf("abcdefgh12345"), false).Stream()
	for _, step := range []struct{ in, out string }{{"prompt> ", "prompt> "}, {"abc", ""}, {"x", "abcx"}, {"abcdefgh1234", ""}, {"5", Mask}, {"a", ""}} {
		if got := string(s.Write(nil, []byte(step.in))); got != step.out {
			t.Errorf("after %q: got %q, want %q", step.in, got, step.out)
		}
	}
	if got := string(s.Close(nil)); got != "a" {
		t.Errorf("at the end: got %q, want a", got)
	}
}

// However many soft breaks a program writes, few bytes are held back for a form that
// may go across them.
func TestBreaksHoldLittle(t *testing.T) {
	const most = 4 << 10
	for _, repeated := range []string{"=\n", "=\r\n", "a=\n", "abcdefgh=\n", "abc=\ndefgh1=\r\n2=\n=\n"} {
		s := New(secretsOf("abcdefgh12345"), false).Stream()
		in, out := len("abc"), len(s.Write(nil, []byte("abc")))
		for range 20_000 {
			in, out = in+len(repeated), out+len(s.Write(nil, []byte(repeated)))
		}
		if held := in - out; held > most {
			t.Errorf("after many of %q: got %d bytes held back, want at most %d", repeated, held, most)
		}
		if n := len(s.secrets.joined.skips); n > most {
			t.Errorf("after many of %q: got %d breaks kept, want at most %d", repeated, n, most)
		}
	}
}

// A line that begins like one of a dump comes out when it cannot be one any more.
func TestPromptsAreNotHeld(t *testing.T) {
	for _, text := range []string{"1000 of 5000", "Added 3 packages, ", "2026: year", "1234 5 done", "0042 12.x", "cafe x"} {
		s := New(secretsOf("Sesame-open-19"), false).Stream()
		if got := string(s.Write(nil, []byte(text))); got != text {
			t.Errorf("after %q: got %q, want all of it", text, got)
		}
	}
}

func TestPartial(t *testing.T) {
	v := "0123456789abcdefABCDEF"
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"x" + v[:12], true},
		{"x" + v[:12] + "\n", true},
		{"x" + v[:7] + "\n", false},
		{v + v[:4], false},
		{v, false},
		{v[10:] + " rest", true},
		{" " + v[10:] + " rest", false},
		{v[15:], false},
		{v[:11] + "." + v[11:], true},
		{hex.EncodeToString([]byte(v))[:30], true},
	} {
		s := New(append(secretsOf("somethingelse"), Secret{"V", v}), false).Stream()
		s.Close(s.Write(nil, []byte(tt.text)))
		if got := slices.Contains(s.Partial(), "V"); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.text, s.Partial(), tt.want)
		}
	}
}

func TestLong(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 40_000)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	v := string(b)
	m := New(secretsOf(v), false)
	for name, text := range map[string]string{"raw": v, "hex": hex.EncodeToString(b), "base64": base64.StdEncoding.EncodeToString(b)} {
		out := string(through(m, []byte("<"+text+">"), func() int { return 1 + r.IntN(5000) }))
		if len(out) > len(Mask)+8 || !strings.HasPrefix(out, "<"+Mask) {
			t.Errorf("%s: got %d bytes, %.60q; want the mask alone", name, len(out), out)
		}
	}
	// A piece of it is masked from its first fingerprint on.
	if out := m.Text(v[2500:30000]); len(out) > 2600 {
		t.Errorf("a piece of the value: got %d bytes, want at most 2600", len(out))
	}
	pem := "-----BEGIN PRIVATE KEY-----\n" + v[:64] + "\n" + v[64:128] + "\n" + v[128:150] + "\n-----END PRIVATE KEY-----\n"
	if got, want := New(secretsOf(pem), false).Text("line: "+v[64:128]+"."), "line: "+Mask+"."; got != want {
		t.Errorf("a line of a key: got %q, want %q", got, want)
	}
}

// TestLongThatRepeatsItself: its fingerprint is found at each repetition. The work for
// one byte stays bounded all the same.
func TestLongThatRepeatsItself(t *testing.T) {
	v := strings.Repeat("0123456789abcdef", 4<<10)
	m := New(secretsOf(v), false)
	for _, text := range []string{v, v + v, "0123456789abcdef" + v} {
		s := m.Stream()
		out, most := []byte("<"), 0
		for part := range slices.Chunk([]byte(text), 500) {
			out = s.Write(out, part)
			most = max(most, len(s.secrets.follow))
		}
		out = append(s.Close(out), '>')
		if string(out) != "<"+Mask+">" || most > 1000 {
			t.Errorf("of %d bytes are left %.60q, with %d places of the secret followed at once; want the mask alone and at most 1000", len(text), out, most)
		}
	}
}

// fifty are secrets as large as their forms are looked for as a whole, with
// characters that make the forms differ.
func fifty() []Secret {
	r := rand.New(rand.NewPCG(3, 4))
	const chars = letters + `/+="'\ &<é`
	var values []string
	for range 50 {
		var b strings.Builder
		for b.Len() < exactBytes-1 {
			b.WriteString(string([]rune(chars)[r.IntN(len([]rune(chars)))]))
		}
		values = append(values, b.String())
	}
	return secretsOf(values...)
}

func TestSize(t *testing.T) {
	const most = 16 << 20
	m := New(fifty(), false)
	n := m.Bytes()
	t.Logf("50 secrets of %d bytes: %d nodes, %d bytes", exactBytes, len(m.auto.nodes), n)
	if n > most {
		t.Errorf("50 secrets of 64 bytes take %d bytes, want at most %d", n, most)
	}
	random := make([]Secret, 50)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range random {
		b := make([]byte, exactBytes)
		for k := range b {
			b[k] = byte(1 + r.IntN(255))
		}
		random[i] = Secret{strconv.Itoa(i), string(b)}
	}
	m = New(random, false)
	t.Logf("50 secrets of 64 random bytes: %d nodes, %d bytes", len(m.auto.nodes), m.Bytes())
	if n := m.Bytes(); n > most {
		t.Errorf("50 secrets of 64 random bytes take %d bytes, want at most %d", n, most)
	}
}

func TestJSON(t *testing.T) {
	m := New(secretsOf("12345678", `se"cret\value`), true)
	for in, want := range map[string]string{
		`{"a":[1,"x"],"b":1e400}`:              `{"a":[1,"x"],"b":1e400}`,
		`{"b":"\u0041","a":1}`:                 `{"b":"\u0041","a":1}`,
		`{"k":12345678}`:                       `{"k":"` + Mask + `"}`,
		`{"12345678":["a12345678b",true]}`:     `{"` + Mask + `":["a` + Mask + `b",true]}`,
		`["se\u0022cret\\value","me@host.de"]`: `["` + Mask + `","[EMAIL]"]`,
		`broken 12345678`:                      `"` + Mask + `"`,
	} {
		if got := string(m.JSON(json.RawMessage(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestPII(t *testing.T) {
	for in, want := range map[string]string{
		"kit@example.com +1 415 555 0123 4111 1111 1111 1111 078-05-1120\n": "[EMAIL] [PHONE] [CARD] [SSN]\n",
		"write to <a.b+c@mail.example.co.uk>, please":                       "write to <[EMAIL]>, please",
		"(415) 555-0123, 415-555-0123, +4915112345678, +44 20 7946 0958":    "[PHONE], [PHONE], [PHONE], [PHONE]",
		"5500005555555559 and 3782 822463 10005":                            "[CARD] and [CARD]",
		"4111 1111 1111 1112 is none, 1700000000 a time, 2026-11-22 a day":  "4111 1111 1111 1112 is none, 1700000000 a time, 2026-11-22 a day",
		"a@b, user@host, x1234567890123, 3.14159265358979, 10.0.0.1":        "a@b, user@host, x1234567890123, 3.14159265358979, 10.0.0.1",
		"900-12-3456 000-12-3456 123-45-6789":                               "900-12-3456 000-12-3456 [SSN]",
	} {
		if got := New(nil, true).Text(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		for size := 1; size < 30; size++ {
			if got := string(through(New(nil, true), []byte(in), func() int { return size })); got != want {
				t.Errorf("%q by %d: got %q, want %q", in, size, got, want)
			}
		}
	}
}

// FuzzStream holds a stream to the reference, for every way to split it; and
// nothing that is masked in one pass is found by a second one.
func FuzzStream(f *testing.F) {
	f.Add("hunter2hunter2", "longer-than-that/+", "a hunter2hunter2 b", uint64(1))
	f.Add("aaaaaaaa", "aaaaaaaaa", "aaaaaaaaaaaaaaaaabaaaaaaaa", uint64(2))
	f.Add("abcdefgh12", "gh12wxyz99", "abcdefgh12wxyz99", uint64(3))
	f.Add(strings.Repeat("0123456789abcdef", 6), "fghijklm", "x"+strings.Repeat("0123456789abcdef", 5)+"0123fghijklm", uint64(4))
	f.Add("\x00\xff12345678", "Ünïcödé wörd", "..", uint64(5))
	f.Add("=\n=\nsecret", "se=\nc=\r\nret", "=\n=\nsec=\n=\nret=\n=\r\n=\nse=\nc=\r\nret", uint64(7))
	f.Add("secret==with=", "x=\ny=\r\nz=abcd", "secret=\n==with=sec=\r\nret==\n=with==", uint64(6))
	f.Fuzz(func(t *testing.T, a, b, text string, seed uint64) {
		if len(a)+len(b) > 400 || len(text) > 4000 || strings.Contains(a+b, "*") {
			t.Skip()
		}
		secrets := secretsOf(a, b)
		r := rand.New(rand.NewPCG(seed, 0))
		body := []byte(text)
		for _, s := range secrets { // what is looked for, whole and cut, at random places
			for range 3 {
				if len(s.Value) < MinBytes {
					continue
				}
				all := variants(s.Value)
				v := all[r.IntN(len(all))]
				if r.IntN(3) == 0 {
					v = v[r.IntN(len(v)):]
				}
				if r.IntN(3) == 0 {
					v = v[:r.IntN(len(v)+1)]
				}
				for r.IntN(2) == 0 { // as mail breaks it
					i := r.IntN(len(v) + 1)
					v = v[:i] + []string{"=\n", "=\r\n", "=", "=\r"}[r.IntN(4)] + v[i:]
				}
				body = slices.Insert(body, r.IntN(len(body)+1), []byte(v)...)
			}
		}
		m := New(secrets, false)
		want := reference(secrets, body)
		for name, next := range map[string]func() int{"whole": func() int { return len(body) }, "bytes": func() int { return 1 }, "parts": func() int { return r.IntN(40) }} {
			if got := through(m, body, next); !bytes.Equal(got, want) {
				t.Fatalf("%s: %q and %q in %q:\n got %q\nwant %q", name, a, b, body, got, want)
			}
		}
		if got := m.Text(string(body)); got != string(want) {
			t.Fatalf("text: got %q, want %q", got, want)
		}
		if found := m.Find(body) != ""; found == bytes.Equal(want, body) {
			t.Fatalf("Find: got %v for %q, want what masking says", found, body)
		}
		for name, next := range map[string]func() int{"bytes": func() int { return 1 }, "parts": func() int { return r.IntN(40) }} {
			search := m.Search()
			for rest := body; m != nil && len(rest) > 0; {
				n := min(next(), len(rest))
				_, _ = search.Write(rest[:n])
				rest = rest[n:]
			}
			if found := search.Close() != ""; found == bytes.Equal(want, body) {
				t.Fatalf("Search in %s: got %v for %q, want what masking says", name, found, body)
			}
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1, 50} {
		secrets := fifty()[:n]
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				New(secrets, false)
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	words := strings.Fields("the quick brown fox jumps over a lazy dog import numpy as np result value 12345 0.25 {\"key\": \"value\"}, - = /usr/lib/python3")
	var text strings.Builder
	for text.Len() < 1<<20 {
		text.WriteString(words[r.IntN(len(words))] + " ")
		if r.IntN(12) == 0 {
			text.WriteByte('\n')
		}
	}
	raw := make([]byte, 1<<20)
	for i := range raw {
		raw[i] = byte(r.UintN(256))
	}
	secrets := fifty()
	var hostile bytes.Buffer // all but the end of secrets, time after time
	for hostile.Len() < 1<<20 {
		v := secrets[r.IntN(50)].Value
		hostile.WriteString(v[:len(v)-1])
	}
	for name, in := range map[string][]byte{"hostile": hostile.Bytes(), "text": []byte(text.String()), "base64": []byte(base64.StdEncoding.EncodeToString(raw[:768<<10])), "binary": raw, "zeros": make([]byte, 1<<20)} {
		for _, n := range []int{1, 50} {
			m := New(secrets[:n], false)
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) {
				b.SetBytes(int64(len(in)))
				s, out := m.Stream(), []byte(nil)
				for b.Loop() {
					for i := 0; i < len(in); i += 64 << 10 {
						out = s.Write(out[:0], in[i:min(i+64<<10, len(in))])
					}
				}
			})
		}
	}
}
