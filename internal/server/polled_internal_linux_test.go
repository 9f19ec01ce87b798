package server

import (
	"bufio"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestPipesAreReadWithoutAThread: a pipe in blocking mode is read through a description of its own, which does not block.
// The mode of the given one, which other programs may share, stays. Its end is seen.
func TestPipesAreReadWithoutAThread(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
	defer func() { _ = in.Close() }()
	other, done := polled(in)
	defer done()
	got, ok := other.(*os.File)
	if !ok || got == in {
		t.Fatalf("got %v, want another file", other)
	}
	if !nonblocking(t, got) || nonblocking(t, in) {
		t.Errorf("got the mode %v, and %v of the given file; want true, false", nonblocking(t, got), nonblocking(t, in))
	}
	if _, err := out.WriteString("a line\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(other)
	if line, err := r.ReadString('\n'); line != "a line\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
		t.Errorf("got %q, %v; want the end", rest, err)
	}
}

func nonblocking(t *testing.T, f *os.File) (set bool) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		set = flags&syscall.O_NONBLOCK != 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestOtherInputsStayAsTheyAre: nothing but a pipe is opened anew, and no end of it that is only for writing: the server
// would be a reader whose writer is the server, and would never see the end.
func TestOtherInputsStayAsTheyAre(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "input")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	for _, in := range []io.Reader{file, w, strings.NewReader("")} {
		got, done := polled(in)
		done()
		if got != in {
			t.Errorf("%T: got %v, want the same", in, got)
		}
	}
}
