package jail

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestBlocksOfUserIDsAreNotShared: a block is leased once, until it is released.
func TestBlocksOfUserIDsAreNotShared(t *testing.T) {
	dir, first, last := t.TempDir(), 10*idsPerBlock, 12*idsPerBlock-1
	one, err := leaseUIDs(first, last, 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Release()
	two, err := leaseUIDs(first, last, 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	if one.First() != first || two.First() != first+idsPerBlock {
		t.Errorf("got blocks at %d and %d, want %d and %d", one.First(), two.First(), first, first+idsPerBlock)
	}
	if _, err := leaseUIDs(first, last, 0, dir); err == nil {
		t.Error("a third lease of two blocks: got nil, want an error")
	}
	two.Release()
	again, err := leaseUIDs(first, last, 0, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Release()
	for n := range 3 * idsPerBlock {
		if id := again.Plain(n); id <= again.First() || id >= again.First()+idsPerBlock {
			t.Fatalf("Plain(%d): got %d, want an id of the block", n, id)
		}
	}
	if _, err := leaseUIDs(first, first+9, 0, dir); err == nil {
		t.Error("a range without a block: got nil, want an error")
	}
}

// TestASearchForUserIDsMayBeginAnywhere: every block is found from every one on.
func TestASearchForUserIDsMayBeginAnywhere(t *testing.T) {
	dir, first, last := t.TempDir(), 10*idsPerBlock, 13*idsPerBlock-1
	for _, block := range []int{2, 0, 1} {
		u, err := leaseUIDs(first, last, 5, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Release()
		if want := first + block*idsPerBlock; u.First() != want {
			t.Errorf("from block 5 of 3: got ids from %d on, want %d", u.First(), want)
		}
	}
}

// TestLeasesOfAnotherRunAreNotSeen: a container may have the process ids of its host and a /run of its own.
func TestLeasesOfAnotherRunAreNotSeen(t *testing.T) {
	testkit.Root(t)
	if !lookForLeases() {
		t.Skip("the tests run in a container")
	}
	sees := make(chan bool)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread, with its mounts, ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = errors.Join(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("run", "/run", "tmpfs", 0, "mode=755"))
		}
		if err != nil {
			failed <- err
			return
		}
		sees <- lookForLeases()
	}()
	select {
	case err := <-failed:
		t.Fatal(err)
	case is := <-sees:
		if is {
			t.Error("a process with another /run believes that it sees the leases of all servers")
		}
	}
}

// TestPlaceOf: the place is found by following mounts from the root. The order of the table has no effect.
func TestPlaceOf(t *testing.T) {
	const root, run, own = "27 1 254:0 / / rw - ext4 /dev/vda rw\n", "30 27 0:25 / /run rw - tmpfs tmpfs rw\n", "31 30 254:0 /srv /run/sandboxmcp rw - ext4 /dev/vda rw\n"
	const hidden, over, first = "29 27 254:0 /srv /run/sandboxmcp rw - ext4 /dev/vda rw\n", "33 30 0:26 / /run rw - tmpfs tmpfs rw\n", "1 1 0:2 / / rw - rootfs rootfs rw\n"
	for table, want := range map[string]string{
		"": "", "broken\n": "", root: "254:0 /run/sandboxmcp", root + run: "0:25 /sandboxmcp", root + run + own: "254:0 /srv",
		run + root: "0:25 /sandboxmcp", own + run + root: "254:0 /srv", // as after a start with /run before the root
		root + hidden: "254:0 /srv", root + hidden + run: "0:25 /sandboxmcp", run + hidden + root: "0:25 /sandboxmcp",
		root + run + own + over: "0:26 /sandboxmcp", run + root + first: "0:25 /sandboxmcp", first + root: "254:0 /run/sandboxmcp", run: "0:25 /sandboxmcp",
		root + "30 27 0:25 / /run/sandboxmcp2 rw - tmpfs tmpfs rw\n": "254:0 /run/sandboxmcp",
	} {
		if got := placeOf(uidsDir, table); got != want {
			t.Errorf("%q: got %q, want %q", table, got, want)
		}
	}
}

// TestCopiesMounts: the kernel's answer for a path that is not there is that for one that is.
func TestCopiesMounts(t *testing.T) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	closeAll(fd)
	if got, want := copiesMounts(), !errors.Is(err, unix.EPERM); got != want {
		t.Errorf("got %t, want %t: a copy of / answers %v", got, want, err)
	}
}
