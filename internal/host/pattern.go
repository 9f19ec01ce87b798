package host

import (
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// Pattern is a command that a person can allow, word by word. A word that is a lone * stands
// for one word that is no flag.
type Pattern struct{ text string }

// ParsePattern parses a pattern. Its first word is the name of a program. A program that can
// execute others, or code of its directory, has no free words. ParsePattern fails with invalid_argument.
func ParsePattern(text string) (Pattern, error) {
	words, free, err := parse(strings.TrimSpace(text), true)
	if err != nil {
		return Pattern{}, err
	}
	if free[0] {
		return Pattern{}, refusedLine("* alone would mean every program")
	}
	var b []string
	for i, w := range words {
		if free[i] && Warning(words) != "" {
			return Pattern{}, freeWords()
		}
		if free[i] {
			b = append(b, "*")
			continue
		}
		if i == 0 {
			b = append(b, Line([]string{w}))
		} else {
			b = append(b, quotedWord(w))
		}
	}
	p := Pattern{strings.Join(b, " ")}
	again, stars := p.words()
	switch {
	case !slices.Equal(again, words) || !slices.Equal(stars, free):
		return Pattern{}, refusedLine("it cannot be written in the usual form")
	case len(p.text) > maxPattern:
		return Pattern{}, refusedLine("it is too long for a person to read")
	case strings.Contains(p.text, "`"):
		return Pattern{}, refusedLine("it contains a backquote, and what follows might be read as a command of this program")
	case strings.Contains(strings.ReplaceAll(p.text, "\t", blanks), blanks):
		return Pattern{}, refusedLine("it contains many blanks in a row, and a person might not see what follows")
	}
	return p, nil
}

func freeWords() error {
	return refusedLine("a program that can execute others, or code of its directory, needs every word")
}

// A person has to see all of a pattern.
const (
	maxPattern = 2000 // bytes
	blanks     = "        "
)

// String returns the pattern in the syntax of [ParsePattern].
func (p Pattern) String() string { return p.text }

// words returns the words of a pattern.
func (p Pattern) words() (words []string, free []bool) {
	words, free, _ = parse(p.text, true)
	return words, free
}

// matches reports whether a command is one that the pattern allows.
func (p Pattern) matches(command []string) bool {
	words, free := p.words()
	if len(words) != len(command) {
		return false
	}
	for i, w := range command {
		if free[i] && !strings.HasPrefix(w, "-") && w != "" {
			continue
		}
		if free[i] || w != words[i] {
			return false
		}
	}
	return true
}

// Covers reports whether the pattern allows every command that another one does.
func (p Pattern) Covers(other Pattern) bool {
	words, free := p.words()
	theirs, starred := other.words()
	if len(words) != len(theirs) || len(words) == 0 {
		return false
	}
	for i := range words {
		switch {
		case free[i] && (starred[i] || theirs[i] != "" && theirs[i][0] != '-'):
		case free[i] || starred[i] || words[i] != theirs[i]:
			return false
		}
	}
	return true
}

// kind describes patterns to the gate.
func kind() gate.Kind[Pattern] {
	return gate.Kind[Pattern]{
		Name: "host", Member: "pattern",
		Field: func(sub *sandboxmcp.Subject) *string { return &sub.Pattern },
		Parse: ParsePattern,
		Asked: "host_access", Opened: "host_access", Denied: "host_access", Refused: sandboxmcp.CodeHostAccessDenied,
		Noun: "host command", Closed: "every host command is closed", Command: "host access", Retry: "run the command again", Setting: "host_allowed_commands",
		Grant: func(text string) string { return "host access approve " + sandboxmcp.ShellQuote(text) },
		Off:   disabled, OffHow: "host access is turned off by the operator (enable_host_access)",
	}
}

// disabled is the error of every act while host access is off.
func disabled() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeHostAccessDisabled, "host access is off").
		WithHint("an operator turns it on: enable_host_access (SANDBOXMCP_HOST_ACCESS=true)")
}
