package interpreter

import (
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// Installed is a tree of packages that was installed for a session or a namespace.
type Installed struct {
	Language sandboxmcp.Language // Python or Node
	Tree     backend.Tree        // has a directory site-packages or node_modules
	Digest   string              // of the tree
	Names    []string            // of its packages, normalized
}

// NewInstalled returns the tree of a directory of the host, whose content has the digest.
func NewInstalled(l sandboxmcp.Language, dir, digest string, names []string) Installed {
	inside := path.Join(backend.PackageDir, string(l)+"-"+digest[:min(len(digest), 16)])
	return Installed{Language: l, Tree: backend.Tree{Host: dir, Inside: inside}, Digest: digest, Names: names}
}

// Same reports whether two trees are the same.
func (t Installed) Same(other Installed) bool { return t.Tree == other.Tree }

// dirs returns the directories that programs search for its packages.
func (f *Finder) dirs(t Installed) []string {
	all := []string{path.Join(t.Tree.Inside, packageDir[t.Language])}
	if f.cfg.MinTier == sandboxmcp.TierL1 { // a sandbox of that tier may have no mounts, so programs use the host's path
		all = append(all, path.Join(t.Tree.Host, packageDir[t.Language]))
	}
	return all
}

var packageDir = map[sandboxmcp.Language]string{sandboxmcp.Python: "site-packages", sandboxmcp.Node: "node_modules"}

// WithInstalled returns the interpreter with trees added, the most important first. They go
// before the package sets.
func (f *Finder) WithInstalled(i Interpreter, trees []Installed) Interpreter {
	i.Modules, i.installed = nil, trees
	i.Trees = slices.Clone(i.Trees)
	var sets []string
	for _, t := range trees {
		for _, dir := range f.dirs(t) {
			if t.Language == sandboxmcp.Node {
				i.Modules = append(i.Modules, dir)
			} else {
				sets = append(sets, path.Dir(dir))
			}
		}
		i.Trees = joined(i.Trees, []backend.Tree{t.Tree})
	}
	i.Sets = append(sets, i.Sets...)
	return i
}

// Bare returns the interpreter without package sets.
func (i Interpreter) Bare() Interpreter {
	sets := i.Sets
	i.Sets = nil
	i.Trees = slices.DeleteFunc(slices.Clone(i.Trees), func(t backend.Tree) bool { return slices.Contains(sets, t.At()) })
	return i
}

// hides reports whether a package that was installed has the name of one in the sets. Nothing of
// the sets may then be imported ahead.
func (i Interpreter) hides(sets []environment.Set) bool {
	for _, t := range i.installed {
		for _, s := range sets {
			if t.Language == sandboxmcp.Python && slices.ContainsFunc(s.Wheels, func(w environment.Wheel) bool { return slices.Contains(t.Names, w.Name) }) {
				return true
			}
		}
	}
	return false
}

// Paths returns the directories of Python and of Node.js packages in trees, and the variables by
// which programs that a program starts find them. sets are directories of package sets, which
// come after the trees.
func (f *Finder) Paths(trees []Installed, sets []string) (python, node []string, env map[string]string) {
	for _, t := range trees {
		if t.Language == sandboxmcp.Node {
			node = append(node, f.dirs(t)...)
		} else {
			python = append(python, f.dirs(t)...)
		}
	}
	env = map[string]string{}
	if len(python) > 0 {
		all := slices.Clone(python)
		for _, s := range sets {
			all = append(all, path.Join(s, packageDir[sandboxmcp.Python]))
		}
		env["PYTHONPATH"] = strings.Join(all, ":")
	}
	if len(node) > 0 {
		env["NODE_PATH"] = strings.Join(append([]string{path.Join(backend.WorkDir, "node_modules")}, node...), ":")
	}
	return python, node, env
}
