package runtimes

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// judge sets TrustedForPreload and TrustedSite. The result is not stored in the cache, because
// permissions change without a change of size or time.
func (in *Interpreter) judge() {
	t := trust{}
	in.TrustedForPreload = t.trusted(append([]string{in.Path}, in.ReadOnlyDirs...))
	in.TrustedSite = in.TrustedForPreload
	if in.Language != sandboxmcp.Python || in.Virtual || !in.TrustedForPreload {
		return
	}
	library, packages := in.pythonDirs()
	in.TrustedForPreload = t.trusted(library)
	in.TrustedSite = in.TrustedForPreload && t.trusted(packages)
}

// trust holds what is known of paths while an interpreter is judged, so that the directories
// above several of its paths are looked at once.
type trust map[string]pathTrust

// pathTrust is what is known of a path and of all directories above it.
type pathTrust struct {
	rootOnly bool // only root can change them
	linked   bool // one of them is a symbolic link
}

// trusted reports whether only root can change the paths and the directories above them. For
// a path with links it checks both the path as given and the one that it leads to.
func (t trust) trusted(paths []string) bool {
	for _, p := range paths {
		known := t.look(p)
		if known.rootOnly && known.linked {
			real, err := filepath.EvalSymlinks(p)
			known.rootOnly = err == nil && t.look(real).rootOnly
		}
		if !known.rootOnly {
			return false
		}
	}
	return true
}

// look returns what is known of a path.
func (t trust) look(p string) pathTrust {
	if known, ok := t[p]; ok {
		return known
	}
	var known pathTrust
	if info, err := os.Lstat(p); err == nil {
		known.linked = info.Mode()&os.ModeSymlink != 0
		// The permission bits of a symbolic link have no meaning. The directory that holds the
		// link is checked.
		known.rootOnly = known.linked || onlyRootWrites(info)
	}
	if known.rootOnly && p != "/" && p != "." {
		above := t.look(filepath.Dir(p))
		known.rootOnly, known.linked = above.rootOnly, known.linked || above.linked
	}
	t[p] = known
	return known
}

// pythonDirs returns the directories of a Python's own modules, and those of its packages,
// which also hold files that run at start (.pth, sitecustomize). Directories that do not
// exist are left out.
func (in *Interpreter) pythonDirs() (library, packages []string) {
	minor, rest, _ := strings.Cut(in.Version, ".")
	rest, _, _ = strings.Cut(rest, ".")
	prefix, name := filepath.Dir(filepath.Dir(in.Path)), "python"+minor+"."+rest
	add := func(list *[]string, parts ...string) {
		if dir := filepath.Join(append([]string{prefix}, parts...)...); isDir(dir) {
			*list = append(*list, dir)
		}
	}
	for _, lib := range []string{"lib", "lib64"} {
		add(&library, lib, name)
		add(&library, lib, name, "lib-dynload")
		add(&packages, lib, name, "site-packages")
		add(&packages, lib, name, "dist-packages")
	}
	add(&packages, "lib", "python3", "dist-packages")
	add(&packages, "local", "lib", name, "dist-packages")
	return library, packages
}

func isDir(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.IsDir()
}
