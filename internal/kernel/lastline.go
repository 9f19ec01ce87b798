package kernel

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// statements are words that begin a statement without a value.
var statements = []string{
	"import", "from", "pass", "raise", "assert", "del", "global", "nonlocal",
}

// endsQuietly reports whether a Python program certainly ends with a statement that has
// no value to show: a call of print, an assignment, an import. If it is not certain, it
// returns false. Showing a value needs a syntax tree, which takes a tenth of a small
// program's time, and most programs end with print.
func endsQuietly(code string) bool {
	line := lastLine(code, "#")
	if line == "" || line[0] == ' ' || line[0] == '\t' || strings.ContainsAny(line, ";\\#") || strings.Contains(line, `"""`) || strings.Contains(line, "'''") {
		return false
	}
	closedAt, ok := brackets(line)
	if !ok {
		return false
	}
	if strings.HasPrefix(line, "print(") {
		return closedAt == len(line)-1
	}
	word, rest, _ := strings.Cut(line, " ")
	return slices.Contains(statements, word) || isName(word) && strings.HasPrefix(rest, "= ")
}

// endsQuietlyJS is endsQuietly for JavaScript. It returns true if the last line calls the
// console. It also returns true for code with an import: such code cannot be evaluated as
// a script, so its value cannot be shown.
func endsQuietlyJS(code string) bool {
	line := strings.TrimRight(lastLine(code, "//"), "; \t")
	closedAt, ok := brackets(line)
	return strings.HasPrefix(line, "console.") && ok && closedAt == len(line)-1 || imports().MatchString(code)
}

var imports = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bimport\b`) })

// brackets returns where the first outermost bracket of a line closes, or -1. ok is false
// if the brackets of the line are not balanced.
func brackets(line string) (closedAt int, ok bool) {
	depth, closedAt := 0, -1
	for i, c := range line {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth < 0 {
				return closedAt, false
			}
			if depth == 0 && closedAt < 0 {
				closedAt = i
			}
		}
	}
	return closedAt, depth == 0
}

// lastLine returns the last line that is not empty and not a comment.
func lastLine(code, comment string) string {
	for {
		code = strings.TrimRight(code, " \t\r\n\f")
		i := strings.LastIndexByte(code, '\n')
		line := code[i+1:]
		if !strings.HasPrefix(strings.TrimLeft(line, " \t"), comment) || i < 0 {
			return line
		}
		code = code[:i]
	}
}

func isName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
