package plainfile

import "testing"

// TestShows: what one mount shows, another one may show as well.
func TestShows(t *testing.T) {
	m := parseMounts(`1 0 8:1 / / rw - ext4 a rw
2 1 8:2 / /home rw - ext4 b rw
3 1 8:2 /u/data /ws rw - ext4 b rw
4 1 8:2 /u/data/state /state rw - ext4 b rw
5 1 8:2 /u/my\040keys /ws/inner rw - ext4 b rw
6 1 8:3 /u/data /else rw - ext4 c rw
7 1 0:4 net:[4026531840] /run/ns rw - nsfs nsfs rw
`)
	for _, c := range []struct {
		dir, path string
		want      bool
	}{
		{"/ws", "/state", true},
		{"/ws", "/state/signing.key", true},
		{"/ws", "/home/u/data/state/signing.key", true},
		{"/ws/state", "/state/x", true},
		{"/ws", "/home/u/my keys/x", true},
		{"/home/u", "/state", true},
		{"/home/u", "/ws/x", true},
		{"/state", "/ws/state/run", true},
		{"/ws/other", "/state", false},
		{"/ws", "/home/u/my", false},
		{"/ws", "/home/u/database", false},
		{"/ws", "/else/state", false},
		{"/ws", "/etc/x", false},
		{"/", "/else", true},
	} {
		if got := m.Shows(c.dir, c.path); got != c.want {
			t.Errorf("%s in %s: got %t, want %t", c.path, c.dir, got, c.want)
		}
	}
	if !Mounts(nil).Shows("/a", "/a/b") || Mounts(nil).Shows("/a", "/ab") {
		t.Error("without a table, paths count")
	}
	if len(ReadMounts()) == 0 {
		t.Log("this system has no table of mounts")
	}
}
