package config

import (
	"slices"
	"strings"
)

// Mistyped is an environment variable that looks like a setting and is none.
type Mistyped struct {
	Name  string
	Guess string // the setting that was probably meant; empty: none is similar
}

// prefixes of the variables of settings.
var prefixes = []string{"SANDBOXMCP_", "SANDBOX_"}

// notSettings are the beginnings of variables that are no settings and are no mistakes:
// secrets, variables of this project's tests, and variables that programs in a sandbox see.
var notSettings = []string{
	"SANDBOXMCP_SECRET_", "SANDBOXMCP_TEST_", "SANDBOXMCP_MUST_RUN",
	"SANDBOX_OUTPUT_DIR", "SANDBOX_BRIDGE_DIR", "SANDBOX_POLICY",
}

// Mistyped returns the variables that begin like a setting but are none, sorted by name.
func (c *Config) Mistyped() []Mistyped { return c.mistyped }

func (c *Config) findMistyped(env []string) {
	known := map[string]bool{}
	for _, r := range c.rows {
		known[r.env] = true
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(upper, p) })
		fine := slices.ContainsFunc(notSettings, func(p string) bool { return strings.HasPrefix(upper, p) })
		if !ours || fine || value == "" || known[name] || known[upper] && strings.HasPrefix(upper, "SANDBOX_") {
			continue
		}
		c.mistyped = append(c.mistyped, Mistyped{name, c.guessVariable(upper)})
	}
	slices.SortFunc(c.mistyped, func(a, b Mistyped) int { return strings.Compare(a.Name, b.Name) })
}

// guessVariable returns the variable that is closest to a misspelled one, or "".
func (c *Config) guessVariable(name string) string {
	prefix, word := split(name)
	best, at := "", max(2, len(word)/3)+1
	for _, r := range c.rows {
		if r.env == "" || r.test {
			continue
		}
		p, w := split(r.env)
		d := mistake(word, w)
		if p != prefix {
			d++
		}
		if d < at || d == at && best != "" && r.env < best {
			best, at = r.env, d
		}
	}
	return best
}

func split(name string) (prefix, word string) {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return p, rest
		}
	}
	return "", name
}
