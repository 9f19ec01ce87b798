package host_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestFilesOfTheKernelAreNotRead: a root may have a directory with another system in it, which shows /proc once more. There are the
// memory and the environment of this server.
func TestFilesOfTheKernelAreNotRead(t *testing.T) {
	if !testkit.OwnMounts(t) {
		return
	}
	b := open(t)
	b.file("proc/none", "")
	mount(t, "/proc", filepath.Join(b.root, "proc"))
	own := filepath.Join(b.root, "proc", strconv.Itoa(os.Getpid()))
	for _, name := range []string{"environ", "mem", "status"} {
		_, err := b.read(filepath.Join(own, name))
		wantCode(t, "read "+name, err, sandboxmcp.CodeHostPathDenied)
	}
	_, err := b.copy(own+"/environ", "x")
	wantCode(t, "copy environ", err, sandboxmcp.CodeHostPathDenied)
}

// TestCommandsReadNoAddressesOfTheKernel: with them a program in a sandbox would know where the kernel is in memory.
func TestCommandsReadNoAddressesOfTheKernel(t *testing.T) {
	b := open(t)
	for _, path := range []string{"/proc/kallsyms", "/sys/kernel/tracing/printk_formats", "/sys/kernel/debug/tracing/trace", "/sys/kernel/../kernel/tracing"} {
		b.wantRefused("cat "+path, sandboxmcp.CodeHostPathDenied)
	}
	for _, path := range []string{"/proc/version", "/sys/kernel/uevent_seqnum"} {
		if _, err := b.exec("cat " + path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
