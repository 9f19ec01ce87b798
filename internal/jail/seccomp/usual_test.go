package seccomp_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// TestUsualFilters: the filters that were compiled ahead are those that Compile returns.
func TestUsualFilters(t *testing.T) {
	for _, a := range []seccomp.Arch{seccomp.AMD64, seccomp.ARM64} {
		want, err := seccomp.CompileUsual(a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("usual_" + string(a) + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("usual_%s.bin differs from what CompileUsual returns; run make generate", a)
		}
		for _, v := range append(variants(), seccomp.Variant{Part: seccomp.Common}, seccomp.Variant{Part: seccomp.Rest, Notices: true}, seccomp.Variant{Part: seccomp.Rest, AllowSetns: true}) {
			want, err := seccomp.Compile(seccomp.New(v), a)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := seccomp.Filter(v, a); err != nil || !bytes.Equal(got, want) {
				t.Errorf("filter of %+v for %s: got one that differs from that of Compile, %v", v, a, err)
			}
		}
	}
}
