package validate

import (
	"errors"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxmcp/sandboxmcp"
)

// Shell checks a script for bash.
func Shell(code string, o Options) sandboxmcp.CodeReport {
	var issues []sandboxmcp.Issue
	switch {
	case strings.ContainsRune(code, 0):
		line, col := position(code, strings.IndexByte(code, 0))
		issues = append(issues, syntaxError(line, col, "the code contains a null byte"))
	case shellStack(code) > maxStack:
		issues = append(issues, tooDeep(0, 0))
	default:
		issues = shellIssues(code)
	}
	return report(code, sandboxmcp.Shell, findings{issues: issues}, o)
}

// maxStack is how many bytes of stack a parser may need by the estimate of shellStack.
const maxStack = 64 << 20

// shellStack estimates how much stack the parser needs at most: what it needs if everything
// that can open a level opens one within the last. The sizes of a level were measured with
// mvdan.cc/sh v3.14.1 on amd64.
func shellStack(code string) int {
	const (
		parenthesis = 4500 // ( [ ? and what starts with them, such as $((
		brace       = 2300
		pipe        = 2300 // | & and each half of || &&
		word        = 1300 // any other token
		operator    = 1100 // in arithmetic: a level for each, also without parentheses
	)
	n, inWord := 0, false
	for i := range len(code) {
		c := code[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		switch {
		case c == '(' || c == '[' || c == '?':
			n += parenthesis
		case c == '{' || c == '`':
			n += brace
		case c == '|' || c == '&':
			n += pipe
		case strings.IndexByte("*/%^<>,:", c) >= 0:
			n += operator
		case strings.IndexByte("=!~+-", c) >= 0:
			n += word / 3
		case letter && !inWord && opensLevel(code[i:]):
			n += word
		}
		inWord = letter
	}
	return n
}

// opensLevel reports whether text begins with a word after which a command may follow.
func opensLevel(text string) bool {
	for _, w := range []string{"if", "then", "elif", "else", "while", "until", "for", "select", "do", "case", "in", "time", "coproc", "function"} {
		if strings.HasPrefix(text, w) {
			return true
		}
	}
	return false
}

func shellIssues(code string) []sandboxmcp.Issue {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(code), "")
	if err != nil {
		return []sandboxmcp.Issue{shellError(code, err)}
	}
	s := shellSearch{code: code, functions: map[string][]*syntax.FuncDecl{}}
	syntax.Walk(file, s.visit)
	return s.found
}

func shellError(code string, err error) sandboxmcp.Issue {
	var parse syntax.ParseError
	var other syntax.LangError
	at, text := syntax.Pos{}, err.Error()
	switch {
	case errors.As(err, &parse):
		at, text = parse.Pos, parse.Text
	case errors.As(err, &other):
		at = other.Pos
	}
	line, col := position(code, int(at.Offset()))
	return syntaxError(line, col, text)
}

// shellSearch collects dangerous patterns of a script.
type shellSearch struct {
	code      string
	found     []sandboxmcp.Issue
	around    []syntax.Node                 // the node that is visited and those around it
	functions map[string][]*syntax.FuncDecl // of around, by name; nil in place of one that was found
}

func (s *shellSearch) add(n syntax.Node, rule, why string) {
	if len(s.found) >= maxIssues { // finding the line takes time for each
		return
	}
	line, col := position(s.code, int(n.Pos().Offset()))
	s.found = append(s.found, dangerous(line, col, rule, why))
}

func (s *shellSearch) visit(n syntax.Node) bool {
	if n == nil { // the children of the last one were visited
		last := len(s.around) - 1
		if f, ok := s.around[last].(*syntax.FuncDecl); ok && f.Name != nil {
			open := s.functions[f.Name.Value]
			s.functions[f.Name.Value] = open[:len(open)-1]
		}
		s.around = s.around[:last]
		return true
	}
	s.around = append(s.around, n)
	switch n := n.(type) {
	case *syntax.CallExpr:
		s.command(n)
	case *syntax.FuncDecl:
		if n.Name != nil {
			s.functions[n.Name.Value] = append(s.functions[n.Name.Value], n)
		}
	case *syntax.BinaryCmd:
		s.pipe(n)
	case *syntax.Redirect:
		if to := literal(n.Word); strings.HasPrefix(to, "/dev/sd") || strings.HasPrefix(to, "/dev/nvme") {
			s.add(n, "writing to raw device", "this overwrites a disk")
		}
	}
	return true
}

