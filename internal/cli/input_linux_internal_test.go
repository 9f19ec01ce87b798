package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openForWriting opens a named pipe for writing. It fails with ENXIO while nothing reads it.
func openForWriting(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
}

func TestOpeningANamedPipeEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	in, err := openInput(ctx, path, 10)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v and %v, want the end of the context", in, err)
	}
	if f, err := openForWriting(path); !errors.Is(err, unix.ENXIO) {
		t.Errorf("got %v and %v for a writer afterwards, want ENXIO: nothing reads the pipe any more", f, err)
	}
}

func TestANamedPipeIsReadOnceAWriterComes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			_, err = f.WriteString("12345")
			err = errors.Join(err, f.Close())
		}
		wrote <- err
	}()
	got, err := readFile(t.Context(), path, 10)
	if err != nil || string(got) != "12345" {
		t.Errorf("got %q and %v, want 12345", got, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}
