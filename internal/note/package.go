package note

import "github.com/sandboxmcp/sandboxmcp/internal/pynames"

// installing is install for a Python module, whose package may have another name.
func (r *Run) installing(module string) string {
	name := pynames.Package(module)
	if name == "" {
		return r.install(module)
	}
	if how := r.install(name); how != "" {
		return " It comes with the package " + name + "." + how
	}
	return ""
}
