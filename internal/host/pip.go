package host

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxEditable bounds the directories that are looked at for packages which are installed where their source is.
const maxEditable = 1000

// editable returns what pip reads of packages that are installed where their source is: what directories which files .pth in
// directories lib name have about a package. The source itself is not among that.
func editable(libs []string) (all []string) {
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
				for _, about := range []string{"/*.egg-info", "/*.dist-info"} {
					found, _ := filepath.Glob(dir + about)
					all = append(all, found...)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
