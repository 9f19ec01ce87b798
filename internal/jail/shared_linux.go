package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Shared is a directory of the host that all sandboxes see and that the host may change. Its
// host path shows in mountinfo.
//
// If it is writable, what programs make in it belongs to an ordinary user of the host: to the
// server's own user in ModeUser, and in ModeRoot to the directory's owner. There each sandbox
// gets an id-mapped mount of its own, in which that owner is the sandbox's user, and every other
// user of the host is none. A writable directory needs a filter with seccomp.Variant.HostFiles.
type Shared struct {
	Host     string // empty: none
	Inside   string // where it is seen; absolute
	Writable bool   // not in ModePlain
	UID, GID int    // in ModeRoot, if it is writable: the owner that it must have; 0: any but root
}

// Fixed returns the directory as it is now: its path without links, and its owner if it is writable. Another user who may change a
// directory above it could put a link, or a directory of somebody else, in its place later.
func (w Shared) Fixed() Shared {
	if real, err := filepath.EvalSymlinks(w.Host); err == nil && w.Host != "" {
		w.Host = real
	}
	var st unix.Stat_t
	if w.Writable && unix.Stat(w.Host, &st) == nil {
		w.UID, w.GID = int(st.Uid), int(st.Gid)
	}
	return w
}

// openPlain are the arguments of openat2 that open a directory whose path has no links.
var openPlain = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}

// openPlain returns the arguments of openat2 with openPlain.
func (s *script) openPlain(path string) []arg {
	le := binary.LittleEndian
	how := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, openPlain.Flags), openPlain.Mode), openPlain.Resolve)
	return []arg{num(unix.AT_FDCWD), s.str(path), s.bytes(how), num(len(how))}
}

// copyShared adds calls that make a detached copy of the directory's mounts, like copyTree.
func (s *script) copyShared(path string) reg {
	dir := s.keep("open "+path, unix.SYS_OPENAT2, s.openPlain(path)...)
	tree := s.keep("open "+path, unix.SYS_OPEN_TREE, dir.arg(), s.str(""), num(unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE))
	s.do("close", unix.SYS_CLOSE, dir.arg())
	return tree
}

// ErrShared means that sandboxes cannot have Config.Shared.
var ErrShared = errors.New("the directory cannot be shared")

// notShared are the Landlock rights that programs do not have in a shared directory. A link or a
// special file there could mislead programs of the host.
const notShared = 1<<6 | 1<<9 | 1<<10 | 1<<11 | 1<<12 | llIoctlDev // make a device, a socket, a pipe, a block device, a symbolic link

// attr returns the attributes of its mounts.
func (w Shared) attr() uint64 {
	if w.Writable {
		return readOnly &^ unix.MOUNT_ATTR_RDONLY
	}
	return readOnly
}

// holds reports whether a path of a sandbox is the directory or below it.
func (w Shared) holds(path string) bool {
	return path == w.Inside || strings.HasPrefix(path, w.Inside+"/")
}

// ownShared reports whether each sandbox gets a mount of the directory of its own.
func (c Config) ownShared() bool {
	return c.Mode == ModeRoot && c.Shared.Host != "" && c.Shared.Writable
}

// sharedWall returns the wall that a mount of a writable shared directory leaves, by the options
// that mountinfo shows; "": none.
func (c Config) sharedWall(options string) string {
	has := func(option string) bool { return hasOption(options, option) }
	switch {
	case has("ro"):
		return WallRoot
	case has("nosuid") && has("nodev") && (c.Mode == ModeUser || has("idmapped")):
		return WallRootBut
	}
	return ""
}

// sharedPlace puts the shared directory in its place, or an empty one.
func (s *script) sharedPlace(p plan) {
	switch {
	case p.shared.Host == "":
	case p.own && !p.apart:
		s.moveMount(passed(0), p.shared.Inside)
	case p.apart && !p.own: // the template has it
		s.mount("none", p.shared.Inside, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=4k,nr_inodes=2")
	}
}

// shared is the shared directory of a jail of ModeRoot, if it is writable.
type shared struct {
	dir      *os.File // opened with O_PATH; nil: none
	uid, gid int      // of its owner
}

func (h *shared) close() {
	if h.dir != nil {
		_ = h.dir.Close()
	}
}

// openShared opens the directory, and tries to mount it if each sandbox gets a mount of its own. It fails with ErrShared.
func (j *Jail) openShared() error {
	w := j.cfg.Shared
	switch {
	case w.Host == "":
		return nil
	case w.Writable && j.cfg.Mode == ModePlain:
		return fmt.Errorf("%w: this needs namespaces", ErrShared)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, w.Host, &openPlain)
	if !j.cfg.ownShared() && !errors.Is(err, unix.ELOOP) { // what else is wrong is told where it is opened
		closeAll(fd)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrShared, w.Host, err)
	}
	j.shared.dir = os.NewFile(uintptr(fd), w.Host)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Uid == 0 || st.Gid == 0) {
		err = errors.New("it belongs to root or to root's group, and programs must not make files of root")
	}
	if err == nil && w.UID != 0 && (int(st.Uid) != w.UID || int(st.Gid) != w.GID) {
		err = errors.New("a directory of another user or group has taken its place")
	}
	if err == nil {
		j.shared.uid, j.shared.gid = int(st.Uid), int(st.Gid)
		var mount int
		if mount, err = j.shared.mount(j.cfg.FirstUID + 1); err == nil {
			closeAll(mount)
		}
	}
	if err != nil {
		j.shared.close()
		return fmt.Errorf("%w: %w", ErrShared, err)
	}
	return nil
}

// mount returns a detached mount of the directory in which its owner is the host user id uid. All
// other users are unmapped: their files cannot be written, and none can be made for them. The
// caller closes it.
//
// Preconditions: CAP_SYS_ADMIN in the user namespace of the file system (mount_setattr(2)), and a
// file system that can be mounted with mapped ids.
func (h *shared) mount(uid int) (int, error) {
	users, err := h.namespace(uid)
	if err != nil {
		return -1, err
	}
	defer closeAll(users)
	fd, err := unix.OpenTree(int(h.dir.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("open the directory: %w", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_IDMAP, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(users)}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		closeAll(fd)
		return -1, fmt.Errorf("its file system, or one mounted in it, cannot map user ids: %w", err)
	}
	return fd, nil
}

// namespace returns a user namespace that maps the directory's owner to the host user id uid. No
// process lives in it. The caller closes it.
func (h *shared) namespace(uid int) (int, error) {
	ours, theirs, err := pair()
	if err != nil {
		return -1, err
	}
	l := launch{namespaces: unix.CLONE_NEWUSER, uid: idMap{h.uid, uid}, gid: idMap{h.gid, uid}, size: 1, ids: true}
	pid, pidfd, err := l.start(ours, theirs)
	if err != nil {
		closeAll(ours)
		return -1, fmt.Errorf("make a user namespace: %w", err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	closeAll(ours, pidfd) // the process waits for a script, and ends when its socket is closed
	await(pid)
	if err != nil {
		return -1, fmt.Errorf("open the user namespace: %w", err)
	}
	return fd, nil
}
