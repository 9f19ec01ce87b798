package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// TestABudgetStaysUsedUp: once a budget is used up, every further spend fails, also a small one. A part that is used up leaves the rest of the
// budget to the command. A budget apart takes nothing from that of the command.
func TestABudgetStaysUsedUp(t *testing.T) {
	b := newBudget(anyTime, 1000)
	part, apart := b.part(600), b.apart(10)
	if part.spend(601) == nil || part.spend(1) == nil || b.spend(399) != nil || apart.spend(11) == nil || b.over() != nil {
		t.Errorf("got %+v, want the part and the budget apart used up, and the budget itself not", b)
	}
	if code := sandboxmcp.CodeOf(b.spend(1)); code != sandboxmcp.CodeHostPathDenied || b.over() == nil || b.part(1).spend(0) == nil {
		t.Errorf("got %s, want host_path_denied, also for a new part", code)
	}
	now := error(nil)
	b = newBudget(func() error { return now }, 1000)
	if now = context.Canceled; !errors.Is(b.part(10).over(), context.Canceled) || !errors.Is(b.over(), context.Canceled) {
		t.Error("got that a budget goes on once the time is over, want that it ends")
	}
}

// TestWhatOthersMakeUsesUpTheBudget: each of these is within all bounds of the kernel, and there is one for each product that took the server's memory or time.
// The budget is one of a small command, so that the test needs few files.
func TestWhatOthersMakeUsesUpTheBudget(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) {
		path := filepath.Join(top, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	lines := strings.Repeat("\n", maxPath-1)
	for i := range 20 {
		store := "store" + strconv.Itoa(i)
		file(store+"/HEAD", "")
		file(store+"/refs/x", "")
		file(store+"/objects/info/alternates", lines)
		if i == 0 {
			for next := range 20 {
				lines = "../../store" + strconv.Itoa(next) + "/objects\n" + lines
			}
			file(store+"/objects/info/alternates", lines[:maxPath])
		}
	}
	source := ""
	for i := range 2000 {
		source += top + "/source" + strconv.Itoa(i) + "\n"
		if i < 500 {
			file("project/"+strconv.Itoa(i)+".pem", "")
			file("deep/"+strings.Repeat("d", 250)+"/"+strconv.Itoa(i), "")
			err = errors.Join(err, os.MkdirAll(top+"/links/node_modules", 0o755), os.Symlink("../../store0", top+"/links/node_modules/l"+strconv.Itoa(i)))
		}
	}
	file("lib/python3.11/site-packages/e.pth", source)
	if err = errors.Join(err, os.Symlink(strings.Repeat("deep/../", 500)+"deep", top+"/long")); err != nil {
		t.Fatal(err)
	}
	away := changeable{paths: []string{top + "/ws"}}
	for name, look := range map[string]func(b *budget){
		"lines of alternates": func(b *budget) { (&gitParts{}).borrow(b, top+"/store0/objects") },
		"secrets":             func(b *budget) { secretsIn(b, top+"/project") },
		"entries":             func(b *budget) { secretsIn(b, top+"/deep") },
		"links to packages": func(b *budget) {
			_, _ = linked(further{look: b, away: changeable{look: b}}, nil, []string{top + "/links"})
		},
		"sources of packages": func(b *budget) { editable(b, []string{top + "/lib"}, func(string) bool { return false }) },
		"a path":              func(b *budget) { _, _ = b.follow(top + "/long") },
		"a way":               func(b *budget) { away.look = b; away.has(top + "/long") },
		"names":               func(b *budget) { b.names(top + "/project") },
	} {
		b := newBudget(anyTime, 30_000)
		allocs := testing.AllocsPerRun(1, func() {
			b = newBudget(anyTime, 30_000)
			look(b)
		})
		if b.over() == nil || allocs > 5000 {
			t.Errorf("%s: got %.0f allocations, and %d left, want that the budget is used up soon", name, allocs, b.left)
		}
		b = newBudget(anyTime, maxLooked)
		if look(b); b.over() != nil && name != "lines of alternates" { // no repository has so many
			t.Errorf("%s: got %v, want that a command has enough", name, b.over())
		}
	}
}

// TestSpaceOfRemovedEntriesCosts: some file systems keep the space of removed entries, and read all of it.
func TestSpaceOfRemovedEntriesCosts(t *testing.T) {
	dir := plainfile.Unlinked(t.TempDir())
	file, long := dir+"/file", strings.Repeat("n", 240)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/emptied", 0o700); err != nil {
		t.Fatal(err)
	}
	const made = 2000
	name := func(i int) string { return dir + "/emptied/" + long + strconv.Itoa(i) }
	for i := range made {
		if err := os.Link(file, name(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range made {
		if err := os.Remove(name(i)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(dir + "/emptied")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() < made*200 {
		t.Skip("this file system keeps no space of removed entries")
	}
	look := newBudget(anyTime, maxHome)
	for e := range look.entries(dir + "/emptied") {
		t.Errorf("got %s, want no entry", e.Name())
	}
	if spent := maxHome - look.left; spent < made {
		t.Errorf("got %d units for a directory of %d bytes, want more", spent, info.Size())
	}
}

// TestManyPlacesBesideManyClosed: each place that a command may read is compared with each closed one. There may be many of both, and the budget bounds that.
func TestManyPlacesBesideManyClosed(t *testing.T) {
	j := job{execs: []string{"/kept"}}
	for i := range 40000 {
		j.reads = append(j.reads, "/closed/"+strconv.Itoa(i))
	}
	for i := range 10000 {
		j.only = append(j.only, "/open/"+strconv.Itoa(i))
	}
	rules := landlockRules(j)
	has := func(path string) bool {
		return slices.ContainsFunc(rules, func(r jail.ThreadRule) bool { return r.Path == path && r.Read })
	}
	if !has("/open/0") || !has("/kept") {
		t.Error("got neither the first place nor the program, want both")
	}
	if has("/open/9999") {
		t.Error("got all places, want that the budget ends them")
	}
}

// TestHomesBeyondTheFirstThousandAreClosed: the server looks for places of keys in the first thousand homes. The other homes are closed as a whole.
func TestHomesBeyondTheFirstThousandAreClosed(t *testing.T) {
	top := plainfile.Unlinked(t.TempDir())
	many := make([]string, maxHomes+2)
	for i := range many {
		many[i] = top + "/" + strconv.Itoa(i)
		if err := os.MkdirAll(many[i]+"/.ssh", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	all := closedOf(newBudget(anyTime, maxLooked), many, nil)
	last := many[len(many)-1]
	if !underAny(many[0]+"/.ssh/key", all) || underAny(many[0]+"/notes", all) || !underAny(last+"/.ssh/key", all) {
		t.Errorf("got %d closed places, want the keys in the first home, and the last home", len(all))
	}
}
