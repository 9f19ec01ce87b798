package engine

import (
	"fmt"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// maxSearched bounds the bytes of code that the server searches for all package requests of one cell together. That
// is enough for all requests that a cell of 256 KiB may send.
const maxSearched = 8 << 20

// maxChosen is for how many forms of versions and extras of one package a cell may ask. An index learns which form it is, because
// it sends other files: a program could send data there by versions that it chooses.
const maxChosen = 4

// cellWords finds names of packages in the code of a cell. A program can send requests as fast as it likes, so
// maxSearched bounds the work. It is not for concurrent use.
type cellWords struct {
	code     string
	normal   string // what [environment.Normal] returns for the code; "": not called yet
	searched int    // bytes

	chosen map[string]map[string]bool // forms of versions and extras, by the name of the package
}

// unwritten returns the first name of a package that is not a word of the code, or "" if all of them are. Versions
// and extras do not have to be in the code, but a cell may ask for a few of these only. If names cannot be parsed, it returns "", and install refuses them.
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
	return "", c.choose(specs)
}

// choose counts the versions and extras that the cell has asked for. It fails if there are too many of a package.
func (c *cellWords) choose(specs []packages.Spec) error {
	if c.chosen == nil {
		c.chosen = map[string]map[string]bool{}
	}
	for _, s := range specs {
		forms := c.chosen[s.Name]
		if forms == nil {
			forms = map[string]bool{}
			c.chosen[s.Name] = forms
		}
		form := fmt.Sprint(s.Extras, s.Versions)
		if !forms[form] && len(forms) >= maxChosen {
			return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "the cell asked for more than %d versions of %s", maxChosen, s.Name).
				WithHint("ask for further versions in another cell")
		}
		forms[form] = true
	}
	return nil
}

// findWords removes from names those that occur in the text as whole words: the characters before and after are not
// ones that a name can have. It reads the text once, whatever the names are.
func findWords(text string, l sandboxmcp.Language, names map[string]bool) {
	part := func(b byte) bool {
		return b == '.' || b == '_' || b == '-' || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z' || b == '~' && l == sandboxmcp.Node
	}
	scope := -1 // index of the @ if the word before is the scope of a Node package, as in @scope/name; otherwise -1
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
