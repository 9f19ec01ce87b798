package note

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// Source is a program, and where it could not be parsed.
type Source struct {
	Code      string
	Line, Col int // from 1; 0: not known
}

// maxQuoted is how many characters of a line of code a note has.
const maxQuoted = 120

// syntax names the line that could not be parsed, and the language that the program may be of.
func (r *Run) syntax() string {
	said := ""
	if line, ok := r.Source.line(); ok {
		at := fmt.Sprintf("Line %d", r.Source.Line)
		if r.Source.Col > 0 {
			at += fmt.Sprintf(", column %d", r.Source.Col)
		}
		if len(line) > maxQuoted {
			line = strings.ToValidUTF8(line[:maxQuoted], "") + "…"
		}
		said = at + ": " + sandboxmcp.Quote(line)
	}
	return strings.TrimSpace(said + " " + r.otherLanguage())
}

// line returns the line that could not be parsed.
func (s Source) line() (string, bool) {
	lines := strings.Split(s.Code, "\n")
	if s.Line < 1 || s.Line > len(lines) {
		return "", false
	}
	line := strings.TrimSpace(lines[s.Line-1])
	return line, line != "" && utf8.ValidString(line)
}

// Words of programs that other languages do not parse. They are looked for only in a program that
// has failed.
var (
	ofNode = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^\s*(?:const|let|var)\s+[\w$\[{][^=\n]*=|^\s*(?:async\s+)?function\b[^\n]*\{|^\s*import\s[^\n]*\sfrom\s+['"]|\bconsole\.(?:log|error)\(|\brequire\(['"]|=>\s*[{(\w]`)
	})
	ofPython = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(?:async\s+)?def\s+\w+\(|^(?:from\s+[\w.]+\s+)?import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*\w+)*\s*$|^\s*print\(|^\s*(?:for|while|if|elif|with|class|try|else)\b[^\n{;]*:\s*$`)
	})
	ofShell = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*(?:\$\s+)?(?:sudo|echo|ls|cd|cat|grep|mkdir|rm|cp|mv|curl|wget|export|apt|apt-get|pip|pip3|npm|npx|git|chmod|sed|awk|find|tar|set -\w+|for \w+ in [^:]+;|if \[|while \[)(?:\s+[^=(.\s]|\s*$)`)
	})
	shebang = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^#![^\n]*?\b(python|node|bash|zsh|dash|ksh|sh)[\d.]*\b`)
	})
	cellLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*[%!]+\s*\w`) })
)

// otherLanguage returns the language of a program that its interpreter could not parse; empty: its
// own, or it is not known.
func (r *Run) otherLanguage() string {
	code := r.Source.Code
	line, _ := r.Source.line()
	if r.Result.Language == sandboxmcp.Python && !r.Session && cellLine().MatchString(line) {
		return "Lines that begin with % or ! work in sessions only" + r.packagesBy() + "."
	}
	first, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	if r.Result.Language == sandboxmcp.Shell { // further lines may be here-documents
		code = first
	}
	name, is := "", sandboxmcp.Language("")
	switch m := shebang().FindStringSubmatch(code); {
	case m != nil && m[1] == "python":
		name, is = "Python", sandboxmcp.Python
	case m != nil && m[1] == "node":
		name, is = "JavaScript", sandboxmcp.Node
	case m != nil, ofShell().MatchString(line), line == "" && ofShell().MatchString(first):
		name, is = "shell", sandboxmcp.Shell
	case ofNode().MatchString(code):
		name, is = "JavaScript", sandboxmcp.Node
	case ofPython().MatchString(code):
		name, is = "Python", sandboxmcp.Python
	}
	if is == "" || is == r.Result.Language {
		return ""
	}
	how := "pass language " + string(is)
	switch {
	case r.Reader == sandboxmcp.ReaderTerminal:
		how = "pass --language " + string(is)
	case r.Reader == sandboxmcp.ReaderPython && !r.Has("execute_code"):
		how = "only Python is run"
	case r.Reader == sandboxmcp.ReaderPython:
		how = "call execute_code with language " + string(is)
	}
	return "This looks like " + name + ": " + how + "."
}

// packagesBy says how packages are installed without such a line.
func (r *Run) packagesBy() string {
	switch {
	case !r.Installs || r.Reader != sandboxmcp.ReaderTools:
		return ""
	case !r.Has("install_package"):
		return "; packages are installed by `packages`"
	}
	return "; packages are installed by `packages` or install_package"
}

var (
	unparsed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`syntax error|unexpected EOF|command not found`) })
	foreign  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`'(?:console|require|module|process)'|^(?:print|def|len|range|os|sys) is not defined`)
	})
)

// foreign explains a program that failed because it is of another language.
func (r *Run) foreign() string {
	e := r.Result.Error
	switch {
	case r.Result.Status != sandboxmcp.StatusFailed:
		return ""
	case e == nil:
		if r.Result.Language != sandboxmcp.Shell || !unparsed().MatchString(tail(r.Result.Stderr)) {
			return ""
		}
	case e.Name == "SyntaxError" || e.Name == "IndentationError":
	case (e.Name == "NameError" || e.Name == "ReferenceError") && (foreign().MatchString(e.Value) || shebang().MatchString(r.Source.Code)):
	default:
		return ""
	}
	return r.otherLanguage()
}
