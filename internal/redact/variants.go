package redact

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// lineBytes is the length of the shortest line of a value that is masked on its own.
const lineBytes = 16

// variants returns the forms of a value, without duplicates, the value itself first.
func variants(v string) []string {
	all := []string{v, strings.ToUpper(v), strings.ToLower(v), mapASCII(v, 'a', 'z', -0x20), mapASCII(v, 'A', 'Z', 0x20)}
	all = append(all, otherCases(v)...)
	all = append(all, backwards(v)...)
	all = append(all, encodedBase64(v)...)
	all = append(all, asNumbers(v)...)
	for _, wide := range widened(v) {
		all = append(all, wide, pythonBytes(wide), strings.ReplaceAll(pythonBytes(wide), "'", `\'`))
	}
	all = append(all, percentEncoded(v)...)
	all = append(all, escapedJSON(v)...)
	all = append(all, escapedWhole(v)...)
	all = append(all, quotedBySource(v)...)
	all = append(all, strings.ReplaceAll(v, `"`, `""`), strings.ReplaceAll(v, "'", "''")) // CSV, SQL
	all = append(all, strings.ReplaceAll(v, "%", "%%"))                                   // INI files, formats of printf
	all = append(all, escapedMarkup(v)...)
	all = append(all, pythonEscapes(v)...)
	if utf8.ValidString(v) {
		all = append(all, strings.ReplaceAll(quotedPrintable(v, "_?"), " ", "_")) // mail headers
	}
	if strings.Contains(v, "\n") { // with CR LF line ends
		wide := strings.ReplaceAll(strings.ReplaceAll(v, "\r\n", "\n"), "\n", "\r\n")
		all = append(all, wide, quotedPrintable(wide, ""))
	}
	if strings.Contains(strings.TrimSpace(v), "\n") {
		for line := range strings.SplitSeq(v, "\n") {
			if line = strings.TrimSpace(line); len(line) >= lineBytes && !strings.HasPrefix(line, "-----") {
				all = append(all, line)
			}
		}
	}
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(s string) bool {
		double := seen[s] || len(s) < MinBytes
		seen[s] = true
		return double
	})
}

func mapASCII(s string, from, to byte, by int) string {
	b := []byte(s)
	for i, c := range b {
		if c >= from && c <= to {
			b[i] = byte(int(c) + by)
		}
	}
	return string(b)
}

// otherCases returns the value in title case, with swapped case, and capitalized.
func otherCases(v string) []string {
	word := false // the previous rune is a letter
	title := strings.Map(func(r rune) rune {
		first := !word
		if word = unicode.IsLetter(r); word && first {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, v)
	exchanged := strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, v)
	_, n := utf8.DecodeRuneInString(v)
	return []string{title, exchanged, strings.ToUpper(v[:n]) + strings.ToLower(v[n:])}
}

// asNumbers returns the value's bytes as hex, with and without separators, broken into
// lines and as a list of C, and as lists of decimal numbers.
func asNumbers(v string) []string {
	small := hex.EncodeToString([]byte(v))
	large := strings.ToUpper(small)
	all := []string{small, large}
	for _, between := range []string{" ", ":"} {
		all = append(all, apart(small, 2, between), apart(large, 2, between))
	}
	if len(small) > xxdLine {
		all = append(all, apart(small, xxdLine, "\n"))
	}
	decimals := make([]string, len(v))
	for i := range len(v) {
		decimals[i] = strconv.Itoa(int(v[i]))
	}
	return append(all, apart(small, 2, ", 0x"), strings.Join(decimals, ","), strings.Join(decimals, ", "))
}

// Line lengths of encoders, in characters.
const (
	xxdLine  = 60
	mimeLine = 76
	pemLine  = 64
)

// apart inserts a separator after every n bytes.
func apart(s string, n int, between string) string {
	var parts []string
	for part := range slices.Chunk([]byte(s), n) {
		parts = append(parts, string(part))
	}
	return strings.Join(parts, between)
}

// backwards returns the value reversed, by bytes and by characters.
func backwards(v string) []string {
	b := []byte(v)
	slices.Reverse(b)
	r := []rune(v)
	slices.Reverse(r)
	if !utf8.ValidString(v) {
		return []string{string(b)}
	}
	return []string{string(b), string(r)}
}

// encodedBase64 returns the base64 digits that encode only bytes of the value, for each
// alignment: after zero, one or two other bytes. It also returns the base64 of the value
// alone, broken into the lines of mail and of PEM, and its base32.
func encodedBase64(v string) []string {
	var all []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			whole := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + v))
			whole = whole[(8*before+5)/6 : 8*(before+len(v))/6]
			all = append(all, whole)
			if before == 0 {
				all = append(all, enc.EncodeToString([]byte(v))) // with the last digit, which may also encode bits of a following byte
			}
			for _, line := range []int{mimeLine, pemLine} {
				if before == 0 && len(whole) > line {
					all = append(all, apart(whole, line, "\n"))
				}
			}
		}
	}
	b32 := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(v))
	return append(all, b32, strings.ToLower(b32), b32[:8*len(v)/5], strings.ToLower(b32[:8*len(v)/5]))
}

