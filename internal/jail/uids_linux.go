package jail

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// uidsDir has the file of leased blocks. It is the same for all servers of the host: two of
// them must not share a block.
const uidsDir = "/run/sandboxmcp"

// UIDs is a block of host user ids, for Config.FirstUID, that no other server uses while it
// is held. Each block is one byte of a file under an advisory lock, which the kernel gives
// back when the holder dies.
type UIDs struct {
	f     *os.File
	first int
}

// First returns the first id of the block.
func (u *UIDs) First() int { return u.first }

// Plain returns the n-th id for sandboxes without namespaces. The ids are used in turn.
func (u *UIDs) Plain(n int) int { return u.first + 1 + n%(idsPerBlock-2) }

// LeaseUIDs takes a free block of ids between first and last. Only root can. The caller calls Release.
// Servers in containers usually do not see each other's leases, see SeesLeases. They look for a free block from
// a random one on, so that they seldom take the same.
func LeaseUIDs(first, last int) (*UIDs, error) {
	from := 0
	if !SeesLeases() {
		var number [4]byte
		_, _ = rand.Read(number[:]) // does not fail
		from = int(binary.NativeEndian.Uint32(number[:]) >> 1)
	}
	return leaseUIDs(first, last, from, uidsDir)
}

// SeesLeases reports whether this process sees the leases of the machine's servers. A process in another pid namespace than
// the machine's first is in a container, which may have a /run of its own. So may one in the first: a container that shares
// the process ids of its host, or a service. Its directory of leases is another than that of process 1.
func SeesLeases() bool { return seesLeases() }

var seesLeases = sync.OnceValue(lookForLeases) // tables of mounts can be long

func lookForLeases() bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	space, err := os.Readlink("/proc/self/ns/pid")
	mounts, ownErr := os.Readlink("/proc/thread-self/ns/mnt")
	if machines, firstErr := os.Readlink("/proc/1/ns/mnt"); errors.Join(err, ownErr, firstErr) == nil && space == first && mounts == machines {
		return true // the tables are the same, and reading them takes long
	}
	if err != nil || space != first {
		return false
	}
	if mount := firstMount("/proc/thread-self/mountinfo"); mount != "" && mount == firstMount("/proc/1/mountinfo") {
		return true // each mount of the machine has a number of its own, and both processes see this one at the same path
	}
	ours, ownErr := readTable("/proc/thread-self/mountinfo")
	machines, firstErr := readTable("/proc/1/mountinfo")
	if errors.Join(ownErr, firstErr) != nil {
		return false
	}
	place := placeOf(uidsDir, string(ours))
	return place != "" && place == placeOf(uidsDir, string(machines))
}

// firstMount returns the first line of a table of mounts, or "" if it is long. The kernel makes no more of the table than is read.
func firstMount(name string) string {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer closeAll(fd)
	line := make([]byte, 256)
	n, _ := unix.Read(fd, line)
	end := bytes.IndexByte(line[:max(n, 0)], '\n')
	return string(line[:max(end, 0)])
}

// readTable reads a table of mounts with few system calls.
func readTable(name string) (table []byte, err error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer closeAll(fd)
	table = make([]byte, 0, 4096)
	for {
		n, err := unix.Read(fd, table[len(table):cap(table)])
		if n <= 0 && !errors.Is(err, unix.EINTR) {
			return table, err
		}
		table = slices.Grow(table[:len(table)+max(n, 0)], 1024)
	}
}

// placeOf returns the file system and the path in it of a directory, by a table of mounts (proc_pid_mountinfo(5)). It follows the
// mounts from the root on, as the kernel follows a path. The order of the table tells nothing: many systems mount /run before
// their root, while a new mount namespace lists the root first.
func placeOf(dir, table string) (place string) {
	type mount struct{ id, at, place string }
	ids, below := map[string]bool{"": true}, map[string][]mount{} // below: mounts on the way to dir, by the id of their parent
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		ids[f[0]] = true
		at := strings.TrimSuffix(f[4], "/")
		if rest, ok := strings.CutPrefix(dir, at); ok && (rest == "" || rest[0] == '/') {
			parent := f[1]
			if parent == f[0] { // the root of all mounts is its own
				parent = ""
			}
			below[parent] = append(below[parent], mount{f[0], at, f[2] + " " + path.Join(f[3], rest)})
		}
	}
	for parent, mounts := range below {
		if !ids[parent] { // mostly it is that of the root, which a process does not see
			below[""] = append(below[""], mounts...)
			delete(below, parent)
		}
	}
	for id := ""; len(below[id]) > 0; {
		next := slices.MinFunc(below[id], func(a, b mount) int { return len(a.at) - len(b.at) })
		delete(below, id)
		id, place = next.id, next.place
	}
	return place
}

// leaseUIDs takes the first free block, counted from block number from on and around.
func leaseUIDs(first, last, from int, dir string) (*UIDs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lease user ids: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "uids.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lease user ids: %w", err)
	}
	blocks := (last - first + 1) / idsPerBlock
	for n := range blocks {
		i := (from + n) % blocks
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(first/idsPerBlock + i), Len: 1}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		if err == nil {
			return &UIDs{f, first + i*idsPerBlock}, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			break
		}
	}
	_ = f.Close()
	if err == nil {
		return nil, fmt.Errorf("lease user ids: the range %d-%d holds no block of %d", first, last, idsPerBlock)
	}
	return nil, fmt.Errorf("lease user ids: none of %d blocks is free: %w", blocks, err)
}

// Release gives the block back. It may be called on nil.
func (u *UIDs) Release() {
	if u != nil {
		_ = u.f.Close()
	}
}
