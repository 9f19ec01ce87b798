package watch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestAHiddenProcessIsAboveTheLimit: a process that hides its memory for too long counts with more than the limit, because
// its size cannot be read. The test uses a zombie, which shows no memory.
func TestAHiddenProcessIsAboveTheLimit(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	p := strconv.Itoa(cmd.Process.Pid)
	w := &Group{outside: true, blind: map[string]int{}}
	testkit.Until(t, "the process has ended", func() bool { s, ok := w.see(p); return ok && s.reserved == 0 })
	for looks, above := range map[int]bool{mostBlind: false, mostBlind + 1: true} {
		w.blind[p] = looks
		for _, limit := range []int64{-1, 1 << 30} {
			if got, sure := w.sumOf([]string{p}, limit); !sure || limit > 0 && got > limit != above {
				t.Errorf("hidden in %d looks: got %d bytes, sure %t, want them above %d: %t", looks, got, sure, limit, above)
			}
		}
	}
}

// TestAProcessThatEndsDoesNotHide: the kernel may take long to free the memory of a process that is ending. Meanwhile all of
// its threads can be read. If threads replace each other to hide, some are missing.
func TestAProcessThatEndsDoesNotHide(t *testing.T) {
	stat := func(state, reserved string) string {
		f := strings.Fields(strings.Repeat("0 ", 50))
		f[0], f[20-3], f[23-3] = state, "2", reserved
		return "7 (p) " + strings.Join(f, " ")
	}
	for name, c := range map[string]struct {
		first, other string
		used         bool // its memory is known to be in use
		want         int
	}{
		"Shows":   {stat("Z", "0"), stat("R", "4096"), true, 0},
		"Hides":   {stat("Z", "0"), "", false, 4},
		"Zombies": {stat("Z", "0"), stat("Z", "0"), false, 3},
		"Ends":    {stat("Z", "0"), stat("D", "0"), false, 3},
		"IsUsed":  {stat("Z", "0"), stat("D", "0"), true, 4},
		"IsAlive": {stat("R", "4096"), "", true, 0},
		"Leaves":  {stat("R", "0"), stat("R", "4096"), true, 0}, // its first thread has no memory any more, and is no zombie yet
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"stat": c.first, "task/7/stat": c.first, "task/8/stat": c.other} {
				err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p := filepath.Join("..", dir)
			w := &Group{outside: true, blind: map[string]int{p: 3}}
			s, ok := w.see(p)
			if c.used {
				h := open(s, &relatives{t: t})
				defer h.close()
				w.outlived.kept = map[string]*held{p + " " + s.start: h}
			}
			if got := w.hidden(p, s); !ok || got != c.want {
				t.Errorf("after three looks: got %d, seen %t, want %d", got, ok, c.want)
			}
			if shows := c.want == 0; shows != (s.reserved > 0) {
				t.Errorf("got %d bytes of address space, want some: %t", s.reserved, shows)
			}
		})
	}
}

// TestShortProcessesAreNotHidden: a process is hidden if the sandbox's /proc does not list it although it lives. Processes that
// begin or end between the two lists are not.
func TestShortProcessesAreNotHidden(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	inside := numberInside(self)
	none, found := func() []string { return nil }, []string{strconv.Itoa(ended.Process.Pid), self}
	if hides(found, func() []string { return []string{"1", inside} }) {
		t.Error("a process that has ended is hidden")
	}
	if hides(found[:1], none) || !hides(found, none) {
		t.Error("want only a process that lives and is not listed")
	}
}
