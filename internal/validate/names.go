package validate

import (
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// The first parser of Node.js code keeps for each scope an entry for every name that is used in it
// or deeper, of about 130 bytes. maxNamed bounds the entries; parserScopes is how many scopes can be
// open at once, because the parser bounds the depth.
const (
	maxNamed     = 1 << 20
	parserScopes = 2000
)

// crowded reports whether a program may have so many names in so many nested scopes that parsing it
// takes too much memory. An estimate by its characters comes first, because most programs are small.
func crowded(code string) bool {
	n := names(code)
	opened := strings.Count(code, "{") + strings.Count(code, "(") + strings.Count(code, "[") + strings.Count(code, "=>") + strings.Count(code, "for") + strings.Count(code, "`")
	if n*(1+min(opened, parserScopes)) <= maxNamed {
		return false
	}
	d, sure := scopes(tokens(code))
	return !sure || n*(1+d) > maxNamed
}

// names returns at least the number of different names of a program. A name may have escapes, such
// as \u{61}.
func names(code string) int {
	all := map[string]struct{}{}
	begin, braced := -1, false
	for i := range len(code) + 1 {
		word := false
		if i < len(code) {
			c := code[i]
			word = c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '\\' || c >= 0x80
			switch {
			case c == '{' && begin >= 0 && strings.HasSuffix(code[begin:i], `\u`):
				word, braced = true, true
			case c == '}' && braced:
				word, braced = true, false
			}
		}
		switch {
		case word && begin < 0:
			begin = i
		case !word && begin >= 0:
			all[code[begin:i]] = struct{}{}
			begin, braced = -1, false
		}
	}
	return len(all)
}

// open is a bracket, an arrow or a loop that has not ended. It may have a scope.
type open struct {
	kind   byte // its character; '>' an arrow, 'f' a loop, '$' a part of a template
	header bool // it follows a word such as if, so that a slash after it begins a regular expression
}

// scopes returns how many scopes of a program are open at once at most, or more. sure is false if
// a slash can be a division or begin a regular expression, which may contain brackets.
func scopes(all []token) (most int, sure bool) {
	closes := map[string]byte{"}": '{', ")": '(', "]": '['}
	var stack []open
	header := false // the last token is a bracket that ends a header
	leave := func(kind byte) bool {
		for len(stack) > 0 {
			last := stack[len(stack)-1]
			if last.kind != kind && last.kind != '>' && last.kind != 'f' {
				return false
			}
			stack = stack[:len(stack)-1]
			if last.kind == kind {
				header = last.header
				return true
			}
		}
		return false
	}
	for i, t := range all {
		before := all[max(0, i-2):i]
		if (t.kind == js.DivToken || t.kind == js.DivEqToken || t.kind == js.RegExpToken) && (header || unclear(before)) {
			return 0, false
		}
		header = false
		switch {
		case t.kind == js.TemplateStartToken:
			stack = append(stack, open{kind: '$'})
		case t.kind == js.TemplateEndToken, t.kind == js.TemplateMiddleToken:
			if !leave('$') {
				return 0, false
			}
			if t.kind == js.TemplateMiddleToken {
				stack = append(stack, open{kind: '$'})
			}
		case t.kind == js.StringToken, t.kind == js.TemplateToken, t.kind == js.RegExpToken:
		case t.text == "{", t.text == "[", t.text == "(":
			word := len(before) > 0 && slices.Contains([]string{"if", "while", "for", "with", "await"}, before[len(before)-1].text)
			stack = append(stack, open{t.text[0], word})
		case t.text == "=>":
			stack = append(stack, open{kind: '>'})
		case t.text == "for":
			stack = append(stack, open{kind: 'f'})
		case t.text == ";": // an arrow cannot contain it
			for len(stack) > 0 && stack[len(stack)-1].kind == '>' {
				stack = stack[:len(stack)-1]
			}
		case closes[t.text] != 0:
			if !leave(closes[t.text]) {
				return 0, false
			}
		}
		most = max(most, len(stack))
	}
	return most, true
}

// unclear reports whether a slash after these tokens can mean either.
func unclear(before []token) bool {
	if len(before) == 0 {
		return false
	}
	last := before[len(before)-1]
	if len(before) > 1 && js.IsReservedWord(last.kind) && strings.HasSuffix(before[0].text, ".") {
		return true
	}
	return slices.Contains([]string{"}", "++", "--", "yield", "await", "of", "let", "async"}, last.text)
}
