package process_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// pagesScript prints which of the interpreter's memory has large pages and rights to write, and which advice a
// program may give on memory of its own by process_madvise.
const pagesScript = `
wait()
import ctypes, errno, os
code, large, writable = False, 0, 0
for line in open("/proc/self/smaps"):
    word = line.split()
    if "-" in word[0] and len(word) > 4:
        code = word[1] == "r-xp" and word[4] == "0"
        writable += word[1][1:3] == "wx"
    elif word[0] == "AnonHugePages:" and code:
        large += int(word[1])
libc = ctypes.CDLL(None, use_errno=True)
span = (ctypes.c_size_t * 2)(id(libc) & ~4095, 4096)
libc.syscall(440, 0, span, 1, 23, 0)
print(large >> 11, writable, errno.errorcode[ctypes.get_errno()])
`

// TestForksShareLargePages: the code of a forked interpreter is in large pages, and these pages are not writable. A
// program cannot call process_madvise, which prepares a fork.
func TestForksShareLargePages(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	enabled, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	got := ""
	for range 40 {
		p, _ := forkable("")
		p.Prestart.Program[0].Data = testkit.ForkServer(pagesScript)
		p.Program = []backend.ProgramFile{{Name: "boot.py", Data: []byte("print('executed')")}}
		var out bytes.Buffer
		p.Stdout, p.Stderr = &out, &out
		if e, _, _ := begun(t, b, spec("pages"), p, nil); e.Code != 0 {
			t.Fatalf("got %v, %s, want code 0", e, out.String())
		}
		if got = strings.TrimSpace(out.String()); got != "executed" {
			break
		}
	}
	testkit.Need(t, "zygote", got != "executed", "nothing is forked here")
	large, rest, _ := strings.Cut(got, " ")
	if rest != "0 EPERM" {
		t.Errorf("got %q, want nothing that can be written to and executed, and EPERM", rest)
	}
	if strings.Contains(string(enabled), "[never]") || len(enabled) == 0 {
		t.Skip("the kernel gives no large pages")
	}
	if fi, err := os.Stat(python()); err != nil || fi.Size() < 6<<20 {
		t.Skip("this interpreter's code fills no large page")
	}
	if large == "0" {
		t.Errorf("got no large pages of code, want some")
	}
}
