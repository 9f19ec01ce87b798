package redact

import (
	"encoding/hex"
	"fmt"
	"html"
	"mime/quotedprintable"
	"strings"
	"testing"
)

// dumpsOf are what common tools print of data, made by other means than decodeDump
// takes apart.
func dumpsOf(data []byte) map[string]string {
	var xxd, canonical, words, single, octal strings.Builder
	for at := 0; at < len(data); at += 16 {
		row := data[at:min(at+16, len(data))]
		text := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, string(row))
		fmt.Fprintf(&xxd, "%08x: ", at)
		fmt.Fprintf(&canonical, "%08x ", at)
		fmt.Fprintf(&words, "%07x", at)
		fmt.Fprintf(&single, "%07o", at)
		fmt.Fprintf(&octal, "%07o", at)
		for i, c := range row {
			fmt.Fprintf(&xxd, "%02x", c)
			if i%2 == 1 && i+1 < len(row) {
				xxd.WriteByte(' ')
			}
			if i == 8 {
				canonical.WriteByte(' ')
			}
			fmt.Fprintf(&canonical, " %02x", c)
			fmt.Fprintf(&single, " %02x", c)
			if word := int(c); i%2 == 0 {
				if i+1 < len(row) {
					word += int(row[i+1]) << 8
				}
				fmt.Fprintf(&words, " %04x", word)
				fmt.Fprintf(&octal, " %06o", word)
			}
		}
		fmt.Fprintf(&xxd, "  %s\n", text)
		fmt.Fprintf(&canonical, "  |%s|\n", text)
		words.WriteByte('\n')
		single.WriteByte('\n')
		octal.WriteByte('\n')
	}
	return map[string]string{"xxd": xxd.String(), "xxd -u": strings.ToUpper(xxd.String()), "hexdump -C": canonical.String(), "hexdump": words.String(), "od -tx1": single.String(), "od": octal.String()}
}

// A value is masked wherever it is in a dump, and no line has 8 bytes of it.
func TestDumpsAreMasked(t *testing.T) {
	for _, v := range []string{"Ab12cd34", "correct horse battery staple", strings.Repeat("xY7-", 16), "p@ss'w\"o\\r<d>&%$!\n\x01é"} {
		m := New(secretsOf(v), false)
		for before := range 18 {
			data := []byte(strings.Repeat("#", before) + v + strings.Repeat("~", 70))
			for name, text := range dumpsOf(data) {
				text = "a line\n" + text + "the end\n"
				got := m.Text(text)
				if !strings.HasPrefix(got, "a line\n") || !strings.HasSuffix(got, "the end\n") || !strings.Contains(got, Mask+"\n") {
					t.Errorf("%s of %q after %d bytes: got %q, want it masked", name, v, before, got)
				}
				var left []byte
				for line := range strings.Lines(got) {
					data, _ := decodeDump([]byte(line))
					left = append(left, data...)
				}
				for i := range len(v) - 3 {
					if strings.Contains(string(left), v[i:i+4]) {
						t.Errorf("%s of %q after %d bytes: got %q, which shows a part", name, v, before, got)
						break
					}
				}
				if m.Find([]byte(text)) == "" {
					t.Errorf("%s of %q after %d bytes: got nothing found, want the name", name, v, before)
				}
				for _, size := range []int{1, 7, 33} {
					if by := string(through(m, []byte(text), func() int { return size })); by != got {
						t.Errorf("%s by %d: got %q, want %q", name, size, by, got)
					}
				}
			}
		}
	}
}

