package host

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// unanswered mounts a FUSE file system that has only its first directory. It calls asked once it is asked whether that may be entered, and never answers.
func unanswered(t *testing.T, asked func()) (dir string) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	dir = plainfile.Unlinked(t.TempDir())
	if err = unix.Mount("unanswered", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, "fd="+strconv.Itoa(int(f.Fd()))+",rootmode=40755,user_id=0,group_id=0"); err != nil {
		t.Skipf("no FUSE: %v", errors.Join(err, f.Close()))
	}
	over := make(chan struct{})
	t.Cleanup(func() {
		if failed := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); failed != nil { // ends the connection, and so the waits
			t.Error(failed)
		}
		<-over
	})
	go func() {
		defer close(over)
		defer func() { _ = f.Close() }()
		const access, open = 34, 26
		e := binary.NativeEndian
		for b := make([]byte, 1<<17); ; {
			n, failed := unix.Read(int(f.Fd()), b)
			if errors.Is(failed, unix.EINTR) {
				continue
			} else if failed != nil || n < 40 {
				return
			}
			body, refused := make([]byte, 0, 104), int32(0)
			switch e.Uint32(b[4:]) { // see linux/fuse.h
			case access:
				asked()
				continue
			case open: // of the connection
				body = e.AppendUint32(e.AppendUint32(body, 7), 31)[:64]
			case 3: // the attributes
				body = body[:104]
				for at, v := range map[int]uint32{0: 3600, 16: 1, 76: unix.S_IFDIR | 0o755, 80: 2} {
					e.PutUint32(body[at:], v)
				}
			default:
				refused = -int32(unix.ENOSYS)
			}
			answer := e.AppendUint32(e.AppendUint32(nil, uint32(16+len(body))), uint32(refused))
			_, _ = unix.Write(int(f.Fd()), append(append(answer, b[8:16]...), body...))
		}
	}()
	return dir
}

// TestADirectoryThatIsNeverEntered: a file system may answer everything but whether its directory may be entered. The call ends with its time.
// Without that, this test does not end.
func TestADirectoryThatIsNeverEntered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := find("true")
	if err != nil || p.path == "" {
		t.Fatalf("there is no true: %v", err)
	}
	j := job{path: p.path, words: []string{"true"}, dir: unanswered(t, cancel), env: environment(), timeout: time.Minute}
	if j.file, err = p.open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.file.Close() }()
	if e, err := execute(ctx, j); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %+v, %v, want that the call is cancelled", e, err)
	}
}