// widened returns the value in UTF-16, little-endian and big-endian.
func widened(v string) []string {
	var little, big []byte
	units := utf16.Encode([]rune(v))
	if !utf8.ValidString(v) {
		units = units[:0]
		for i := range len(v) {
			units = append(units, uint16(v[i]))
		}
	}
	for _, u := range units {
		little, big = append(little, byte(u), byte(u>>8)), append(big, byte(u>>8), byte(u))
	}
	return []string{string(little), string(big)}
}

const (
	letters    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	unreserved = letters + "-._~"
)

// percentEncoded returns the value in percent-encoding: of every byte, and as encoded by
// Python's quote and quote_plus, JavaScript's encodeURIComponent and encodeURI, browsers'
// forms, Go and Java.
func percentEncoded(v string) []string {
	var all []string
	for _, digits := range []string{"%%%02X", "%%%02x"} {
		for _, keep := range []string{"", unreserved, unreserved + "/", unreserved + "!'()*", unreserved + ";,/?:@&=+$#!'()*", unreserved + "$&+=:@", letters + "-._*", letters + "@*_+-./", unreserved + "!$&'()*+,/:;=@[]|^%"} {
			var b strings.Builder
			for i := range len(v) {
				if strings.IndexByte(keep, v[i]) >= 0 {
					b.WriteByte(v[i])
				} else {
					fmt.Fprintf(&b, digits, v[i])
				}
			}
			all = append(all, b.String())
			if keep != "" && strings.Contains(v, " ") {
				all = append(all, strings.ReplaceAll(b.String(), "%20", "+"))
			}
		}
	}
	return all
}

// escapedJSON returns the value as a part of a JSON string, as several encoders write it,
// and as a part of a JSON string within a JSON string.
func escapedJSON(v string) []string {
	var all []string
	for _, ascii := range []string{"", `\u%04x`, `\u%04X`} {
		for _, special := range []string{"", "/", "<>&", "<>&'", "/<>&"} {
			all = append(all, stringJSON(v, ascii, special))
		}
	}
	return append(all, stringJSON(stringJSON(v, "", ""), "", ""), stringJSON(stringJSON(v, `\u%04x`, ""), "", ""))
}

// stringJSON escapes what JSON requires. If ascii is not empty, it also escapes characters
// beyond ASCII in that format. A slash in special gets a backslash; other characters of
// special are escaped by number.
func stringJSON(v, ascii, special string) string {
	var b strings.Builder
	for _, r := range v {
		short := strings.IndexRune("\"\\\b\f\n\r\t", r)
		switch {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\bfnrt`[short])
		case r == '/' && strings.Contains(special, "/"):
			b.WriteString(`\/`)
		case r < ' ' || r == 0x7f && ascii != "" || strings.ContainsRune(special, r):
			fmt.Fprintf(&b, `\u%04x`, r)
		case r >= utf8.RuneSelf && ascii != "":
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, ascii, u)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapedWhole returns the value with every character, or every byte, escaped by number.
func escapedWhole(v string) []string {
	var all []string
	for _, form := range []string{`\u%04x`, `\u%04X`} {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(v)) {
			fmt.Fprintf(&b, form, u)
		}
		all = append(all, b.String())
	}
	for _, form := range []string{`\x%02x`, `\x%02X`} {
		var b strings.Builder
		for i := range len(v) {
			fmt.Fprintf(&b, form, v[i])
		}
		all = append(all, b.String())
	}
	return all
}

// quotedBySource returns the value as programming languages, shells and mail quote it.
func quotedBySource(v string) []string {
	escape := func(s, chars string) string { // by a backslash
		var b strings.Builder
		for i := range len(s) {
			if strings.IndexByte(chars, s[i]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(s[i])
		}
		return b.String()
	}
	slash := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	goQuoted, _ := json.Marshal(v) //nolint:errchkjson // a string
	return []string{
		slash.Replace(v), escape(slash.Replace(v), "'"), escape(slash.Replace(v), `"`), // Python, JavaScript
		pythonBytes(v), escape(pythonBytes(v), "'"),
		strings.ReplaceAll(v, "'", `'\''`), strings.ReplaceAll(v, "'", `'"'"'`), // shells
		escape(v, "\"$`\\"), escape(v, " \t!\"#$&'()*,;<>?[\\]^`{|}~"), escape(v, " \t!\"$&'()*,;<>?[\\]^`{|}"),
		pythonASCII(v), strings.ReplaceAll(pythonASCII(v), "'", `\'`),
		quotedPrintable(v, ""), quotedPrintable(v, "\n\r\t"),
		string(goQuoted[1 : len(goQuoted)-1]),
	}
}

// pythonASCII encodes the value like Python's ascii() and unicode_escape.
func pythonASCII(v string) string {
	var b strings.Builder
	for _, r := range v {
		if r < utf8.RuneSelf {
			b.WriteString(pythonBytes(string(r)))
		} else {
			b.WriteString(pythonEscape(r))
		}
	}
	return b.String()
}

// pythonEscape returns the escape that Python writes for a character.
func pythonEscape(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	default:
		return fmt.Sprintf(`\U%08x`, r)
	}
}

