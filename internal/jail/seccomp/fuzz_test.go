package seccomp_test

import (
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// FuzzFilter: the compiled filter and the policy give the same verdict for every call.
func FuzzFilter(f *testing.F) {
	f.Add(uint8(0), false, uint32(0xc000003e), uint32(41), uint64(2), uint64(3), uint64(6), uint64(0))
	f.Add(uint8(1), false, uint32(0xc000003e), uint32(9), uint64(0), uint64(0), uint64(0), uint64(0x21))
	f.Add(uint8(0), true, uint32(0xc00000b7), uint32(220), uint64(0x10000011), uint64(0), uint64(0), uint64(0))
	f.Add(uint8(0), true, uint32(0xc00000b7), uint32(29), uint64(0), uint64(0x5412), uint64(0), uint64(0))
	machines := map[string]machine{}
	for _, a := range arches {
		for bits := range uint8(32) {
			machines[fmt.Sprint(a, bits)] = compiled(f, variantOf(bits), a)
		}
	}
	f.Fuzz(func(t *testing.T, bits uint8, arm bool, audit, nr uint32, a0, a1, a2, a3 uint64) {
		a := seccomp.AMD64
		if arm {
			a = seccomp.ARM64
		}
		if audit%4 != 0 { // in most cases the right architecture, because calls of others are refused anyway
			audit = a.AuditValue()
		}
		c := seccomp.Call{Audit: audit, Number: nr, Args: [6]uint64{a0, a1, a2, a3}}
		got, want := machines[fmt.Sprint(a, bits%32)].run(t, c), seccomp.New(variantOf(bits%32)).Decide(a, c)
		if got != want {
			t.Errorf("%s %d %+v: filter says %v, policy %v", a, bits, c, got, want)
		}
	})
}
