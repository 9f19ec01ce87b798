package seccomp_test

import (
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// TestPartsDecideAsTheWhole: a program with Common and Rest of its variant, and a fork, which has the
// filter of the fork server as well, get the verdicts of the whole policy.
func TestPartsDecideAsTheWhole(t *testing.T) {
	values := edges()
	for _, a := range arches {
		for i, v := range variants() {
			if v.AllowSetns || v.Command { // Common refuses more than these variants
				continue
			}
			whole, enters := compiled(t, v, a), v
			v.Part, enters.Part = seccomp.Rest, seccomp.Rest
			enters.AllowSetns, enters.Notices = true, false
			common, rest := compiled(t, seccomp.Variant{Part: seccomp.Common}, a), compiled(t, v, a)
			parts := []machine{
				{slices.Concat(common.vms, rest.vms)},
				{slices.Concat(common.vms, compiled(t, enters, a).vms, rest.vms)},
			}
			same := func(c seccomp.Call) {
				want := whole.run(t, c)
				for _, p := range parts {
					if got := p.run(t, c); got != want {
						t.Fatalf("%s %+v: %+v: %d filters say %v, the whole %v", a, v, c, len(p.vms), got, want)
					}
				}
			}
			for n, nr := range numbers() {
				x := values[(n*7+i)%len(values)]
				same(seccomp.Call{Audit: a.AuditValue(), Number: nr, Args: [6]uint64{x, x, x, x, x, x}})
				same(seccomp.Call{Audit: 0xc0000028, Number: nr})
			}
			if i%4 != 0 { // all of them would take minutes
				continue
			}
			for _, name := range []string{"clone", "prctl", "prlimit64", "seccomp", "socket", "ioctl", "setsockopt", "epoll_ctl", "setpgid", "ppoll", "pselect6", "mmap", "openat", "memfd_create"} {
				for _, x := range values {
					for _, y := range []uint64{0, 1, 2, 6, 8, 23, 26, 64, 263, 1 << 32} {
						same(seccomp.Call{Audit: a.AuditValue(), Number: numberOf(t, a, name), Args: [6]uint64{y, x, y, x, y, y}})
						same(seccomp.Call{Audit: a.AuditValue(), Number: numberOf(t, a, name), Args: [6]uint64{x, y, y, y, x, x}})
					}
				}
			}
		}
	}
}
