package server

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shownTypes are the types of files that a browser may display, with their extensions. All
// others are sent as downloads, because HTML, SVG, PDF and scripts can contain programs.
var shownTypes = map[string][]string{
	"image/png":        {".png"},
	"image/jpeg":       {".jpg", ".jpeg"},
	"image/gif":        {".gif"},
	"image/webp":       {".webp"},
	"text/plain":       {"", ".txt", ".text", ".log"},
	"text/csv":         {".csv"},
	"application/json": {".json"},
}

// presented returns the headers Content-Type and Content-Disposition of a file.
func presented(name, mimeType string, data []byte) (kind, disposition string) {
	kind = bareType(mimeType)
	disposition = "attachment"
	if slices.Contains(shownTypes[kind], strings.ToLower(path.Ext(name))) {
		disposition = "inline"
	}
	if strings.HasPrefix(kind, "text/") && utf8.Valid(data) {
		kind += "; charset=utf-8"
	}
	return kind, disposition + fileName(name)
}

// fileName returns the filename parameter of Content-Disposition in ASCII, and if characters
// were replaced also in the form of RFC 5987.
func fileName(name string) string {
	plain, exact := make([]byte, 0, len(name)), make([]byte, 0, len(name))
	lost := false
	for _, r := range name {
		switch {
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == utf8.RuneError, r == '/', r == '\\':
			r = '_' // could break the line, or reverse the extension on screen
		}
		if r < 0x80 && r != '"' && r != '%' {
			plain = append(plain, byte(r))
		} else {
			plain, lost = append(plain, '_'), true
		}
		for _, c := range []byte(string(r)) {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
				exact = append(exact, c)
			} else {
				exact = fmt.Appendf(exact, "%%%02X", c)
			}
		}
	}
	out := `; filename="` + string(plain) + `"`
	if lost {
		out += "; filename*=UTF-8''" + string(exact)
	}
	return out
}
