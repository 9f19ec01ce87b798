package note

import "strings"

// resources says what ended a program whose status is out_of_memory: the memory limit, or a bound of
// kernel objects, which a higher limit does not raise.
func (r *Run) resources() string {
	exceeded, _ := r.Result.Metadata["exceeded"].(string)
	switch {
	case exceeded == "":
		return r.memory(r.atMemory())
	case strings.HasSuffix(exceeded, "that the memory limit ended"), strings.HasSuffix(exceeded, "in pipes and Unix sockets"):
		return r.memory("Stopped for " + exceeded + ".")
	}
	return "Stopped for " + exceeded + ". More memory does not raise this bound: hold less at once."
}
