package engine

import (
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// surroundings is what every program finds in its environment. Nothing in it is
// a secret.
func surroundings() map[string]any {
	env := map[string]any{}
	for k, v := range kernel.Surroundings() {
		env[k] = v
	}
	return env
}

// surroundings is what the programs of a session find in their environment.
// Nothing in it is a secret: what a run brings with it, nobody else is shown.
func (r *room) surroundings() map[string]any {
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
