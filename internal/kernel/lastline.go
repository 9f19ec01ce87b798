package kernel

import (
	"regexp"
	"slices"
	"strings"
)

// statements begin lines that are no expression and whose value nobody wants.
var statements = []string{
	"import", "from", "pass", "raise", "assert", "del", "global", "nonlocal",
}

// endsQuietly reports whether a program's last line is, beyond doubt, a whole
// statement without a value to show: a call of print, an assignment, an import.
// Showing a value needs a syntax tree, which takes a tenth of a small program's
// time; most programs end by print. When in doubt it says no.
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

// endsQuietlyJS is the same for JavaScript: its last line calls the console. What
// imports has no value either, for a script may not, or not without a warning.
func endsQuietlyJS(code string) bool {
	line := strings.TrimRight(lastLine(code, "//"), "; \t")
	closedAt, ok := brackets(line)
	return strings.HasPrefix(line, "console.") && ok && closedAt == len(line)-1 || imports.MatchString(code)
}

var imports = regexp.MustCompile(`\bimport\b`)

// brackets is where the first outer bracket of a line closes, -1 where there is
// none. It is not ok when the line closes what it did not open, or leaves one open.
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

// lastLine is the last line of code that has more than a comment.
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
