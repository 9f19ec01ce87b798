package environment

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Recipe is a package set that can be installed.
type Recipe struct {
	Name     string
	Packages []string // as the index has them
	Trial    string   // a program that imports them all and leaves what may be kept for later runs

	preload []preload // the first that fits a program is taken
}

// preload are modules that a program will import that has a word for one of them.
type preload struct {
	imports *regexp.Regexp
	modules []string
}

// Preload names modules of the set that a program is going to import, by what its
// code looks like: a guess that costs time and nothing else when it is wrong.
func (s Set) Preload(code string) []string {
	r, err := FindRecipe(s.Name)
	if err != nil {
		return nil
	}
	for _, p := range r.preload {
		if p.imports.MatchString(code) {
			return p.modules
		}
	}
	return nil
}

// importing finds a program that imports one of some packages.
func importing(packages string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[ \t]*(?:import|from)[ \t]+(?:[\w., ]+,[ \t]*)?(?:` + packages + `)\b`)
}

// Recipes are the sets that there are.
func Recipes() []Recipe { return []Recipe{science} }

// FindRecipe returns the recipe of a name.
func FindRecipe(name string) (Recipe, error) {
	all := Recipes()
	if i := slices.IndexFunc(all, func(r Recipe) bool { return r.Name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	return Recipe{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "there is no package set %s", sandboxmcp.Quote(name)).
		WithHint("use one of " + strings.Join(names, ", "))
}

var science = Recipe{
	Name:     "science",
	Packages: []string{"pandas", "numpy", "matplotlib", "seaborn", "scipy", "openpyxl", "reportlab", "pyarrow"},
	Trial: `import glob, os, shutil
import numpy, scipy.stats, pandas, pyarrow.parquet, openpyxl, reportlab.pdfgen.canvas
import matplotlib, matplotlib.pyplot, seaborn
for path in glob.glob(os.path.join(matplotlib.get_cachedir(), "fontlist-v*.json")):
    shutil.copy(path, ".")
`,
	preload: []preload{
		{importing("matplotlib|seaborn"), []string{"numpy", "pandas", "matplotlib.pyplot"}},
		{importing("pandas|numpy|scipy|pyarrow"), []string{"numpy", "pandas"}},
	},
}

// Variables are what packages of sets are steered by: as many threads as a
// sandbox has processors by default, charts without a screen, caches where a
// program may write.
func Variables() map[string]string {
	return map[string]string{
		"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1",
		"MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/matplotlib",
		"JE_ARROW_MALLOC_CONF": "background_thread:false", // a thread in every program that imports pandas
	}
}