// Lines that are like those of a dump stay as they are.
func TestWhatIsLikeADumpStays(t *testing.T) {
	m := New(secretsOf("hunter2-hunter2"), false)
	for _, text := range []string{
		"00000000: 6865 6c6c 6f0a                           hello.\n", "2026 11 22\n", "12345", "deadbeef: cafe\n", "1000 20\n2000 30\n", "face 12 34", "0000:\n", "abcd \n", "dead", "12345678901234567890 12\n",
	} {
		for _, size := range []int{1, 5, 1000} {
			if got := string(through(m, []byte(text), func() int { return size })); got != text {
				t.Errorf("by %d: got %q, want %q", size, got, text)
			}
		}
		if got := m.Find([]byte(text)); got != "" {
			t.Errorf("%q: got %s found, want nothing", text, got)
		}
	}
}

// The forms that ordinary tools give a value, as those tools make them.
func TestFormsOfOrdinaryTools(t *testing.T) {
	for _, v := range []string{`p@ss'w"o\r<d>&%$!`, `it's "all"=or nothing`, "Ünï'cödé \"wörd\" €5 😀", "line one\"\n\tline 'two'+", strings.Repeat(`x"Y'7&<é`, 6)} {
		m := New(secretsOf(v), false)
		mail := func(before string) string {
			var b strings.Builder
			w := quotedprintable.NewWriter(&b)
			_, _ = w.Write([]byte(before + v + strings.Repeat(" and more", 5)))
			_ = w.Close()
			return b.String()
		}
		number := func(form string) string {
			var b strings.Builder
			for _, r := range v {
				fmt.Fprintf(&b, form, r)
			}
			return b.String()
		}
		var cBytes []string
		for _, c := range []byte(v) {
			cBytes = append(cBytes, fmt.Sprintf("%02x", c))
		}
		replaced := func(form func(r rune) string) string {
			var b strings.Builder
			for _, r := range v {
				if r < 0x80 {
					b.WriteRune(r)
				} else {
					b.WriteString(form(r))
				}
			}
			return b.String()
		}
		backslash := func(r rune) string {
			switch {
			case r < 0x100:
				return fmt.Sprintf(`\x%02x`, r)
			case r < 0x10000:
				return fmt.Sprintf(`\u%04x`, r)
			}
			return fmt.Sprintf(`\U%08x`, r)
		}
		for name, form := range map[string]string{
			"CSV": strings.ReplaceAll(v, `"`, `""`), "SQL": strings.ReplaceAll(v, "'", "''"),
			"INI": strings.ReplaceAll(v, "%", "%%"), "C": strings.Join(cBytes, ", 0x"),
			"html.EscapeString":  html.EscapeString(v),
			"html.escape":        strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;").Replace(v),
			"an attribute":       strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", "&#10;", "\t", "&#09;").Replace(v),
			"another attribute":  strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "\n", "&#10;", "\t", "&#9;").Replace(v),
			"&apos;":             strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(v),
			"Go's xml":           strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "\n", "&#xA;", "\t", "&#x9;").Replace(v),
			"decimal references": number("&#%d;"),
			"hex references":     number("&#x%x;"),
			"HEX references":     number("&#x%X;"),
			"xmlcharrefreplace":  replaced(func(r rune) string { return fmt.Sprintf("&#%d;", r) }),
			"backslashreplace":   replaced(backslash),
			"xxd -p":             hex.EncodeToString([]byte(v))[:min(60, 2*len(v))],
		} {
			if name == "xxd -p" && 2*len(v) > 60 {
				continue
			}
			if got, want := m.Text("<"+form+">"), "<"+Mask+">"; got != want {
				t.Errorf("%s of %q: got %q, want %q", name, v, got, want)
			}
			if m.Find([]byte(form)) == "" {
				t.Errorf("%s of %q: got nothing found, want the name", name, v)
			}
		}
		for before := range 80 { // the line breaks at every place of it
			text := mail(strings.Repeat("b", before))
			got := m.Text(text)
			joined := strings.ReplaceAll(got, "=\r\n", "")
			if want := strings.Repeat("b", before) + Mask + " and more"; !strings.HasPrefix(joined, want) || m.Find([]byte(text)) == "" {
				t.Errorf("mail of %q after %d bytes: got %q, want %q first", v, before, got, want)
			}
		}
	}
}
