package runtimes

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// judge looks who can change what the interpreter loads. Rights change without a
// trace in size or time, so what is found is not remembered.
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

// pythonDirs are the directories of a Python's own modules, and those in which it
// finds others, with the files that it runs at its start (.pth, sitecustomize).
// Only those that are there.
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