// command looks at one simple command.
func (s *shellSearch) command(c *syntax.CallExpr) {
	words := make([]string, len(c.Args))
	for i, w := range c.Args {
		words[i] = literal(w)
	}
	for len(words) > 1 && (words[0] == "sudo" || words[0] == "exec" || words[0] == "command" || words[0] == "nohup" || words[0] == "env") {
		words = words[1:]
	}
	if len(words) == 0 {
		return
	}
	name, args := words[0][strings.LastIndexByte(words[0], '/')+1:], words[1:]
	has := func(is func(string) bool) bool { return slices.ContainsFunc(args, is) }
	flags := func(letters string) bool {
		return has(func(a string) bool {
			return strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.ContainsAny(a, letters)
		})
	}
	exactly := func(want ...string) bool {
		return has(func(a string) bool { return slices.Contains(want, a) })
	}
	switch {
	case name == "rm" && (flags("rR") || exactly("--recursive")) && exactly("/", "/*", "~", "$HOME"):
		s.add(c, "rm -rf /", "this removes every file")
	case name == "dd" && has(func(a string) bool {
		return strings.HasPrefix(a, "of=/dev/") && a != "of=/dev/null" && a != "of=/dev/stdout"
	}):
		s.add(c, "dd to device", "dd to a device overwrites a disk")
	case name == "mkfs" || strings.HasPrefix(name, "mkfs."):
		s.add(c, "mkfs", "mkfs erases a file system")
	case name == "chmod" && exactly("777", "0777", "a+rwx"):
		s.add(c, "chmod 777", "chmod 777 lets everybody write")
	case (name == "sh" || name == "bash" || name == "dash" || name == "zsh") && flags("c"):
		s.add(c, "sh -c", name+" -c runs text as a command")
	case (name == "nc" || name == "ncat" || name == "netcat") && flags("le"):
		s.add(c, "netcat listener", name+" lets others connect to a program")
	case name == "chown" && (flags("R") || exactly("--recursive")):
		s.add(c, "recursive chown", "chown -R changes the owner of a whole tree")
	case name == "kill" && exactly("-1") && (flags("9") || exactly("-KILL", "-SIGKILL")):
		s.add(c, "kill all processes", "kill -9 -1 ends every process")
	case name == "crontab" && flags("r"):
		s.add(c, "crontab removal", "crontab -r removes all of the user's jobs")
	case name == "eval":
		s.add(c, "eval", "eval runs text as a command")
	}
}

// pipe looks at a | b.
func (s *shellSearch) pipe(n *syntax.BinaryCmd) {
	if n.Op != syntax.Pipe && n.Op != syntax.PipeAll {
		return
	}
	from, to := firstWord(n.X), firstWord(n.Y)
	if (from == "curl" || from == "wget") && (to == "sh" || to == "bash" || to == "dash" || to == "zsh") {
		s.add(n, "piping "+from+" to shell", from+" into "+to+" runs whatever the other side sends")
	}
	if open := s.functions[from]; from == to && len(open) > 0 && open[len(open)-1] != nil { // the function calls itself on both sides
		s.add(open[len(open)-1], "fork bomb detected", "the function starts itself twice each time: a fork bomb")
		open[len(open)-1] = nil
	}
}

func firstWord(st *syntax.Stmt) string {
	switch c := st.Cmd.(type) {
	case *syntax.BinaryCmd:
		return firstWord(c.Y) // the last of a longer pipe
	case *syntax.CallExpr:
		for i, w := range c.Args {
			if name := literal(w); name != "sudo" || i == len(c.Args)-1 {
				return name[strings.LastIndexByte(name, '/')+1:]
			}
		}
	}
	return ""
}

// literal returns the text of a word without its quotes; "" if it is not known before the
// script runs. $HOME is kept as it is.
func literal(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range w.Parts {
		if !plain(&b, p) {
			return ""
		}
	}
	return b.String()
}

func plain(b *strings.Builder, p syntax.WordPart) bool {
	switch p := p.(type) {
	case *syntax.Lit:
		b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
	case *syntax.SglQuoted:
		b.WriteString(p.Value)
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			if !plain(b, q) {
				return false
			}
		}
	case *syntax.ParamExp:
		if p.Param == nil || p.Param.Value != "HOME" {
			return false
		}
		b.WriteString("$HOME")
	default:
		return false
	}
	return true
}
