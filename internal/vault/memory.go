package vault

import (
	"context"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// inMemory returns the unexpired secrets that a namespace has in memory.
func (v *Vault) inMemory(ns sandboxmcp.Namespace) *Set {
	v.mu.Lock()
	defer v.mu.Unlock()
	set := v.memory[ns]
	if set == nil {
		return &Set{}
	}
	if slices.ContainsFunc(set.Items, v.expired) {
		set = v.sorted(set.Items)
		v.memory[ns] = set
	}
	return set
}

// addMemory records the access and then adds the secret.
func (v *Vault) addMemory(ctx context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	v.adding.Lock()
	defer v.adding.Unlock()
	if err := v.checkFit(v.inMemory(c.Namespace).Items, s); err != nil {
		return err
	}
	if err := v.cfg.Store.Update(ctx, v.cfg.Audit.Op(v.entry(c, "add", s.Key))); err != nil {
		return err
	}
	now := v.cfg.Now()
	had := v.inMemory(c.Namespace).Items
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last++
	item := Item{Key: s.Key, Value: s.Value, Version: v.last, created: now.UTC()}
	if s.TTL > 0 {
		item.expires, item.until = now.Add(s.TTL).UTC(), v.elapsed()+s.TTL
	}
	had = slices.DeleteFunc(slices.Clone(had), func(i Item) bool { return i.Key == s.Key })
	v.memory[c.Namespace] = v.sorted(append(had, item))
	return nil
}

func (v *Vault) deleteMemory(ctx context.Context, c sandboxmcp.Caller, key string) error {
	v.adding.Lock()
	defer v.adding.Unlock()
	is := func(i Item) bool { return i.Key == key }
	if !slices.ContainsFunc(v.inMemory(c.Namespace).Items, is) {
		return unknown(key)
	}
	if err := v.cfg.Store.Update(ctx, v.cfg.Audit.Op(v.entry(c, "delete", key))); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if set := v.memory[c.Namespace]; set != nil {
		v.memory[c.Namespace] = v.sorted(slices.DeleteFunc(slices.Clone(set.Items), is))
	}
	return nil
}

// checkFit fails if the secrets would not fit into the environment of a program.
func (v *Vault) checkFit(have []Item, s sandboxmcp.SecretSpec) error {
	count, sum := 1, len(s.Value.Reveal())
	for _, i := range have {
		if i.Key != s.Key {
			count, sum = count+1, sum+len(i.Value.Reveal())
		}
	}
	return tooMuch(count, sum)
}

func tooMuch(count, sum int) error {
	switch {
	case count > maxKeys:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the namespace would have %d secrets; at most %d are allowed", count, maxKeys)
	case sum > maxBytes:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the namespace's secrets would have %d bytes; at most %d are allowed", sum, maxBytes)
	}
	return nil
}

// envPrefix is the prefix of the variables of a vault in the environment.
const envPrefix = "SANDBOXMCP_SECRET_"

// envPart returns the name prefix of a namespace's variables.
func envPart(ns sandboxmcp.Namespace) string {
	return envPrefix + strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(string(ns))) + "_"
}

// inEnv returns the secrets that a namespace has in the environment. They never change.
func (v *Vault) inEnv(ns sandboxmcp.Namespace) (*Set, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if set := v.memory[ns]; set != nil {
		return set, nil
	}
	if !slices.Contains(v.cfg.Namespaces, ns) {
		return &Set{}, v.checkUnnamed(ns)
	}
	set, err := v.fromEnv(ns)
	if err == nil {
		v.memory[ns] = set
	}
	return set, err
}

// checkUnnamed fails if a variable could be a secret of a namespace that is not in
// [Config.Namespaces], such as one that a token names. It is not known to which namespace such a variable
// belongs, so no namespace gets it.
func (v *Vault) checkUnnamed(ns sandboxmcp.Namespace) error {
	part := envPart(ns)
	if !slices.ContainsFunc(v.cfg.Env, func(kv string) bool { return strings.HasPrefix(kv, part) }) {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the environment has variables %s…, and no setting names the namespace %s", part, ns).
		WithHint("name it in namespace or api_keys, or use another SANDBOXMCP_VAULT")
}

// SetNamespaces replaces [Config.Namespaces]. It fails and changes nothing if a variable could then
// belong to two of them.
func (v *Vault) SetNamespaces(all []sandboxmcp.Namespace) error {
	if v.cfg.Kind != Env {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.cfg.Namespaces
	v.cfg.Namespaces = all
	sets := make(map[sandboxmcp.Namespace]*Set, len(all))
	for _, ns := range all {
		set, err := v.fromEnv(ns)
		if err != nil {
			v.cfg.Namespaces = before
			return err
		}
		sets[ns] = set
	}
	v.memory = sets
	return nil
}

// fromEnv reads the secrets of a namespace from the environment. The key is the name of
// the variable without envPart. A variable that could also belong to another namespace in
// use is an error.
func (v *Vault) fromEnv(ns sandboxmcp.Namespace) (*Set, error) {
	part := envPart(ns)
	var items []Item
	seen := map[string]bool{}
	for n, kv := range slices.Backward(v.cfg.Env) { // if a name occurs twice, the last one counts
		name, value, ok := strings.Cut(kv, "=")
		key, is := strings.CutPrefix(name, part)
		if !ok || !is || key == "" || seen[key] {
			continue
		}
		seen[key] = true
		for _, other := range v.cfg.Namespaces {
			if other != ns && strings.HasPrefix(name, envPart(other)) {
				return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s could be a secret of namespace %s or of %s", name, ns, other).
					WithHint("rename one of the namespaces, or use another SANDBOXMCP_VAULT")
			}
		}
		if err := v.check(key, value); err != nil {
			e := sandboxmcp.AsError(err)
			return nil, sandboxmcp.Errorf(e.Code, "%s: %s", name, e.Message).WithHint("correct or unset " + name)
		}
		items = append(items, Item{Key: key, Value: sandboxmcp.NewSecret(value), Version: int64(n + 1)})
	}
	if err := tooMuch(len(items), sumOf(items)); err != nil {
		return nil, err
	}
	return v.sorted(items), nil
}

func sumOf(items []Item) (sum int) {
	for _, i := range items {
		sum += len(i.Value.Reveal())
	}
	return sum
}
