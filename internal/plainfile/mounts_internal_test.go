package plainfile

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// TestShows: what one mount shows, another one may show as well.
func TestShows(t *testing.T) {
	m := parsed(t, `1 0 8:1 / / rw - ext4 a rw
2 1 8:2 / /home rw - ext4 b rw
3 1 8:2 /u/data /ws rw - ext4 b rw
4 1 8:2 /u/data/state /state rw - ext4 b rw
5 1 8:2 /u/my\040keys /ws/inner rw - ext4 b rw
6 1 8:3 /u/data /else rw - ext4 c rw
8 1 8:5 / /var/state rw - ext4 d rw
9 8 8:6 /blobs /var/state/blobs rw - ext4 e rw
10 1 8:6 / /big rw - ext4 e rw
11 1 8:7 / /srv rw - ext4 f rw
12 11 8:6 / /srv/inner rw - ext4 e rw
13 1 8:8 / /cover/deep rw - ext4 g rw
14 1 8:9 /top /cover rw - ext4 h rw
15 14 8:9 /other /cover/beside rw - ext4 h rw
16 1 8:9 / /all rw - ext4 h rw
17 1 8:10 / /odd name rw - ext4 i rw
18 1 8:10 /x /other rw - ext4 i rw
19 1 8:1 / / rw - ext4 a rw
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
		{"/big/blobs", "/var/state", true},
		{"/srv", "/var/state", true},
		{"/var/state", "/big/blobs/x", true},
		{"/var/state", "/big/x", false},
		{"/all/top/deep", "/cover/deep/x", true},
		{"/all/other", "/cover/beside/x", true},
		{"/odd\u00a0name", "/other/x", true},
	} {
		if got := m.Shows(c.dir, c.path); got != c.want {
			t.Errorf("%s in %s: got %t, want %t", c.path, c.dir, got, c.want)
		}
	}
	if !Mounts(nil).Shows("/a", "/a/b") || Mounts(nil).Shows("/a", "/ab") {
		t.Error("without a table, paths count")
	}
	if got := m.Paths("/cover/deep/x"); !slices.Contains(got, "/all/top/deep/x") {
		t.Errorf("below a mount that covers another: got %q, want the file that is seen", got)
	}
	shared := parsed(t, "1 0 8:1 / /a rw shared:1 master:2 - proc a rw\n2 1 8:1 / /b rw\n")
	if got := shared.Of("proc"); len(shared) != 2 || !slices.Equal(got, []string{"/a"}) {
		t.Errorf("with fields that may be missing: got %q, want /a", got)
	}
	if len(ReadMounts()) == 0 {
		t.Log("this system has no table of mounts")
	}
}

// TestMountsOnOneAnother: a look at each mount for each of the others would take minutes, and users decide how many there are.
func TestMountsOnOneAnother(t *testing.T) {
	all := Mounts{{id: "0", device: "8:1", root: "/", point: "/"}}
	for i := range 200_000 {
		all = append(all, mount{id: strconv.Itoa(i + 1), parent: strconv.Itoa(i), device: "0:" + strconv.Itoa(i+1), root: "/top", point: "/home/u"})
	}
	all = append(all, mount{id: "last", parent: "0", device: "0:200000", root: "/", point: "/again"})
	if got := all.Paths("/home/u/x"); !slices.Equal(got, []string{"/home/u/x", "/again/top/x"}) {
		t.Errorf("got %q, want the file of the last mount", got)
	}
}

// TestLargeTableOfMounts: the mounts of a user must not hide a later one, and do not fill the memory.
func TestLargeTableOfMounts(t *testing.T) {
	blanks := strings.Repeat(`\040`, 4000)
	text := strings.Repeat("1 0 0:1 / /home/u rw - fuse."+blanks+" "+blanks+" rw\n", 600)
	all := parsed(t, text+"2 0 8:1 /state /shown rw - ext4 a rw\n")
	if len(all) != 601 || len(all[0].kind) > maxKind || all[600].root != "/state" {
		t.Errorf("got %d mounts, want 601 with the last one", len(all))
	}
	if got, err := parseMounts(strings.NewReader(strings.Repeat("1 0 0:1 / /"+strings.Repeat("x", 4000)+" rw - fuse a rw\n", maxMounts/4000+1))); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("too many paths: got %d mounts and %v, want an error", len(got), err)
	}
	if got, err := parseMounts(io.MultiReader(strings.NewReader("1 0 8:1 / / rw - ext4 a rw\n"), iotest.ErrReader(io.ErrUnexpectedEOF))); err == nil {
		t.Errorf("a table that is cut short: got %d mounts, want an error", len(got))
	}
}

func parsed(t *testing.T, text string) Mounts {
	t.Helper()
	all, err := parseMounts(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}
