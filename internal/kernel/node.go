package kernel

import (
	_ "embed" // texts of the drivers
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

//go:embed drivers/hook.cjs
var nodeHookText string

//go:embed drivers/values.cjs
var nodeValuesText string

//go:embed drivers/display.cjs
var nodeDisplayText string

const nodeHook = ".hook.cjs"

// nodeDisplay is the part of the hook that shows a value. It is compiled under a name of
// node's own, so that stack traces show no file of the driver.
var nodeDisplay = sync.OnceValue(func() string {
	text := strings.Replace(nodeDisplayText, "//@values.cjs\n", nodeValuesText, 1)
	return "  if (display) require('vm').compileFunction(" + quoteJS(text) + ", ['require', 'display', 'send'], { filename: 'node:internal/display' })(require, display, send);\n"
})

func quoteJS(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) //nolint:forbidigo // a string can be quoted
	}
	return string(quoted)
}

// nodeHookFor returns the hook for a node that is not started ahead.
func nodeHookFor(display sandboxmcp.Display) []byte {
	if display == sandboxmcp.DisplayNone {
		return []byte(nodeHookText)
	}
	return []byte(strings.NewReplacer("  let display;\n", "  const display = "+quoteJS(string(display))+";\n", "  // @display@\n", nodeDisplay()).Replace(nodeHookText))
}

func planNode(p Program) backend.Process {
	p.Names = nil // only shell code and sessions need them often enough to be worth the files
	if strings.HasSuffix(p.FileName, ".mjs") || endsQuietlyJS(p.Code) {
		p.Display = sandboxmcp.DisplayNone
	}
	argv := []string{p.Interpreter, "--require", inProgramDir(nodeHook)}
	v := nodeVersion(p.Version)
	switch {
	case strings.HasSuffix(p.FileName, ".mjs"), strings.HasSuffix(p.FileName, ".cjs"):
	case v.detectsModules():
		// Without the flag node warns on stderr whenever it detects an ES module.
		argv = append(argv, "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON")
	case v.canDetectModules():
		argv = append(argv, "--experimental-detect-module")
	case isModule(p.Code):
		p.FileName = strings.TrimSuffix(p.FileName, ".js") + ".mjs"
	}
	return backend.Process{
		Argv:     append(argv, inProgramDir(p.FileName)),
		Env:      environment(p, nil),
		Prestart: aheadNode(p),
		Program: []backend.ProgramFile{
			{Name: p.FileName, Data: []byte(p.Code)},
			{Name: nodeHook, Data: nodeHookFor(p.Display)},
		},
		Channels: 1,
	}
}

// version is a version of node.
type version struct{ major, minor int }

// nodeVersion parses "20.19.1". A malformed version is 0.0, which has no features.
func nodeVersion(s string) version {
	parts := strings.SplitN(strings.TrimPrefix(s, "v"), ".", 3)
	if len(parts) < 2 {
		return version{}
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return version{}
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return version{}
	}
	return version{major, minor}
}

// detectsModules reports whether node detects ES modules in .js files by default.
func (v version) detectsModules() bool {
	return v.major > 22 || v.major == 22 && v.minor >= 7 || v.major == 20 && v.minor >= 19
}

// canDetectModules reports whether node can do so with a flag.
func (v version) canDetectModules() bool {
	return v.major >= 22 || v.major == 21 && v.minor >= 1 || v.major == 20 && v.minor >= 10
}

// isModule reports whether JavaScript has import or export statements. It skips comments,
// strings and templates and checks the words that begin a statement outside of brackets.
// A regular expression with a quote may make it return false wrongly.
func isModule(code string) bool {
	depth, begins := 0, true
	for i := 0; i < len(code); {
		rest := code[i:]
		switch c := code[i]; {
		case strings.HasPrefix(rest, "//"), i == 0 && strings.HasPrefix(rest, "#!"):
			i += indexOrEnd(rest, "\n")
			continue
		case strings.HasPrefix(rest, "/*"):
			i += 2 + indexOrEnd(rest[2:], "*/") + 2
			continue
		case c == '"' || c == '\'' || c == '`':
			i += quoted(rest)
			begins = false
			continue
		case strings.IndexByte("([{", c) >= 0:
			depth++
			begins = false
		case strings.IndexByte(")]}", c) >= 0:
			depth--
			begins = c == '}'
		case c == ';' || c == '\n':
			begins = true
		case c == ' ' || c == '\t' || c == '\r':
		default:
			if begins && depth == 0 && beginsModuleStatement(rest) {
				return true
			}
			begins = false
		}
		i++
	}
	return false
}

func beginsModuleStatement(s string) bool {
	if after, ok := strings.CutPrefix(s, "import"); ok {
		after = strings.TrimLeft(after, " \t\r\n")
		if after == "" || after[0] == '(' || after[0] == '.' { // import() and import.meta are expressions
			return false
		}
		return strings.IndexByte(`"'{*`, after[0]) >= 0 || len(s) > 6 && (s[6] == ' ' || s[6] == '\t') && isWord(after[0])
	}
	if after, ok := strings.CutPrefix(s, "export"); ok && after != "" {
		trimmed := strings.TrimLeft(after, " \t\r\n")
		return trimmed != "" && (strings.IndexByte("{*", trimmed[0]) >= 0 || strings.IndexByte(" \t\n", after[0]) >= 0 && isWord(trimmed[0]))
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func indexOrEnd(s, sub string) int {
	if i := strings.Index(s, sub); i >= 0 {
		return i
	}
	return len(s)
}

// quoted returns the length of the string or template at the start of s.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == s[0], s[i] == '\n' && s[0] != '`':
			return i + 1
		}
	}
	return len(s)
}
