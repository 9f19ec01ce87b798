package seccomp_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// A filter that was compiled ahead is the one that the sources give.
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
			t.Errorf("usual_%s.bin is not what the sources give; run make generate", a)
		}
		for _, v := range variants() {
			want, err := seccomp.Compile(seccomp.New(v), a)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := seccomp.Filter(v, a); err != nil || !bytes.Equal(got, want) {
				t.Errorf("filter of %+v for %s is another one than Compile gives, %v", v, a, err)
			}
		}
	}
}
