package host

import (
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of a command.
const (
	maxWords   = 1024
	maxCommand = 64 << 10 // bytes of all words
	maxLine    = 16 << 10 // bytes of a command line
)

// Words parses a command line into its words. It accepts one simple command of literal words.
// Anything that a shell would expand, redirect, assign or run on its own fails with
// invalid_argument.
func Words(line string) ([]string, error) {
	words, _, err := parse(line, false)
	return words, err
}

// parse is [Words]. With stars a word may be a lone *, which stands for any word; free marks
// these words.
func parse(line string, stars bool) (words []string, free []bool, err error) {
	call, err := simple(line)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range call.Args {
		text, ok := literal(w.Parts, false)
		star := !ok && stars && w.Lit() == "*"
		if !ok && !star {
			return nil, nil, refusedLine("a shell would expand one of its words")
		}
		if star {
			text = "*"
		}
		words, free = append(words, text), append(free, star)
	}
	return words, free, CheckWords(words)
}

// simple parses a line that is one simple command.
func simple(line string) (*syntax.CallExpr, error) {
	if len(line) > maxLine {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the command has %d bytes; at most %d are allowed", len(line), maxLine).
			WithHint("give its words in argv")
	}
	if strings.ContainsFunc(line, hidden) {
		return nil, refusedLine(unseen)
	}
	if nested(line) {
		return nil, refusedLine("a shell would expand or group it")
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil, refusedLine("it cannot be parsed")
	}
	if len(file.Stmts) != 1 || len(file.Last) > 0 {
		return nil, refusedLine("it has to be one command")
	}
	s := file.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	switch {
	case len(s.Comments) > 0:
		return nil, refusedLine("it contains a comment")
	case !ok || s.Negated || s.Background || s.Coprocess || s.Semicolon.IsValid():
		return nil, refusedLine("it has to be one simple command")
	case len(s.Redirs) > 0:
		return nil, refusedLine("it redirects a stream")
	case len(call.Assigns) > 0:
		return nil, refusedLine("it assigns a variable")
	}
	return call, nil
}

// CheckWords checks words that were given as they are. It fails with invalid_argument.
func CheckWords(words []string) error {
	n := 0
	for _, w := range words {
		n += len(w) + 1
		if strings.ContainsFunc(w, hidden) {
			return refusedLine(unseen)
		}
	}
	switch {
	case len(words) == 0 || words[0] == "":
		return refusedLine("it is empty")
	case len(words) > maxWords || n > maxCommand:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the command has %d words of %d bytes; at most %d and %d are allowed", len(words), n, maxWords, maxCommand)
	}
	return nil
}

func refusedLine(why string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the command is refused: %s", why).
		WithHint("there is no shell: give one program and its literal words, quoted if need be, or argv")
}

// control reports whether a command may not contain a character.
func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == '\uFFFD' }

const unseen = "it contains a control character, or one that a person does not see"

// hidden reports whether a command may not contain a character because a person who allows it
// would not see it, would see it as a blank, or would see the text in another order.
func hidden(r rune) bool {
	return control(r) || r > unicode.MaxASCII && (unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector) || sandboxmcp.Blank(r))
}

// nested reports whether a line contains an unquoted character that can open a level of the
// shell's grammar. No literal word has one. Without them the parser's depth is bounded.
func nested(line string) bool {
	var quote byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '\'':
			if c == quote {
				quote = 0
			}
		case c == '\\':
			i++
		case c == '$' || c == '`':
			return true
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && strings.IndexByte("(){}", c) >= 0:
			return true
		}
	}
	return false
}

// literal returns the text of a word that means itself.
func literal(parts []syntax.WordPart, inQuotes bool) (string, bool) {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			text, ok := unescape(p.Value, inQuotes)
			if !ok {
				return "", false
			}
			b.WriteString(text)
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			text, ok := literal(p.Parts, true)
			if p.Dollar || !ok {
				return "", false
			}
			b.WriteString(text)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// unescape removes the backslashes of a literal. ok is false if a shell would change the text:
// if it has a glob, or begins with a tilde.
func unescape(s string, inQuotes bool) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 == len(s):
			return "", false
		case c == '\\' && (!inQuotes || strings.IndexByte("$`\"\\", s[i+1]) >= 0):
			i++
			c = s[i]
		case inQuotes:
		case strings.IndexByte("*?[", c) >= 0, c == '~' && i == 0:
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// Line returns words as a command line, quoted where a shell would change them.
func Line(words []string) string {
	quoted := make([]string, 0, len(words))
	for i, w := range words {
		q := quotedWord(w)
		if i == 0 && q == w && !commandWord(w) { // a shell would take "A=b" for an assignment, and "if" for a keyword
			q = "'" + w + "'"
		}
		quoted = append(quoted, q)
	}
	return strings.Join(quoted, " ")
}

// commandWord reports whether a shell takes a word without quotes for a command.
func commandWord(w string) bool {
	_, err := simple(w)
	return err == nil
}

// quotedWord returns a word of a command line, quoted if a shell would change it. The first word may need quotes for more, see Line.
func quotedWord(w string) string {
	if w == "" {
		return "''"
	}
	return sandboxmcp.ShellQuote(w)
}
