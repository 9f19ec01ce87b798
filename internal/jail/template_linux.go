package jail

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// The root from which every sandbox of a jail starts is made once, in the builder's mount
// namespace. It is a read-only tmpfs into which the system's programs are mounted
// read-only. A sandbox gets a copy of that namespace and adds only its own writable
// directories.

// devices are the only nodes in a sandbox's /dev.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// emptyPlace is a file that is empty on most systems, too.
const emptyPlace = "/etc/environment"

// syntheticFiles replace the host's files on users, groups, names and name servers.
//
//nolint:gosec // no credentials: an account list without passwords
var syntheticFiles = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	"/etc/group":         "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"/etc/hostname":      "sandbox\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	emptyPlace:           "",
	"/etc/resolv.conf":   "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
}

// tree is a mount to graft into the template.
type tree struct {
	path    string // on the host
	inside  string
	attr    uint64
	handle  arg  // the mount's descriptor: passed by the server, or the result of the builder's open_tree
	covered bool // hide its host path by an overlay
}

const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// templateScript returns the script that makes the template root. passedTrees maps the trees
// of sys and cfg.ReadOnly that the server has opened to the index of their descriptor, and shared
// is that of cfg.Shared; the builder opens the others. A directory that is shown at another path
// is mounted as an overlay, which hides its host path, unless cfg.bare is set.
// Unless the server copies mounts itself (copies), the script returns the builder's first mount namespace, which has the
// host's files. It always returns the gallery last.
func templateScript(cfg Config, sys system, passedTrees map[Tree]int, shared arg, copies bool) *script {
	s := &script{}
	s.do("umask", unix.SYS_UMASK, num(0o022)) // the server's own may keep the sandbox's user from the root
	if !copies {
		s.give(s.keep("open the host's view", unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(ownMounts), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0)))
		s.do("unshare", unix.SYS_UNSHARE, num(unix.CLONE_NEWNS))
	}
	// Sandboxes copy the builder's UTS namespace. A sandbox does not set the name itself: each change wakes all that poll
	// /proc/sys/kernel/hostname, in any namespace, in the time of the process that makes it.
	s.do("sethostname", unix.SYS_SETHOSTNAME, s.str("sandbox"), num(len("sandbox")))
	s.mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	// the builder's own /proc: spawners write id maps through it, and a sandbox may mount a new /proc only if a fully visible one exists
	s.mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	s.dumpsNothing()

	var trees []tree
	open := func(path, inside string, attr uint64) {
		r := s.keep("open "+path, unix.SYS_OPEN_TREE, num(unix.AT_FDCWD), s.str(path), num(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE))
		trees = append(trees, tree{path, inside, attr, r.arg(), false})
	}
	for _, t := range slices.Concat(sys.trees, cfg.ReadOnly) {
		if i, ok := passedTrees[t]; ok {
			trees = append(trees, tree{path: t.Host, inside: t.Inside, attr: readOnly, handle: passed(i)})
		} else {
			open(t.Host, t.Inside, readOnly)
		}
		trees[len(trees)-1].covered = !cfg.bare && t.Host != t.Inside
	}
	switch w := cfg.Shared; {
	case w.Host == "" || cfg.ownShared(): // sandboxes get a mount of their own
	case shared != none:
		trees = append(trees, tree{path: w.Host, inside: w.Inside, attr: w.attr(), handle: shared})
	default:
		trees = append(trees, tree{w.Host, w.Inside, w.attr(), s.copyShared(w.Host).arg(), false})
	}
	for _, d := range devices {
		open("/dev/"+d, "/dev/"+d, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	}
	opened := s.openFiles(sys.copies)
	proc := s.keep("open /proc", unix.SYS_OPEN_TREE, num(unix.AT_FDCWD), s.str("/proc"), num(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC))

	s.mount("root", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m,nr_inodes=1024")
	s.do("chdir", unix.SYS_CHDIR, s.str("/tmp"))
	s.do("pivot_root", unix.SYS_PIVOT_ROOT, s.str("."), s.str("."))
	s.do("detach the old root", unix.SYS_UMOUNT2, s.str("."), num(unix.MNT_DETACH))
	s.do("chdir /", unix.SYS_CHDIR, s.str("/"))
	s.fill(trees, sys.links, proc, cfg.Shared)
	s.copyFiles(sys.copies, opened)
	s.mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	s.gallery()
	s.openCommon()
	if len(cfg.Common) > 0 && !cfg.off[wallCommon] {
		s.seccomp(cfg.Common, false)
	}
	return s
}

// openFiles opens the files that the builder copies. It returns the registers of their descriptors by their paths.
func (s *script) openFiles(files []copied) map[string]reg {
	opened := map[string]reg{}
	for _, f := range files {
		if f.open && f.size > 0 {
			opened[f.Inside] = s.keep(copying+f.Host, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(f.Host), num(unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK), num(0))
		}
	}
	return opened
}

// copying begins the names of calls that fail if a file cannot be copied by the builder.
const copying = "copy "

// errCopy means that the builder cannot copy a file: it may have been replaced meanwhile, or its file system refuses.
var errCopy = errors.New("no copy")

// copies reports whether the call at index opens or copies a file of the system.
func (s *script) copies(index uint32) bool {
	return int(index) < len(s.names) && strings.HasPrefix(s.names[index], copying)
}

// copyFiles copies the files, also what they have grown by. The kernel copies those that the builder has opened, so that their bytes are not sent to it.
func (s *script) copyFiles(files []copied, opened map[string]reg) {
	for _, f := range files {
		from, ok := opened[f.Inside]
		if !ok {
			if b, err := os.ReadFile(f.Host); err == nil {
				s.file(f.Inside, b)
			}
			continue
		}
		to := s.create(f.Inside)
		s.do(copying+f.Host, unix.SYS_SENDFILE, to.arg(), from.arg(), num(0), num(copiedBytes))
		s.close(f.Inside, to)
	}
	for _, f := range files {
		if from, ok := opened[f.Inside]; ok {
			s.close(f.Host, from)
		}
	}
}

// fill populates the new root, which is the process's root already.
func (s *script) fill(trees []tree, links [][2]string, proc reg, shared Shared) {
	made := map[string]bool{}
	for _, d := range []string{"/etc", "/proc", "/tmp", "/run", "/mnt/data", "/dev", AttachDir} {
		s.mkdirs(d, made)
	}
	s.moveMount(proc.arg(), "/proc")
	// The old root is detached. While the kernel does that, it waits for other processors until they have left a system call, and one that makes a
	// network namespace does not for long.
	s.add("begin the first sandbox's network", network, 0, 0, nil)
	if shared.Host != "" {
		s.mkdirs(shared.Inside, made)
	}
	for _, l := range links {
		s.mkdirs(filepath.Dir(l[1]), made)
		s.do("symlink "+l[1], unix.SYS_SYMLINKAT, s.str(l[0]), num(unix.AT_FDCWD), s.str(l[1]))
	}
	files := make([]string, 0, len(syntheticFiles))
	for f := range syntheticFiles {
		files = append(files, f)
	}
	sort.Strings(files)
	for _, f := range files {
		s.file(f, []byte(syntheticFiles[f]))
	}
	s.copyKernelFiles("/proc/sys", made)
	s.mount("dev", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k,nr_inodes=32")
	s.mkdirs("/dev/shm", made)
	s.mkdirs(ptysPlace, made)
	for _, l := range [][2]string{{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}} {
		s.do("symlink /dev/"+l[1], unix.SYS_SYMLINKAT, s.str(l[0]), num(unix.AT_FDCWD), s.str("/dev/"+l[1]))
	}
	for _, t := range trees {
		s.graft(t, made)
	}
	s.mount("", "/dev", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, "")
}

func (s *script) graft(t tree, made map[string]bool) {
	st, err := os.Stat(t.path)
	isDir := err == nil && st.IsDir()
	if isDir {
		s.mkdirs(t.inside, made)
	} else {
		s.mkdirs(filepath.Dir(t.inside), made)
		s.file(t.inside, nil)
	}
	s.protect(t.handle, t.inside, t.attr)
	if t.covered && isDir {
		s.cover(t.handle, t.inside, coverDir)
		return
	}
	s.moveMount(t.handle, t.inside)
}

// protect sets the attributes of a detached tree and of all mounts in it.
func (s *script) protect(handle arg, name string, set uint64) {
	// struct mount_attr: set, clear, propagation, user namespace
	attr := binary.LittleEndian.AppendUint64(nil, set)
	attr = binary.LittleEndian.AppendUint64(attr, 0)
	attr = binary.LittleEndian.AppendUint64(attr, unix.MS_PRIVATE)
	attr = binary.LittleEndian.AppendUint64(attr, 0)
	s.do("protect "+name, unix.SYS_MOUNT_SETATTR, handle, s.str(""), num(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), s.bytes(attr), num(len(attr)))
}

// Directories of the template that are empty while graft runs.
const (
	coverDir = "/tmp"
	emptyDir = "/run"
)

// errCover means that the kernel refuses to mount an overlay here.
var errCover = errors.New("no overlay")

// cover mounts a tree as the lower directory of a read-only overlay. For a bind mount the
// mount table shows the path on the host, for an overlay only "/". An overlay without an
// upper directory needs two lower ones. The tree is temporarily mounted at below, which
// must be empty.
func (s *script) cover(handle arg, inside, below string) {
	s.moveMount(handle, below)
	s.do("cover "+inside, unix.SYS_MOUNT, s.str("packages"), s.str(inside), s.str("overlay"),
		num(unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV), s.str("lowerdir="+below+":"+emptyDir))
	s.do("detach "+below, unix.SYS_UMOUNT2, s.str(below), num(unix.MNT_DETACH))
}

// covers reports whether the call at index mounts an overlay.
func (s *script) covers(index uint32) bool {
	return int(index) < len(s.names) && strings.HasPrefix(s.names[index], "cover ")
}

func (s *script) moveMount(from arg, to string) {
	s.do("mount "+to, unix.SYS_MOVE_MOUNT, from, s.str(""), num(unix.AT_FDCWD), s.str(to), num(unix.MOVE_MOUNT_F_EMPTY_PATH))
	s.do("close", unix.SYS_CLOSE, from)
}
