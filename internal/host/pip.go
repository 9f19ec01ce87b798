package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxEditable bounds the directories that are looked at for packages which are installed where their source is, and what is found there.
const maxEditable = 1000

// editable returns what pip reads of packages that are installed where their source is: what directories which files .pth in
// directories lib name have about a package. The source itself is not among that, and neither are links: others may have written the
// source, and what such a link leads to would be read. Of a directory that changes reports, nothing is looked at.
func editable(libs []string, changes func(path string) bool) (all []string) {
	seen := map[string]bool{}
	for _, lib := range libs {
		if !strings.HasPrefix(filepath.Base(lib), "lib") {
			continue
		}
		files, _ := filepath.Glob(lib + "/python3*/*-packages/*.pth") // a bad pattern finds none
		for _, file := range files {
			text, _ := plainfile.Read(file, maxPackage)
			for line := range strings.Lines(string(text)) {
				dir := filepath.Clean(strings.TrimSpace(line))
				if !filepath.IsAbs(dir) || seen[dir] || len(seen) == maxEditable {
					continue
				}
				seen[dir] = true
				if !changes(dir) {
					all = append(all, aboutPackages(dir)...)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// aboutPackages returns what a directory has about packages, without links. It reads up to maxEntries entries.
func aboutPackages(dir string) (all []string) {
	for _, e := range entriesOf(dir, maxEntries) {
		ext := filepath.Ext(e.Name())
		if (ext == ".egg-info" || ext == ".dist-info") && e.Type()&os.ModeSymlink == 0 && len(all) < maxEditable {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}
