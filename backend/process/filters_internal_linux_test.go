package process

import (
	"bytes"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// TestAFilterIsCompiledOnce: all jails of a mode have the same filter, which is that of the policy.
func TestAFilterIsCompiledOnce(t *testing.T) {
	arch, ok := seccomp.Native()
	if !ok {
		t.Skip("no table of system calls for this architecture")
	}
	var b Backend
	for _, mode := range []jail.Mode{jail.ModeRoot, jail.ModeUser, jail.ModePlain, jail.ModeContainer} {
		var one, two jail.Config
		one.Mode, two.Mode = mode, mode
		for _, cfg := range []*jail.Config{&one, &two} {
			if err := b.setFilters(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if &one.Filter[0] != &two.Filter[0] {
			t.Errorf("mode %v: got a filter that was compiled again, want the first", mode)
		}
		want, err := seccomp.Compile(seccomp.New(b.variantOf(mode, false)), arch)
		if err != nil || !bytes.Equal(one.Filter, want) {
			t.Errorf("mode %v: got another filter than that of its policy (%v)", mode, err)
		}
		if (one.Entering == nil) != (mode == jail.ModeContainer) || bytes.Equal(one.Entering, one.Filter) {
			t.Errorf("mode %v: got a filter of %d bytes for processes that enter, want another one, and none in a container", mode, len(one.Entering))
		}
	}
}

// TestFiltersOfTheFirstModeAreCompiledAhead: the first jail of a machine with control groups compiles
// no filter itself.
func TestFiltersOfTheFirstModeAreCompiledAhead(t *testing.T) {
	if _, ok := seccomp.Native(); !ok {
		t.Skip("no table of system calls for this architecture")
	}
	var b Backend
	b.cfg.Writable = true // no other test here has this variant
	v := b.variantOf(strongest(), true)
	b.compileAhead()
	b.builds.Wait()
	for _, v := range []seccomp.Variant{v, entering(v)} {
		if _, ok := compiled.Load(v); !ok {
			t.Errorf("variant %+v: got none compiled, want one", v)
		}
	}
}
