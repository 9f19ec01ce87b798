package environment

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Recipe is a package set that can be installed.
type Recipe struct {
	Name     string
	Packages []string // names in the package index
	Trial    string   // a program that imports all packages and writes caches for Library.Keep

	preload []preload // the first match is used
}

// preload lists the modules that a program needs if imports matches its code. Those with a dot in their
// name may be missing in other versions of their package.
type preload struct {
	imports func() *regexp.Regexp
	modules []string
}

// Preload guesses from a program's code which modules of the set it will import. A wrong
// guess only costs time.
func (s Set) Preload(code string) []string {
	r, err := FindRecipe(s.Name)
	if err != nil {
		return nil
	}
	for _, p := range r.preload {
		if p.imports().MatchString(code) {
			return p.modules
		}
	}
	return nil
}

// importing returns an expression that matches code with an import of one of the packages,
// which are separated by "|". It is compiled when it is first used.
func importing(packages string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*(?:import|from)[ \t]+(?:[\w., ]+,[ \t]*)?(?:` + packages + `)\b`)
	})
}

// Recipes returns all recipes.
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
		{importing("matplotlib|seaborn"), append(frames(), "matplotlib.pyplot")},
		{importing("pandas|numpy|scipy|pyarrow"), frames()},
	},
}

// frames returns the modules of programs with data frames: pandas, and what it imports itself when the
// first frame is made, printed or written as CSV or HTML.
func frames() []string {
	return []string{"numpy", "pandas", "pyarrow.pandas_compat", "pyarrow.vendored.version", "pandas.io.formats.string", "pandas.io.formats.csvs", "pandas.io.formats.html"}
}

// Variables returns environment variables for the packages of sets: as many threads as a
// sandbox has CPU cores by default, charts without a display, and caches in a writable
// directory.
func Variables() map[string]string {
	return map[string]string{
		"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1",
		"MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/matplotlib",
		"JE_ARROW_MALLOC_CONF": "background_thread:false", // no background thread in every program that imports pandas
	}
}
