package runtimes

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// judge sets TrustedForPreload and TrustedSite. The result is not cached, because
// permissions change without a change of size or time.
func (in *Interpreter) judge() {
	in.TrustedForPreload = trusted(append([]string{in.Path}, in.ReadOnlyDirs...))
	in.TrustedSite = in.TrustedForPreload
	if in.Language != sandboxmcp.Python || in.Virtual || !in.TrustedForPreload {
		return
	}
	library, packages := in.pythonDirs()
	in.TrustedForPreload = trusted(library)
	in.TrustedSite = in.TrustedForPreload && trusted(packages)
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
