package packages

import (
	"regexp"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// maxSpecs and maxSpec bound the specs of one order: their number, and the bytes of each.
const (
	maxSpecs = 50
	maxSpec  = 300
)

// Spec is a package that was asked for: a name, extras and versions.
type Spec struct {
	Name     string   // normalized
	Extras   []string // Python only
	Versions string   // such as ==1.16.0 (Python) or ^4.0.0 (Node); empty: any
}

// The forms of specs. No form admits a space between words, a slash (but that of an npm
// scope), a colon or a leading dash, so that nothing that matches is an option, a URL or a
// path.
var (
	pythonSpec = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[([A-Za-z0-9._,-]*)\])?((?:(?:===|==|~=|!=|<=|>=|<|>)[A-Za-z0-9._+!*-]+,?)*)$`)
	})
	pythonExact = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^={2,3}[A-Za-z0-9._+!-]+$`) })
	nodeSpec    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^((?:@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9_][A-Za-z0-9._~-]*)(?:@((?:[\^~=]|[<>]=?)?[A-Za-z0-9*][A-Za-z0-9.+*-]*))?$`)
	})
	nodeExact   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^=?\d+\.\d+\.\d+(?:[-+][A-Za-z0-9.+-]+)?$`) })
	archiveName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\.(whl|zip|tar|tgz|tbz|txz|tlz|tar\.[a-z0-9]+) *$`)
	}) // pip and npm take it for a file
	pipBlanks = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` *(===|==|~=|!=|<=|>=|<|>|,|\[|\]) *`) })
)

// Parse parses the specs of a request, such as six==1.16.0, requests[socks]>=2,<3 or
// @types/node@^20. Options, URLs, paths and anything else that is not a package of an index
// fail with package_rejected before anything is fetched. A language without packages fails
// with invalid_argument, and so do more than 50 specs. No specs are no error.
func Parse(lang sandboxmcp.Language, specs []string) ([]Spec, error) {
	if lang != sandboxmcp.Python && lang != sandboxmcp.Node {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "language %s has no packages", sandboxmcp.Quote(string(lang))).
			WithHint("use python or node")
	}
	if len(specs) > maxSpecs {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d packages are more than %d", len(specs), maxSpecs).
			WithHint("ask for the rest in another call")
	}
	var all []Spec
	for _, text := range specs {
		parse, spec, ok := parsePython, Spec{}, false
		if lang == sandboxmcp.Node {
			parse = parseNode
		}
		if len(text) <= maxSpec && !archiveName().MatchString(text) {
			spec, ok = parse(strings.Trim(text, " "))
		}
		if !ok {
			return nil, refuseSpec(lang, text)
		}
		all = append(all, spec)
	}
	return all, nil
}

func refuseSpec(lang sandboxmcp.Language, text string) error {
	hint := "use NAME, NAME==VERSION or NAME[EXTRA]>=VERSION, such as six==1.16.0; options, URLs and paths are refused"
	if lang == sandboxmcp.Node {
		hint = "use NAME, NAME@VERSION or @SCOPE/NAME@^VERSION, such as left-pad@1.3.0; options, URLs and paths are refused"
	}
	return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s is not the name of a package", sandboxmcp.Quote(text)).WithHint(hint)
}

func parsePython(text string) (Spec, bool) {
	m := pythonSpec().FindStringSubmatch(pipBlanks().ReplaceAllString(text, "$1"))
	if m == nil || strings.HasSuffix(m[3], ",") {
		return Spec{}, false
	}
	if rest := m[3]; strings.Contains(strings.ReplaceAll(rest, ",", ""), ",") || unseparated(rest) {
		return Spec{}, false
	}
	s := Spec{Name: environment.Normal(m[1]), Versions: m[3]}
	for extra := range strings.SplitSeq(m[2], ",") {
		if extra = strings.Trim(extra, " "); extra == "" {
			continue
		}
		if strings.HasPrefix(extra, "-") || strings.HasPrefix(extra, ".") {
			return Spec{}, false
		}
		s.Extras = append(s.Extras, environment.Normal(extra))
	}
	return s, true
}

// unseparated reports whether two comparisons stand without a comma between them.
func unseparated(versions string) bool {
	for part := range strings.SplitSeq(versions, ",") {
		if strings.ContainsAny(strings.TrimLeft(part, "=~!<>"), "=~<>") {
			return true
		}
	}
	return false
}

func parseNode(text string) (Spec, bool) {
	m := nodeSpec().FindStringSubmatch(text)
	if m == nil || len(m[1]) > 214 || m[1] == "node_modules" || strings.Contains(m[1], "..") {
		return Spec{}, false
	}
	return Spec{Name: m[1], Versions: m[2]}, true
}

// text returns the spec in the form of the language's resolver.
func (s Spec) text(lang sandboxmcp.Language) string {
	switch {
	case lang == sandboxmcp.Node && s.Versions != "":
		return s.Name + "@" + s.Versions
	case len(s.Extras) > 0:
		return s.Name + "[" + strings.Join(s.Extras, ",") + "]" + s.Versions
	}
	return s.Name + s.Versions
}

// exact reports whether the spec names one version.
func (s Spec) exact(lang sandboxmcp.Language) bool {
	if lang == sandboxmcp.Node {
		return nodeExact().MatchString(s.Versions)
	}
	return pythonExact().MatchString(s.Versions)
}

// isName reports whether a name that came from a sandbox or an index is that of a package.
func isName(lang sandboxmcp.Language, name string) bool {
	if lang == sandboxmcp.Node {
		s, ok := parseNode(name)
		return ok && s.Versions == "" && len(name) <= maxSpec
	}
	s, ok := parsePython(name)
	return ok && s.Versions == "" && s.Extras == nil && len(name) <= maxSpec
}