// escapedMarkup returns the value as text and as an attribute value of XML and HTML, as
// several encoders write it, and with every character as a numeric reference.
func escapedMarkup(v string) []string {
	var all []string
	none := [3]string{"\n", "\r", "\t"}
	for _, e := range []struct {
		quote, single, greater string
		blanks                 [3]string // newline, carriage return, tab
	}{
		{`"`, "'", "&gt;", none},           // text content
		{"&quot;", "&#x27;", "&gt;", none}, // Python's html
		{"&#34;", "&#39;", "&gt;", none},   // Go's html, Jinja
		{"&quot;", "&#39;", "&gt;", none},  // JavaScript, .NET
		{"&quot;", "&#039;", "&gt;", none}, // PHP
		{"&quot;", "&apos;", "&gt;", none}, // Java, Rust
		{"&quot;", "'", "&gt;", none},      // JavaScript, libxml2
		{"&quot;", "'", ">", none},
		{"&quot;", "'", "&gt;", [3]string{"&#10;", "&#13;", "&#9;"}},     // attributes of libxml2 and Python's sax
		{"&quot;", "'", "&gt;", [3]string{"&#10;", "&#13;", "&#09;"}},    // attributes of Python's ElementTree
		{"&#34;", "&#39;", "&gt;", [3]string{"&#xA;", "&#xD;", "&#x9;"}}, // Go's xml
	} {
		if len(all) == 3 && !utf8.ValidString(v) { // values that are not text need only the first encoders
			return all
		}
		text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", e.greater, `"`, e.quote, "'", e.single, "\n", e.blanks[0], "\r", e.blanks[1], "\t", e.blanks[2]).Replace(v)
		all = append(all, text)
		if utf8.ValidString(v) {
			all = append(all, byNumber(text, "&#%d;", utf8.RuneSelf))
		}
	}
	plus := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", "+", "&#43;") // Go's templates
	all = append(all, plus.Replace(v), byNumber(v, "&#%d;", utf8.RuneSelf))
	for _, form := range []string{"&#%d;", "&#x%x;", "&#x%X;"} {
		all = append(all, byNumber(v, form, 0))
	}
	return all
}

// byNumber formats every character from a given one on by its number.
func byNumber(v, form string, from rune) string {
	var b strings.Builder
	for _, r := range v {
		if r < from {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, form, r)
		}
	}
	return b.String()
}

// pythonEscapes encodes the value like Python's error handler backslashreplace, which keeps
// ASCII and escapes characters that the encoding lacks, or single bytes.
func pythonEscapes(v string) []string {
	replaced := func(ascii rune) string {
		var b strings.Builder
		for _, r := range v {
			if r < ascii {
				b.WriteRune(r)
			} else {
				b.WriteString(pythonEscape(r))
			}
		}
		return b.String()
	}
	var bytes strings.Builder
	for i := range len(v) {
		if v[i] < utf8.RuneSelf {
			bytes.WriteByte(v[i])
		} else {
			fmt.Fprintf(&bytes, `\x%02x`, v[i])
		}
	}
	if !utf8.ValidString(v) {
		return []string{bytes.String()}
	}
	quoted := strings.ReplaceAll(replaced(utf8.RuneSelf), `"`, `\"`)
	return []string{replaced(utf8.RuneSelf), replaced(0x100), bytes.String(), quoted, strings.ReplaceAll(replaced(utf8.RuneSelf), "'", `\'`)}
}

// quotedPrintable encodes the value for mail. Characters in special are also encoded,
// except newline, carriage return and tab, which are encoded unless they are in special.
func quotedPrintable(v, special string) string {
	var b strings.Builder
	for i := range len(v) {
		c := v[i]
		named := strings.IndexByte(special, c) >= 0
		if blank := c == '\n' || c == '\r' || c == '\t'; c == '=' || c >= 0x7f || blank && !named || c < ' ' && !blank || !blank && named {
			fmt.Fprintf(&b, "=%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// pythonBytes encodes the value like Python's repr of bytes.
func pythonBytes(v string) string {
	var b strings.Builder
	for i := range len(v) {
		switch c := v[i]; {
		case c == '\\':
			b.WriteString(`\\`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
