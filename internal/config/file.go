package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxFile bounds a settings file; a real one has a few hundred bytes.
const maxFile = 1 << 20

// readFile reads settings from a YAML file. It fails on an unknown key.
func (c *Config) readFile(path string) error {
	data, err := plainfile.Read(path, maxFile)
	if err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "settings file %s cannot be read: %s", path, readable(err)).
			WithHint("name a readable YAML file with --config")
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return syntaxError(path, err)
	}
	if len(file.Docs) > 1 {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds more than one YAML document", path)
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
		return at(path, body, "the file has to be a mapping of settings to values")
	}
	for _, p := range pairs {
		if err := c.readPair(path, p, byKey); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) readPair(path string, p *ast.MappingValueNode, byKey map[string]row) error {
	key, ok := plain(p.Key)
	if !ok {
		return at(path, p.Key, "a setting's name has to be plain text")
	}
	r, known := byKey[key]
	if !known {
		msg := "unknown setting " + sandboxmcp.Quote(key)
		if g := guess(key, byKey); g != "" {
			msg += " (did you mean " + g + "?)"
		}
		return at(path, p.Key, msg)
	}
	if r.envOnly() {
		return at(path, p.Key, key+" cannot be set in a file; set the variable "+r.env)
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
		legal = whole && r.into.set(items)
	default:
		s, ok := plain(v)
		if ok && s == "" && r.def == "" {
			return nil
		}
		if ok {
			shown = sandboxmcp.Quote(s)
		}
		legal = ok && !r.into.isList && r.into.set([]string{s})
	}
	if !legal {
		if r.secret {
			shown = redacted
		}
		return at(path, p.Key, key+" is "+shown+"; it has to be "+r.into.legal())
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

func at(path string, n ast.Node, msg string) error {
	line := 0
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s:%d: %s", path, line, msg).
		WithHint("`sandboxmcp config` lists every setting")
}

func syntaxError(path string, err error) error {
	msg, line := err.Error(), 0
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		msg = ye.GetMessage()
		if t := ye.GetToken(); t != nil && t.Position != nil {
			line = t.Position.Line
		}
	}
	msg, _, _ = strings.Cut(msg, "\n")
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s:%d: %s", path, line, msg).
		WithHint("correct the YAML")
}

// guess returns the known key that is closest to a misspelled one, or "".
func guess(key string, known map[string]row) string {
	best, at := "", max(2, len(key)/3)+1
	for k, r := range known {
		if r.envOnly() {
			continue
		}
		if d := distance(strings.ToLower(key), k); d < at || d == at && k < best {
			best, at = k, d
		}
	}
	return best
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
