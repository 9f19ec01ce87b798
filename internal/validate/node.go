package validate

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"

	"github.com/sandboxmcp/sandboxmcp"
)

// Node checks a program for Node.js.
func Node(code string, o Options) sandboxmcp.CodeReport {
	text := strings.TrimPrefix(code, "\ufeff") // Node.js skips it too
	issues := nodeSyntax(text)
	if len(issues) == 0 {
		issues = nodeDangers(text)
	}
	return report(code, sandboxmcp.Node, findings{issues: issues}, o)
}

// nodeSyntax parses a program twice: first by a parser that refuses deep nesting, then by
// esbuild, which knows the language better but bounds neither depth nor time.
func nodeSyntax(code string) []sandboxmcp.Issue {
	if (strings.Count(code, "[")+strings.Count(code, "{"))*patternLevel > maxNodeStack {
		return []sandboxmcp.Issue{tooDeep(0, 0)}
	}
	if crowded(code) {
		return nil
	}
	_, err := js.Parse(parse.NewInputString(code), js.Options{})
	if fault, ok := errors.AsType[*parse.Error](err); ok {
		if strings.HasPrefix(fault.Message, "too many nested") {
			return []sandboxmcp.Issue{tooDeep(fault.Line, fault.Column)}
		}
		if len(code) > maxUnbounded { // what follows the error may nest to any depth
			return []sandboxmcp.Issue{syntaxError(fault.Line, fault.Column, fault.Message)}
		}
	}
	if pieces(code) > maxPieces {
		return nil
	}
	done := api.Transform(code, api.TransformOptions{Loader: api.LoaderJS, LogLevel: api.LogLevelSilent, LogLimit: 20})
	var issues []sandboxmcp.Issue
	for _, m := range done.Errors {
		line, col := 0, 0
		if at := m.Location; at != nil {
			line, col = at.Line, len([]rune(at.LineText[:min(at.Column, len(at.LineText))]))+1
		}
		issues = append(issues, syntaxError(line, col, m.Text))
	}
	return issues
}

// The first parser does not bound the depth of patterns, such as var [[[a]]]. It needs up to
// patternLevel bytes of stack for each level.
const (
	patternLevel = 512
	maxNodeStack = 128 << 20
)

// maxUnbounded is the size of code that is parsed without a bound on its depth. esbuild needs
// less than 10 kB of stack for a byte.
const maxUnbounded = 16 << 10

// maxPieces is how many pieces a program may have that esbuild parses. For some programs it
// takes quadratic time: about 12 ns for each pair of commas, cases or names of a class. Of a
// longer program only the first parser's errors are found.
const maxPieces = 20_000

// pieces returns at least the number of tokens of a program: of its words and of all other
// characters but spaces.
func pieces(code string) int {
	n, inWord := 0, false
	for i := range len(code) {
		c := code[i]
		word := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
		if !inWord && word || !word && c > ' ' {
			n++
		}
		inWord = word
	}
	return n
}

// token is a token of JavaScript that is neither space nor a comment.
type token struct {
	kind   js.TokenType
	text   string
	offset int
}

// tokens splits a program. After an error it returns the tokens before it.
func tokens(code string) []token {
	input := parse.NewInputString(code)
	lexer := js.NewLexer(input)
	var all []token
	for {
		at := input.Offset()
		kind, text := lexer.Next()
		switch kind { //nolint:exhaustive // every other token is kept
		case js.ErrorToken:
			return all
		case js.WhitespaceToken, js.LineTerminatorToken, js.CommentToken, js.CommentLineTerminatorToken:
			continue
		case js.DivToken, js.DivEqToken:
			if len(all) == 0 || beforeRegExp(all[len(all)-1]) {
				if kind, text = lexer.RegExp(); kind == js.ErrorToken {
					return all
				}
			}
		}
		all = append(all, token{kind, string(text), at})
	}
}

// beforeRegExp reports whether a slash after t begins a regular expression.
func beforeRegExp(t token) bool {
	switch {
	case t.kind == js.StringToken, t.kind == js.TemplateToken, t.kind == js.TemplateEndToken, t.kind == js.RegExpToken, js.IsNumeric(t.kind):
		return false
	case t.text == "this", t.text == "super":
		return false
	case js.IsIdentifierName(t.kind):
		return js.IsReservedWord(t.kind)
	}
	return t.text != ")" && t.text != "]" && t.text != "}"
}

var modulesThatRun = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:node:)?child_process$`) })

// nodeDangers looks for dangerous patterns in the tokens of a program.
func nodeDangers(code string) []sandboxmcp.Issue {
	all := tokens(code)
	var found []sandboxmcp.Issue
	at := func(i int) token {
		if i < 0 || i >= len(all) {
			return token{}
		}
		return all[i]
	}
	add := func(i int, rule, why string) {
		if len(found) >= maxIssues { // finding the line takes time for each
			return
		}
		line, col := position(code, all[i].offset)
		found = append(found, dangerous(line, col, rule, why))
	}
	for i, t := range all {
		prev, next := at(i-1).text, at(i+1).text
		own := prev != "." && prev != "?." && prev != "function" && prev != "#" // not a member of something
		name := t.text
		if t.text == "[" { // object["name"](...) is object.name(...)
			if s, end := stringAt(all, i+1); at(end).text == "]" && at(end+1).text == "(" {
				name, next, own = s, "(", true
			}
		}
		switch {
		case name == "eval" && next == "(" && own:
			add(i, "eval", "eval() runs text as code")
		case name == "Function" && next == "(" && own:
			add(i, "Function() constructor", "Function() makes code of text")
		case (name == "require" || name == "import") && next == "(" && own:
			if s, _ := stringAt(all, i+2); modulesThatRun().MatchString(s) {
				add(i, "require('child_process')", "child_process runs other programs")
			}
		case t.kind == js.StringToken && (prev == "from" || prev == "import"):
			if s, _ := stringAt(all, i); modulesThatRun().MatchString(s) {
				add(i, "require('child_process')", "child_process runs other programs")
			}
		case name == "process" && next == "." && at(i+2).text == "exit" && own:
			add(i, "process.exit", "process.exit() ends the program without waiting for its output")
		case name == "fs" && next == "." && at(i+3).text == "(":
			switch method := at(i + 2).text; method {
			case "unlinkSync", "rmdirSync", "rmSync":
				add(i, "fs."+method, "fs."+method+"() removes files")
			}
		case (name == "setTimeout" || name == "setInterval") && next == "(" && own && at(i+2).kind == js.StringToken:
			add(i, name+" with string argument", name+"() with text runs it as code")
		}
	}
	return found
}

// stringAt returns the value of the string at index i, or of several joined by +, and the
// index after it.
func stringAt(all []token, i int) (string, int) {
	var b strings.Builder
	for ; i < len(all) && all[i].kind == js.StringToken; i++ {
		b.WriteString(unquote(all[i].text))
		if i+1 >= len(all) || all[i+1].text != "+" {
			return b.String(), i + 1
		}
		i++
	}
	return b.String(), i
}

// unquote returns the value of a JavaScript string. An escape that Go does not know stays
// as it is written.
func unquote(text string) string {
	if len(text) < 2 {
		return text
	}
	rest := text[1 : len(text)-1]
	var b strings.Builder
	for rest != "" {
		r, _, tail, err := strconv.UnquoteChar(rest, text[0])
		if err != nil {
			b.WriteString(rest)
			break
		}
		b.WriteRune(r)
		rest = tail
	}
	return b.String()
}
