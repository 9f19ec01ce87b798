package process_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// loadedRun returns what a program prints in a fork that has loaded what text imported. The program prints True first if it has.
func loadedRun(t *testing.T, b backend.Backend, program, text string) string {
	t.Helper()
	for range 6 {
		p, out := importing("print('here' in globals(), end=' ')\n"+program, text)
		if e, _, _ := begun(t, b, withPackages(spec("pages")), p, nil); e.Code != 0 {
			t.Fatalf("got %v %q, want code 0", e, out)
		}
		if rest, ok := strings.CutPrefix(out.String(), "True "); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatal("no program was forked from the image of the packages")
	return ""
}

// TestLoadedForksKeepLargePages: a fork that loads imported packages keeps the interpreter's code in the large pages of its zygote.
func TestLoadedForksKeepLargePages(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const count = `
code, large = False, 0
for line in open("/proc/self/smaps"):
    word = line.split()
    if "-" in word[0] and len(word) > 4:
        code = word[1] == "r-xp" and word[4] == "0"
    elif word[0] == "AnonHugePages:" and code:
        large += int(word[1])
print(large >> 11)`
	b := importedAhead(t, "here = 1")
	p, out := forkable(count)
	if e, _, _ := begun(t, b, spec("plain"), p, nil); e.Code != 0 {
		t.Fatalf("got %v %q, want code 0", e, out)
	}
	want := strings.TrimSpace(out.String())
	if want == "0" {
		t.Skip("the kernel gives no large pages")
	}
	if got := loadedRun(t, b, count, "here = 1"); got != want {
		t.Errorf("got %s large pages of code, want %s as in a fork that has loaded nothing", got, want)
	}
}

// TestLoadedForksFindChangedCode: if an import has changed the interpreter's code, forks that load it find the change.
func TestLoadedForksFindChangedCode(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	// The last byte of an instruction that fills a gap is a part of its address, which has no effect.
	const text = `
import ctypes
here, libc = 0, ctypes.CDLL(None)
with open("/proc/self/maps") as file:
    for line in file:
        word = line.split()
        if word[1] == "r-xp" and word[4] == "0" and len(word) == 5:
            start, end = (int(n, 16) for n in word[0].split("-"))
            found = ctypes.string_at(start, end - start).find(b"\x66\x2e\x0f\x1f\x84\0\0\0\0\0")
            if end - start >= 2 << 20 and found >= 0:
                here = start + found + 9
if here:
    page = ctypes.c_void_p(here & -4096)
    size = ctypes.c_size_t(4096)
    assert libc.mprotect(page, size, 7) == 0
    ctypes.c_ubyte.from_address(here).value = 1
    assert libc.mprotect(page, size, 5) == 0
`
	b := importedAhead(t, text)
	switch got := loadedRun(t, b, "print(here and ctypes.c_ubyte.from_address(here).value, bool(here))", text); got {
	case "1 True":
	case "0 False":
		t.Skip("the interpreter's code is not in large pages, or has no such instruction")
	default:
		t.Errorf("got %q, want the byte that the import wrote", got)
	}
}

// TestLoadedForksKeepAdviceOnMemory: a large mapping that an import has reserved has the same advice and accounting in forks that load
// it. Otherwise a machine could refuse a part of it that no program uses.
func TestLoadedForksKeepAdviceOnMemory(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const text = `
import ctypes, mmap
here = 1
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # NORESERVE
try: memory.madvise(14)  # HUGEPAGE
except OSError: pass  # a kernel without large pages
at = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + (32 << 20)
def flags():
    for line in open("/proc/self/smaps"):
        word = line.split()
        if "-" in word[0]: inside = int(word[0].split("-")[0], 16) <= at < int(word[0].split("-")[1], 16)
        elif word[0] == "VmFlags:" and inside: return [flag for flag in word if flag in ("nr", "hg")]
had = flags()
`
	b := importedAhead(t, text)
	if got := loadedRun(t, b, "print('nr' in had, flags() == had)", text); got != "True True" {
		t.Errorf("got %q, want that the mapping is as the import made it", got)
	}
}

// TestLoadedForksArePreparedBeforeTheirProgram: what a fork does after it has loaded packages, such as to seed their generators, it does
// once, and before it gets its program.
func TestLoadedForksArePreparedBeforeTheirProgram(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const text = `
import posix
here, done = 1, []
def again(): pass
again.loaded = lambda: done.append(posix.getpid())
`
	b := importedAhead(t, text)
	if got := loadedRun(t, b, "print(done == [posix.getpid()])", text); got != "True" {
		t.Errorf("got %q, want that each process has been prepared once", got)
	}
}
