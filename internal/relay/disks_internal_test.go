package relay

import (
	"slices"
	"strings"
	"testing"
)

// table is that of a container of gVisor whose image declares the volumes /vol and /mnt/data/a b.
const table = `16 15 0:18 / / ro - 9p none ro,trans=fd
18 16 0:19 / /dev rw,nosuid - dev none rw,mode=0755
21 16 0:22 / /tmp rw,nosuid - tmpfs none rw,size=65536k
22 16 0:23 / /proc rw,nosuid,noexec - proc none rw
23 16 0:26 / /mnt/data rw,nosuid master:2 - tmpfs none rw,size=65536k
24 16 0:27 / /etc/hosts ro - 9p none ro,trans=fd
25 16 254:0 /x /etc/hostname rw,relatime - ext4 /dev/vda ro
26 16 0:28 / /vol rw - 9p none rw,trans=fd
27 23 254:0 /y /mnt/data/a\040b rw,relatime master:2 shared:1 - ext4 /dev/vda rw,discard
`

// TestWritableMounts: what is on a disk and not read-only is found, and what cannot be read counts as such.
func TestWritableMounts(t *testing.T) {
	if got, want := writable(table), []string{"/vol", "/mnt/data/a b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, line := range []string{"16 15 0:18 / /vol rw 9p none rw", "16 15 0:18 / - 9p none rw", "16 15 0:18 / /vol rw - 9p"} {
		if got := writable(line); !slices.Equal(got, []string{unknown}) {
			t.Errorf("%s: got %q, want an unknown mount", line, got)
		}
	}
}

// TestDisksTakeTheWallDown: the root counts as read-only only if the table of mounts was read to its end and names no
// writable mount of a disk. The file of a pod's last message is named, and takes down the quota alone.
func TestDisksTakeTheWallDown(t *testing.T) {
	const erofs, eacces, eisdir, done = -30, -13, -21, 0
	for name, c := range map[string]struct {
		table  string
		opened int64
		want   []string
		holds  bool
	}{
		"none":              {table: "16 15 0:18 / / ro - 9p none ro\n", holds: true},
		"a directory":       {table: "16 15 0:18 / /vol rw - 9p none rw\n", opened: eisdir, want: []string{"/vol"}},
		"a file":            {table: "16 15 0:18 / /etc/x rw - ext4 none rw\n", opened: done, want: []string{"/etc/x"}},
		"a file of root":    {table: "16 15 0:18 / /etc/hosts rw - ext4 none rw\n", opened: eacces, holds: true},
		"the last message":  {table: "16 15 0:18 / /dev/termination-log rw - ext4 none rw\n", opened: done, want: []string{TerminationLog}, holds: true},
		"nothing":           {want: []string{unknown}},
		"a table too long":  {table: strings.Repeat("16 15 0:18 / / ro - 9p none ro\n", 4000), want: []string{unknown}},
		"a table in pieces": {table: strings.Repeat("16 15 0:18 / / ro - 9p none ro\n", 1000) + "16 15 0:18 / /vol rw - 9p none rw\n", opened: eisdir, want: []string{"/vol"}},
	} {
		s, _ := openFake(t, func(p packet) *reported {
			r := &reported{results: make([]int64, len(p.calls)), bytes: make([]byte, p.size)}
			switch reads := slices.Index(p.calls, "read"); {
			case slices.Contains(p.calls, "statfs"): // the walls
				for i := range r.results {
					r.results[i] = erofs
				}
			case reads == 1 && p.size%tablePart == 0 && len(p.calls) > 4: // the table
				rest := c.table
				for i := 1; i < len(r.results)-1; i++ {
					n := copy(r.bytes[tablePart*(i-1):][:tablePart], rest)
					r.results[i], rest = int64(n), rest[n:]
				}
			case len(p.calls) == 2 && p.size == 0 && p.calls[1] == "close":
				r.results[0] = c.opened
			default:
				return nil
			}
			return r
		})
		seen, err := s.c.look()
		if err != nil || !slices.Equal(seen.Disks, c.want) || seen.ReadOnly != c.holds {
			t.Errorf("%s: got %q, read-only %t, %v, want %q, %t", name, seen.Disks, seen.ReadOnly, err, c.want, c.holds)
		}
	}
}
