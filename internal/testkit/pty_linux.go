package testkit

import (
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo-terminal for what a test's program writes.
type Terminal struct {
	*os.File // the terminal itself
	text     chan string
}

// OpenTerminal opens a pseudo-terminal with a number of columns. It passes on line ends as
// they are written.
func OpenTerminal(t *testing.T, columns int) *Terminal {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	fd := int(far.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)})
	}
	if err != nil {
		t.Fatal(err)
	}
	near, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	mode, err := unix.IoctlGetTermios(int(near.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(near.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	term := &Terminal{File: near, text: make(chan string, 1)}
	go func() {
		all, _ := io.ReadAll(far) // fails with EIO once the terminal is closed
		term.text <- string(all)
	}()
	return term
}

// Text closes the terminal and returns what was written to it.
func (t *Terminal) Text() string {
	_ = t.Close()
	return <-t.text
}
