//go:build linux || darwin

package plainfile_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // the path of a socket is short
	fifo, socket, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, socket, link, dir, "/dev/null", "/dev/zero"} {
		if f, err := plainfile.Open(path); !errors.Is(err, plainfile.ErrNotRegular) {
			t.Errorf("Open %s: got %v and %v, want ErrNotRegular", path, f, err)
		}
		if b, err := plainfile.Read(path, 10); !errors.Is(err, plainfile.ErrNotRegular) {
			t.Errorf("Read %s: got %q and %v, want ErrNotRegular", path, b, err)
		}
		if f, err := plainfile.Append(path, 0o600); !errors.Is(err, plainfile.ErrNotRegular) {
			t.Errorf("Append %s: got %v and %v, want ErrNotRegular", path, f, err)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if _, err := plainfile.Read(path, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	for _, text := range []string{"", "12345678", "90", "x"} {
		f, err := plainfile.Append(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := plainfile.Read(path, 10)
		if text == "x" {
			if err == nil || !strings.Contains(err.Error(), "larger than 10 bytes") {
				t.Errorf("got %q and %v for 11 bytes, want an error", got, err)
			}
		} else if err != nil || !strings.HasSuffix(string(got), text) {
			t.Errorf("got %q and %v, want what ends with %q", got, err, text)
		}
	}
}
