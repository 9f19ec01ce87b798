package process_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// known is how a fork differs: its table of descriptors has not grown by those
// of init, and its interpreter was started as the owner of the user namespaces.
var known = strings.NewReplacer("status FDSize:\t128", "status FDSize:\t64", "status Seccomp_filters:\t2", "status Seccomp_filters:\t3", "auxv ids [0, 0, 0, 0]", "auxv ids [1000, 1000, 1000, 1000]")

// TestForkIsAsExecutedDeep compares a fork with an executed program by all that
// the kernel tells of them, and by what every system call does.
func TestForkIsAsExecutedDeep(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		if testing.Short() && name != "Usual" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := newBackend(change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			deep := testkit.Hostile(t, "tries-everything.py")
			want, wantExit, _, wantIso := ran(t, b, spec("executed"), deep)
			hatched(t, b, spec("warm"))
			forks := b.(*process.Backend).Forks()
			got, gotExit, _, gotIso := ran(t, b, spec("forked"), deep)
			if b.(*process.Backend).Forks() < forks {
				t.Fatal("got no further fork, want the program forked")
			}
			if diff := cmp.Diff(strings.Split(known.Replace(want), "\n"), strings.Split(known.Replace(got), "\n")); diff != "" {
				t.Errorf("a fork is another than an executed program (-executed +forked):\n%s", diff)
			}
			if diff := cmp.Diff([]any{wantExit, wantIso}, []any{gotExit, gotIso}); diff != "" {
				t.Errorf("exit and isolation (-executed +forked):\n%s", diff)
			}
			if !slices.Contains(strings.Split(got, "\n"), "again by exe 7") {
				t.Errorf("it did not come to its end: %s", got)
			}
		})
	}
}
