package process_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestNoLargePagesWithoutAGroup: if a program unmaps all of a huge page but 4 KiB, the kernel keeps the whole page and shows
// these 4 KiB. So programs whose memory the server watches get no huge pages, and cannot enable them.
func TestNoLargePagesWithoutAGroup(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend(process.WithoutCgroup)(t)
	defer func() { _ = b.Close(t.Context()) }()
	const program = `
import ctypes, errno, mmap
libc = ctypes.CDLL(None, use_errno=True)
print(libc.prctl(41, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
m = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
try: m.madvise(14)  # MADV_HUGEPAGE
except OSError: pass  # a kernel without large pages
for i in range(0, len(m), 4096): m[i] = 1
start, large = ctypes.addressof(ctypes.c_char.from_buffer(m)), 0
for line in open("/proc/self/smaps"):
    word = line.split()
    if "-" in word[0]: here = int(word[0].split("-")[0], 16) <= start < int(word[0].split("-")[1], 16)
    elif word[0] == "AnonHugePages:" and here: large = int(word[1])
print(large)
`
	if got, _ := tenant(t, b, program); got != "-1 EPERM\n0\n" {
		t.Errorf("got %q, want EPERM and no large pages", got)
	}
}
