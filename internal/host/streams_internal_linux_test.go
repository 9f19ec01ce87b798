package host

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStreamsEndInTime: a command is not begun if the reading of its output could not be ended, as when the user of the server may watch no
// further descriptors. A process that left the command's group could hold the pipes open, and the call would go on as long as it does.
func TestStreamsEndInTime(t *testing.T) {
	blocking := func() (r, w *os.File, err error) {
		var p [2]int
		if err = unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil, nil, err
		}
		return os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w"), nil
	}
	if _, err := newStreams(func() {}, blocking); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("got %v, want %v", err, os.ErrNoDeadline)
	}
	s, err := newStreams(func() {}, os.Pipe)
	if err != nil {
		t.Fatal(err)
	}
	s.finish(&ended{}) // the writers are open
}

// TestWhatACommandHasWrittenIsRead: what is in the pipes when a command has ended is in its result, also if nothing of it was read in time.
func TestWhatACommandHasWrittenIsRead(t *testing.T) {
	s, err := newStreams(func() {}, os.Pipe)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.readers {
		if err = r.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	s.done.Wait()
	for i, text := range []string{"out", "err"} {
		if _, err = s.writers[i].WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	var e ended
	s.finish(&e)
	if string(e.stdout) != "out" || string(e.stderr) != "err" || e.total != [2]int64{3, 3} {
		t.Errorf("got %q, %q and %d bytes, want both texts", e.stdout, e.stderr, e.total)
	}
}
