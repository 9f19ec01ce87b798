package engine

import (
	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// maxSearched is how many bytes the server reads for the requests of one cell together. That is enough for all requests
// that a cell of 256 KiB may send.
const maxSearched = 8 << 20

// cellWords finds names of packages in the code of a cell. Programs can send requests as fast as they like, so it bounds
// its work for them. It is not for concurrent use.
type cellWords struct {
	code     string
	normal   string // the code as [environment.Normal] has it; "": not made yet
	searched int    // bytes
}

// unwritten returns the first name of a package that is not a word of the code, without its version and extras, and "" if
// there is none. What is not a package, install refuses.
func (c *cellWords) unwritten(l sandboxmcp.Language, names []string) (string, error) {
	specs, err := packages.Parse(l, names)
	if err != nil {
		return "", nil //nolint:nilerr // install refuses it with this error
	}
	if c.searched > 0 && c.searched+len(c.code) > maxSearched {
		return "", sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "the cell asked for packages too often for its size").
			WithHint("install all packages with one line, or in a small cell of their own")
	}
	c.searched += len(c.code)
	code := c.code
	if l == sandboxmcp.Python { // its names are normalized
		if c.normal == "" {
			c.normal = environment.Normal(code)
		}
		code = c.normal
	}
	missing := make(map[string]bool, len(specs))
	for _, s := range specs {
		missing[s.Name] = true
	}
	findWords(code, l, missing)
	for _, s := range specs {
		if missing[s.Name] {
			return s.Name, nil
		}
	}
	return "", nil
}

// findWords removes the names that a text has as words: with nothing around them that could belong to them. It reads the
// text once, whatever the names are.
func findWords(text string, l sandboxmcp.Language, names map[string]bool) {
	part := func(b byte) bool {
		return b == '.' || b == '_' || b == '-' || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z' || b == '~' && l == sandboxmcp.Node
	}
	scope := -1 // where the @ of a word before is, that is a scope
	for i := 0; i < len(text); i++ {
		if !part(text[i]) {
			continue
		}
		from := i
		for i < len(text) && part(text[i]) {
			i++
		}
		delete(names, text[from:i])
		if scope >= 0 && text[from-1] == '/' {
			delete(names, text[scope:i])
		}
		scope = -1
		if at := from - 1; at >= 0 && text[at] == '@' && (at == 0 || !part(text[at-1])) && i < len(text) && text[i] == '/' {
			scope = at
		}
	}
}
