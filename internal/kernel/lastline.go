package kernel

import (
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
	line := lastLine(code)
	if line == "" || line[0] == ' ' || line[0] == '\t' || strings.ContainsAny(line, ";\\#") || strings.Contains(line, `"""`) || strings.Contains(line, "'''") {
		return false
	}
	depth, closedAt := 0, -1
	for i, c := range line {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth < 0 {
				return false // closes what an earlier line opened
			}
			if depth == 0 && closedAt < 0 {
				closedAt = i
			}
		}
	}
	if depth != 0 {
		return false
	}
	if strings.HasPrefix(line, "print(") {
		return closedAt == len(line)-1
	}
	word, rest, _ := strings.Cut(line, " ")
	return slices.Contains(statements, word) || isName(word) && strings.HasPrefix(rest, "= ")
}

func lastLine(code string) string {
	for {
		code = strings.TrimRight(code, " \t\r\n\f")
		i := strings.LastIndexByte(code, '\n')
		line := code[i+1:]
		if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") || i < 0 {
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
