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
				dir := strings.TrimSpace(line)
				if !filepath.IsAbs(dir) || strings.ContainsAny(dir, `*?[\`) || seen[dir] || len(seen) == maxEditable {
					continue
				}
				seen[dir] = true
				if changes(dir) {
					continue
				}
				for _, about := range []string{"/*.egg-info", "/*.dist-info"} {
					found, _ := filepath.Glob(dir + about)
					for _, path := range found[:min(len(found), maxEditable)] {
						if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink == 0 {
							all = append(all, path)
						}
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
