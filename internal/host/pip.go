package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// editable returns what pip reads of packages that are installed where their source is: what directories which files .pth in
// directories lib name have about a package. The source itself is not among that, and neither are links: others may have written the
// source, and what such a link leads to would be read. Of a directory that changes reports, nothing is looked at.
func editable(b *budget, libs []string, changes func(path string) bool) (all []string) {
	seen := map[string]bool{}
	for _, lib := range libs {
		if !strings.HasPrefix(filepath.Base(lib), "lib") {
			continue
		}
		files, _ := filepath.Glob(lib + "/python3*/*-packages/*.pth") // a bad pattern finds none
		for _, file := range files {
			for line := range strings.Lines(b.read(file, maxPackage)) {
				dir := filepath.Clean(strings.TrimSpace(line))
				if !filepath.IsAbs(dir) || seen[dir] || !b.note(dir) {
					continue
				}
				seen[dir] = true
				if !changes(dir) {
					all = append(all, aboutPackages(b, dir)...)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// aboutPackages returns what a directory has about packages, without links.
func aboutPackages(b *budget, dir string) (all []string) {
	for e := range b.entries(dir) {
		ext := filepath.Ext(e.Name())
		if (ext == ".egg-info" || ext == ".dist-info") && e.Type()&os.ModeSymlink == 0 {
			path := filepath.Join(dir, e.Name())
			if !b.keep(path) {
				break
			}
			all = append(all, path)
		}
	}
	return all
}
