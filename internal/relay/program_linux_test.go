package relay

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// TestAnAnswerIsOneWrite: a proxy passes on each write separately, so the program writes an answer with one system call. On
// a socket that keeps the bounds of writes, one read gets the whole answer.
func TestAnAnswerIsOneWrite(t *testing.T) {
	arch := seccomp.Arch(runtime.GOARCH)
	program := Program(arch)
	if program == nil {
		t.Skip("there is no relay for this machine")
	}
	path := filepath.Join(t.TempDir(), "relay")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	defer func() {
		_ = ours.Close() // the program ends
		_ = cmd.Wait()
	}()
	b := make([]byte, maxPacket)
	read := func() []byte {
		n, err := ours.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return b[:n]
	}
	if hello := read(); len(hello) != 20 || hello[4] != 'R' {
		t.Fatalf("got %q, want the packet that says that the program is ready", hello)
	}
	l := &list{arch: arch, fd: -1, size: unameSize}
	l.do("uname", answer(0))
	p, err := l.packet('Y', 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = ours.Write(p); err != nil {
		t.Fatal(err)
	}
	if got, want := read(), 16+8+unameSize; len(got) != want || int(binary.LittleEndian.Uint32(got)) != want {
		t.Errorf("got %d bytes with one read, want %d", len(got), want)
	}
}
