package packages

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Direct installs an order that needs no resolver: packages without dependencies, whose newest
// version that fits is plain to see. It takes a few milliseconds if the cache has everything.
// It returns false if a resolver has to choose, or has to say what is wrong. A package that it
// installs is the one that pip or npm would choose.
func (g *Gateway) Direct(ctx context.Context) (Tree, bool, error) {
	var pins []pin
	for _, s := range g.order.Specs {
		choose := g.directPython
		if g.order.Language == sandboxmcp.Node {
			choose = g.directNode
		}
		p, ok := choose(s)
		if !ok || slices.ContainsFunc(pins, func(q pin) bool { return q.pkg == p.pkg }) {
			return Tree{}, false, nil
		}
		pins = append(pins, p)
	}
	t, err := g.finish(ctx, func() ([]pin, error) { return pins, nil })
	return t, true, err
}

// release is the number of a final release: 1.2.3 or 1.2.3.post1.
type release struct {
	numbers []int
	post    int
}

var (
	finalForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d{1,9}(?:\.\d{1,9}){0,5})(?:\.post(\d{1,9}))?$`) })
	earlyForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.dev\d+)?$`) })
	pureWheel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^-]+-[^-]+-(?:py3|py2\.py3)-none-any\.whl$`) })
	ownPython = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^cp(\d)(\d{1,2})$`) })
	clause    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(==|!=|>=|<=|>|<) *(\d{1,9}(?:\.\d{1,9}){0,5}(?:\.post\d{1,9})?)(\.\*)?$`)
	})
)

func parseRelease(s string) (release, bool) {
	m := finalForm().FindStringSubmatch(s)
	if m == nil {
		return release{}, false
	}
	r := release{post: -1}
	for n := range strings.SplitSeq(m[1], ".") {
		i, _ := strconv.Atoi(n)
		r.numbers = append(r.numbers, i)
	}
	for len(r.numbers) > 1 && r.numbers[len(r.numbers)-1] == 0 { // 1.0 is 1
		r.numbers = r.numbers[:len(r.numbers)-1]
	}
	if m[2] != "" {
		r.post, _ = strconv.Atoi(m[2])
	}
	return r, true
}

func (r release) compare(o release) int {
	return cmp.Or(slices.Compare(r.numbers, o.numbers), cmp.Compare(r.post, o.post))
}

// meets reports whether a release fits version specifiers such as >=1,<2. It returns false for
// known if they have a form that only a resolver understands.
func (r release) meets(specifiers string) (fits, known bool) {
	fits = true
	for part := range strings.SplitSeq(specifiers, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		m := clause().FindStringSubmatch(part)
		if m == nil || m[3] != "" {
			return false, false
		}
		o, ok := parseRelease(m[2])
		if !ok || (m[1] == ">" || m[1] == "<") && (r.post >= 0 || o.post >= 0) { // have rules of their own
			return false, false
		}
		c := r.compare(o)
		switch m[1] {
		case "==":
			fits = fits && c == 0
		case "!=":
			fits = fits && c != 0
		case ">=":
			fits = fits && c >= 0
		case "<=":
			fits = fits && c <= 0
		case ">":
			fits = fits && c > 0
		case "<":
			fits = fits && c < 0
		}
	}
	return fits, true
}

// pythonMeets is meets for the version of an interpreter, of which only major and minor are
// known.
func pythonMeets(runtime, specifiers string) (fits, known bool) {
	m := ownPython().FindStringSubmatch(runtime)
	if m == nil {
		return false, false
	}
	own, ok := parseRelease(m[1] + "." + m[2])
	if !ok {
		return false, false
	}
	fits = true
	for part := range strings.SplitSeq(specifiers, ",") {
		c := clause().FindStringSubmatch(strings.TrimSpace(part))
		if c == nil {
			return false, false
		}
		numbers := strings.Split(c[2], ".")
		if len(numbers) > 2 && strings.Join(numbers[:2], ".") == m[1]+"."+m[2] {
			return false, false // the third number counts
		}
		series := len(numbers) == 2 && numbers[0] == m[1] && numbers[1] == m[2]
		switch {
		case c[3] != "" && c[1] == "!=": // such as !=3.0.*
			fits = fits && !series && (len(numbers) > 1 || numbers[0] != m[1])
		case c[3] != "" || series && c[1] != ">=" && c[1] != "<":
			return false, false
		default:
			ok, sure := own.meets(c[1] + c[2])
			if !sure {
				return false, false
			}
			fits = fits && ok
		}
	}
	return fits, true
}

// directPython returns the wheel that pip would choose for a spec, if that is plain to see.
func (g *Gateway) directPython(s Spec) (pin, bool) {
	pr, err := g.project(s.Name)
	if err != nil || len(s.Extras) > 0 {
		return pin{}, false
	}
	var best []listedFile
	var newest release
	for _, f := range pr.files {
		r, ok := parseRelease(f.version)
		if !ok {
			if earlyForm().MatchString(f.version) {
				continue // pip takes it only if there is nothing else
			}
			return pin{}, false
		}
		fits, known := r.meets(s.Versions)
		if !known {
			return pin{}, false
		}
		if f.simple.Yanked != nil && f.simple.Yanked != false {
			if fits && strings.Contains(s.Versions, "==") {
				return pin{}, false
			}
			continue // pip takes it only if it is asked for by its number
		}
		if fits && f.simple.Requires != nil && strings.TrimSpace(*f.simple.Requires) != "" {
			if fits, known = pythonMeets(g.order.Runtime, *f.simple.Requires); !known {
				return pin{}, false
			}
		}
		if !fits {
			continue
		}
		switch c := r.compare(newest); {
		case best == nil || c > 0:
			best, newest = []listedFile{f}, r
		case c == 0:
			best = append(best, f)
		}
	}
	// A wheel beside it may be for this platform, which pip would prefer.
	if len(best) != 1 || !pureWheel().MatchString(best[0].name) {
		return pin{}, false
	}
	data, err := g.metadata(g.ctx, best[0])
	if err != nil || depends(data) {
		return pin{}, false
	}
	return pin{file: best[0].file, index: pr.index, core: best[0].core}, true
}

// depends reports whether metadata names a dependency that no extra has to ask for, or cannot
// be read.
func depends(metadata []byte) bool {
	head, err := textproto.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(metadata), strings.NewReader("\n\n")))).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) || head.Get("Name") == "" {
		return true
	}
	for _, d := range head["Requires-Dist"] {
		_, marker, _ := strings.Cut(d, ";")
		if !onlyExtra().MatchString(marker) {
			return true
		}
	}
	return false
}

// onlyExtra matches a marker that is true only if an extra was asked for.
var onlyExtra = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*extra\s*==\s*["'][A-Za-z0-9._-]+["']\s*$`) })

// directNode returns the version that npm would choose for a spec, if that is plain to see.
func (g *Gateway) directNode(s Spec) (pin, bool) {
	pr, err := g.project(s.Name)
	if err != nil {
		return pin{}, false
	}
	version := strings.TrimPrefix(s.Versions, "=")
	if version == "" || version == "latest" {
		version = pr.npm.Tags["latest"]
	}
	v, ok := pr.npm.Versions[version]
	bare := empty(v.Dependencies) && empty(v.Optional) && empty(v.Peer) && len(v.OS)+len(v.CPU)+len(v.Libc) == 0 && !v.Shrinkwrap && !bundles(v.Bundle) && !bundles(v.Bundled)
	if !ok || !bare {
		return pin{}, false
	}
	return pin{file: pr.npm.dist[version], index: pr.index, path: "node_modules/" + s.Name}, true
}

// empty reports whether a JSON value is an object without members, or none.
func empty(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	return len(raw) == 0 || json.Unmarshal(raw, &members) == nil && len(members) == 0
}
