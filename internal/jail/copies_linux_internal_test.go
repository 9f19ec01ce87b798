package jail

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCopiesOfFilesThatHaveChanged: a file of the system that was replaced, has grown, or that the builder of root's server may not read does
// not keep the jail from opening, and sandboxes see all of what the server can read.
func TestCopiesOfFilesThatHaveChanged(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("text\n", 2000)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "closed")
	if err := os.WriteFile(closed, []byte(long), 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, host string
		want       string
	}{{"Grown", file, long}, {"Link", link, long}, {"Gone", filepath.Join(dir, "none"), ""}, {"Closed", closed, long}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.copies = []copied{{Tree{Host: c.host, Inside: "/etc/copied"}, 10, true}}
			j, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			s := made(t, j)
			defer func() { _ = s.Close() }()
			if got, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/root/etc/copied"); string(got) != c.want {
				t.Errorf("sandboxes see %d bytes, %v; want %d", len(got), err, len(c.want))
			}
		})
	}
}
