package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxFile bounds a settings file; a real one has a few hundred bytes.
const maxFile = 1 << 20

// maxNested bounds how deep values are nested. The parser recurses, and no setting nests a value
// deeper than a list.
const maxNested = 16

// maxFaults is the number of faults after which a file is not read further.
const maxFaults = 50

// document is a file of settings.
type document struct {
	path  string
	lines []string
	rows  []row
}

// readFile reads settings from a YAML file and returns every fault in it, such as an unknown
// key. Without a fault all of the file is read.
func (c *Config) readFile(path string) []error {
	data, err := plainfile.Read(path, maxFile)
	if err != nil {
		return []error{sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "settings file %s cannot be read: %s", path, readable(err)).
			WithHint("name a readable YAML file with --config")}
	}
	d := document{path, strings.Split(string(data), "\n"), c.rows}
	tokens := lexer.Tokenize(string(data))
	if t := tooDeep(tokens); t != nil {
		return []error{d.fault(t.Position, "values are nested too deep").WithHint("`sandboxmcp config` lists every setting")}
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return []error{d.syntaxError(err)}
	}
	if len(file.Docs) > 1 {
		return []error{sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds more than one YAML document", path).WithHint("use one file for each document")}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil
	}
	byKey := make(map[string]row, len(c.rows))
	for _, r := range c.rows {
		byKey[r.key] = r
	}
	var pairs []*ast.MappingValueNode
	switch body := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		pairs = body.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{body}
	case *ast.CommentGroupNode, *ast.NullNode:
		return nil
	default:
		return []error{d.at(body, "the file has to be a mapping of settings to values")}
	}
	var faults []error
	for _, p := range pairs {
		if err := c.readPair(d, p, byKey); err != nil {
			faults = append(faults, err)
		}
		if len(faults) == maxFaults {
			return append(faults, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s has %d faults; the rest of it was not read", path, maxFaults).
				WithHint("correct these first"))
		}
	}
	return faults
}

// tooDeep returns the first token that nests a value deeper than maxNested, or nil. It counts the
// brackets that are open, and on each line the marks that begin a list or a key in another.
// Deeper nesting by indentation takes a line for each level.
func tooDeep(tokens token.Tokens) *token.Token {
	open, marks, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, marks = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
		case token.SequenceEndType, token.MappingEndType:
			open--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			marks++
		default:
		}
		if open > maxNested || marks > maxNested {
			return t
		}
	}
	return nil
}

func (c *Config) readPair(d document, p *ast.MappingValueNode, byKey map[string]row) error {
	key, ok := plain(p.Key)
	if !ok {
		return d.at(p.Key, "a setting's name has to be plain text")
	}
	r, known := byKey[key]
	if !known {
		msg := "unknown setting " + sandboxmcp.Quote(key)
		if g := guess(key, byKey); g != "" {
			msg += " (did you mean " + g + "?)"
		}
		return d.at(p.Key, msg)
	}
	if r.envOnly() {
		return d.at(p.Key, key+" cannot be set in a file; set the variable "+r.env)
	}
	if _, null := p.Value.(*ast.NullNode); null {
		return nil
	}
	shown, legal := "a nested value", false
	switch v := p.Value.(type) {
	case *ast.SequenceNode:
		shown = "a list"
		items := []string{}
		whole := r.into.isList
		for _, n := range v.Values {
			s, ok := plain(n)
			whole = whole && ok
			items = append(items, s)
		}
		if legal = whole && r.into.set(items); !legal && whole {
			for _, s := range items {
				if !r.into.set([]string{s}) {
					shown = "a list with " + r.shown(s)
					break
				}
			}
		}
	default:
		s, ok := plain(v)
		if ok && s == "" && r.def == "" {
			return nil
		}
		if ok {
			shown = r.shown(s)
		}
		legal = ok && !r.into.isList && r.into.set([]string{s})
	}
	if !legal {
		return d.at(p.Value, key+" is "+shown+"; it has to be "+r.into.legal())
	}
	c.sources[key] = FromYAML
	return nil
}

// plain returns the text of a scalar as written. It returns false for other nodes.
func plain(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(v.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NanNode, *ast.InfinityNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// at returns an error about a node, with its place in the file.
func (d document) at(n ast.Node, msg string) error {
	var pos *token.Position
	if t := n.GetToken(); t != nil {
		pos = t.Position
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 { // its token is a colon
		pos = m.Values[0].Key.GetToken().Position
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		pos = m.Key.GetToken().Position
	}
	return d.fault(pos, msg).WithHint("`sandboxmcp config` lists every setting")
}

func (d document) syntaxError(err error) error {
	msg := err.Error()
	var pos *token.Position
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		msg = ye.GetMessage()
		if t := ye.GetToken(); t != nil {
			pos = t.Position
		}
	}
	msg, _, _ = strings.Cut(msg, "\n")
	return d.fault(pos, msg).WithHint("correct the YAML")
}

// fault is an error with a place. Its field excerpt is the line, unless that may hold a
// secret.
func (d document) fault(pos *token.Position, msg string) *sandboxmcp.Error {
	if pos == nil || pos.Line < 1 {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s: %s", d.path, msg)
	}
	line, column := min(pos.Line, len(d.lines)), max(pos.Column, 1)
	e := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s:%d:%d: %s", d.path, line, column, msg).
		With("line", line).With("column", column)
	if d.mayShow(line) {
		e = e.With("excerpt", strings.TrimRight(d.lines[line-1], "\r"))
	}
	return e
}

// mayShow reports whether a line holds no secret. Neither it nor the line above it that begins
// a setting may name a setting with secrets. A user in a URL is a secret, too.
func (d document) mayShow(line int) bool {
	first := line - 1
	for first > 0 && (d.lines[first] == "" || strings.ContainsAny(d.lines[first][:1], " \t#-]}\r")) {
		first--
	}
	text := d.lines[first] + "\n" + d.lines[line-1]
	return !userInURL(text) && !slices.ContainsFunc(d.rows, func(r row) bool {
		return r.secret && strings.Contains(text, r.key)
	})
}

// guess returns the known key that is closest to a misspelled one, or "".
func guess(key string, known map[string]row) string {
	best, at := "", max(2, len(key)/3)+1
	for k, r := range known {
		if r.envOnly() {
			continue
		}
		if d := mistake(strings.ToLower(key), k); d < at || d == at && k < best {
			best, at = k, d
		}
	}
	return best
}

// mistake returns the distance of a misspelled name from a known one. If a name is only the first words of
// the known one, as max_ram is of max_ram_mb, the distance is 1.
func mistake(name, known string) int {
	if name != "" && strings.HasPrefix(known, name+"_") {
		return 1
	}
	return distance(name, known)
}

// distance is the number of single-letter edits between a and b.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			edit := diagonal
			if a[i-1] != b[j-1] {
				edit++
			}
			diagonal = row[j]
			row[j] = min(edit, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
