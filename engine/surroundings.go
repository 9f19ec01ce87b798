package engine

import (
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// surroundings returns the environment of every program. It has no secrets.
func surroundings() map[string]any {
	env := map[string]any{}
	for k, v := range kernel.Surroundings() {
		env[k] = v
	}
	return env
}

// surroundings returns the environment of the session's interpreter. It has no secrets
// and no variables of single runs.
func (r *liveSession) surroundings() map[string]any {
	plan, err := kernel.PlanInterpreter(r.program)
	if err != nil {
		return surroundings()
	}
	env := map[string]any{}
	for _, kv := range plan.Env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}
