package jail

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// openTrees returns detached, read-only copies of the mounts at and below the directories of trees. view is a descriptor of
// the mount namespace with the host's files; -1: the builder's, before it has its script. The caller closes the copies.
//
// Preconditions: the jail's mode is ModeRoot or ModeContainer.
func (j *Jail) openTrees(view int, trees []Tree) (fds []int, err error) {
	for some := range slices.Chunk(trees, maxAtOnce) {
		if j.borrows {
			var more []int
			more, err = j.borrow(view, some)
			fds = append(fds, more...)
		} else {
			for _, t := range some {
				var fd int
				if fd, err = openTree(t.Host); err != nil {
					break
				}
				fds = append(fds, fd)
			}
		}
		if err != nil {
			closeAll(fds...)
			return nil, err
		}
	}
	return fds, nil
}

// copiesMounts reports whether this process may copy mounts. Root in a container mostly may not, because it lacks
// CAP_SYS_ADMIN. The builder may, because it has a user namespace. The kernel checks the right before it looks up the path. The path is empty, so
// no copy is made: closing one takes 0.26 ms.
func copiesMounts() bool {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	closeAll(fd)
	return !errors.Is(err, unix.EPERM)
}

// openTree returns a detached, read-only copy of the mounts at and below dir. The
// caller closes it.
func openTree(dir string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", dir, err)
	}
	attr := &unix.MountAttr{Attr_set: readOnly, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		closeAll(fd)
		return -1, fmt.Errorf("protect %s: %w", dir, err)
	}
	return fd, nil
}

// borrow is openTrees for a server that may not copy mounts. A process with the server's user id enters the builder's
// namespaces, where it may: the server's user has made them. To that process, directories of the server's user are its own. It
// lives until it has opened the trees, is in no pid namespace of a sandbox, and no process of a sandbox may trace it.
func (j *Jail) borrow(view int, trees []Tree) ([]int, error) {
	var pidfd int
	control, pid, err := launch{}.connected(&pidfd)
	if err != nil {
		return nil, err
	}
	defer await(pid)
	defer closeAll(control, pidfd) // at the end of file, it ends
	fds := []int{-1, view}
	for i, name := range []string{"user", "mnt"} {
		if i == 1 && view >= 0 {
			break
		}
		if fds[i], err = unix.Open("/proc/"+strconv.Itoa(j.pid)+"/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("open the builder's namespaces: %w", err)
		}
		defer closeAll(fds[i])
	}
	s := &script{}
	s.do("enter the builder's user namespace", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWUSER))
	s.do("enter the host's view", unix.SYS_SETNS, passed(1), num(unix.CLONE_NEWNS))
	for _, t := range trees {
		tree := s.copyTree(t.Host)
		s.protect(tree.arg(), t.Host, readOnly)
		s.give(tree)
	}
	p, err := s.encode(nil, 'B')
	if err == nil {
		err = send(control, p, fds...)
	}
	var answer []byte
	var got []int
	if err == nil {
		answer, got, err = receive(control, make([]byte, 256))
	}
	switch {
	case err != nil:
	case len(answer) > 0 && word(answer, 0) == 'E':
		err = s.failure(word(answer, 1), word(answer, 2))
	case len(got) != len(trees):
		err = errors.New("the process that opens directories has ended")
	}
	if err != nil {
		closeAll(got...)
		return nil, err
	}
	return got, nil
}
