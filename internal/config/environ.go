package config

import (
	"net/netip"
	"os"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Environ returns this process's environment. Only this function reads it; all other code
// gets it as an argument.
func Environ() []string { return os.Environ() }

// OnlyPlaces returns the variables of an environment that determine the state directory.
func OnlyPlaces(env []string) []string {
	var keep []string
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "SANDBOXMCP_STATE_DIR"} {
		if v := Lookup(env, name); v != "" {
			keep = append(keep, name+"="+v)
		}
	}
	return keep
}

// Lookup returns the value of a variable, or "" if the environment does not have it.
func Lookup(env []string, name string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// KeyNamespaces returns the namespaces of the API keys: those that a key names, and the server's own if it names
// none and is not an operator's.
func (c *Config) KeyNamespaces() []sandboxmcp.Namespace {
	var all []sandboxmcp.Namespace
	for _, k := range c.APIKeys {
		all = append(all, k.Namespaces...)
		if len(k.Namespaces) == 0 && !k.Operator {
			all = append(all, c.Namespace)
		}
	}
	return all
}

// KeyHolders maps a namespace to the API key that alone may use it, if that key has several namespaces. The key is
// named as in [sandboxmcp.Caller.Holder]. With an issuer of tokens the map is empty, because a token may name any
// namespace.
func (c *Config) KeyHolders() map[sandboxmcp.Namespace]string {
	keys, holders := map[sandboxmcp.Namespace]int{}, map[sandboxmcp.Namespace]string{}
	for _, ns := range c.KeyNamespaces() {
		keys[ns]++
	}
	for i, k := range c.APIKeys {
		for _, ns := range k.Namespaces {
			if c.OAuthIssuer == "" && len(k.Namespaces) > 1 && keys[ns] == 1 && ns != c.Namespace {
				holders[ns] = sandboxmcp.KeyActor(i + 1)
			}
		}
	}
	return holders
}

// Detours returns the addresses that stand in for domains in tests.
func (c *Config) Detours() map[sandboxmcp.Domain]netip.AddrPort {
	m := make(map[sandboxmcp.Domain]netip.AddrPort, len(c.EgressTestResolve))
	for _, d := range c.EgressTestResolve {
		m[sandboxmcp.Domain{Host: d.Host, Port: d.Port}] = d.To
	}
	return m
}
