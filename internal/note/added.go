package note

import (
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

// added names the imports that the program lacked and the driver added; empty: it added none.
func (r *Run) added() string {
	v, ok := r.Result.Metadata["validation"].(map[string]any)
	if !ok {
		return ""
	}
	fixes, _ := v["fixes_applied"].([]string)
	var list []string
	for _, f := range fixes {
		if pynames.IsAdded(f) { // the driver's words, which a program can forge
			list = append(list, strings.TrimPrefix(f, pynames.Added("")))
		}
	}
	switch len(list) {
	case 0:
		return ""
	case 1:
		return "Added: " + list[0] + ". Put it into the program."
	}
	return "Added: " + strings.Join(list, ", ") + ". Put them into the program."
}
