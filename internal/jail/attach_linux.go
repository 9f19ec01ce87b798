package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Trees that only single sandboxes see are not part of the template. They are attached as a
// list. Each list is made once, as a directory with one mount per tree, in a separate mount
// namespace of the jail: the gallery. The gallery has the template's mounts and no process.
// The server holds a descriptor of it. If the server is an ordinary user, it also holds one
// of the mount namespace with the host's files. A sandbox gets a copy of a list's mounts at
// AttachDir in one step, even while programs run in it.
//
// A fork of a spawner makes the lists and the copies. It has capabilities over the jail's
// mount namespaces and over those of sandboxes, whose user namespaces are children of its
// own. No program can see it or send it a signal.

// AttachDir is the directory of attached trees in a sandbox. Each has its own name in it.
const AttachDir = "/opt/sandboxmcp"

const (
	ownMounts   = "/proc/self/ns/mnt"
	galleryDir  = "/tmp"      // in the gallery; has a directory for each list
	galleryWork = "/mnt/data" // in the gallery; a mount point for unfinished mounts

	maxAttached = 96 // trees of one list: installed packages of two languages (32 sets each), and package sets
	maxAtOnce   = 12 // trees that one script mounts: it gets a descriptor of each, and at most maxPassed
	maxLists    = 32 // lists that a jail keeps; sandboxes keep their copies of dropped ones
)

// ErrAttach means that a list of trees cannot be attached, for a reason in the list.
var ErrAttach = errors.New("cannot be attached")

// ErrStopped means that the caller stopped waiting before anything was done.
var ErrStopped = errors.New("stopped")

// gallery is the server's state of the gallery. The zero value has no gallery.
type gallery struct {
	mu    sync.Mutex // held while a list is made or copied
	open  bool
	space int // descriptor of its mount namespace
	host  int // descriptor of a mount namespace with the host's files; -1: the server's own has them
	lists map[string]int
	order []string // keys of lists, the most recently used last
	next  int
}

// hold takes ownership of the descriptors from the builder.
func (g *gallery) hold(views []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch len(views) {
	case 1:
		g.space, g.host = views[0], -1
	case 2:
		g.host, g.space = views[0], views[1]
	default:
		closeAll(views...)
		return
	}
	g.open, g.lists = true, map[string]int{}
}

func (g *gallery) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		g.open = false
		closeAll(g.space, g.host)
	}
}

// gallery adds calls that make the gallery's mount namespace, return its descriptor to the
// server, and return to the template.
func (s *script) gallery() {
	template := s.keep("open the template", unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(ownMounts), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0))
	s.do("unshare", unix.SYS_UNSHARE, num(unix.CLONE_NEWNS))
	s.mount("gallery", galleryDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m,nr_inodes=4096")
	s.give(s.keep("open the gallery", unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(ownMounts), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0)))
	s.do("return to the template", unix.SYS_SETNS, template.arg(), num(unix.CLONE_NEWNS))
	s.do("close", unix.SYS_CLOSE, template.arg())
}

// Attach shows trees in the sandbox, in place of those that were attached before. Their
// paths must be directly below AttachDir. Running programs see the change. Attach fails
// with ErrAttach if the list cannot be attached, with ErrEnded if the sandbox has ended,
// and with ErrStopped if stop is closed before. On error the previous trees stay attached.
//
// Preconditions: Linux 5.12 (mount_setattr, open_tree). It may not be called after Close.
func (s *Slot) Attach(stop <-chan struct{}, trees []Tree) error {
	if err := attachable(trees); err != nil {
		return err
	}
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return ErrEnded
	}
	err := s.show(stop, trees)
	s.stale()
	if err != nil && !errors.Is(err, ErrAttach) {
		err = s.orEnded(err)
	}
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return nil
}

// show makes the list if the gallery does not have it, and copies it into the sandbox.
func (s *Slot) show(stop <-chan struct{}, trees []Tree) error {
	j := s.jail
	g := &j.gallery
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		return errors.ErrUnsupported
	}
	number, err := j.listLocked(stop, trees)
	if err != nil {
		return err
	}
	sc := &script{}
	sc.do("enter the gallery", unix.SYS_SETNS, passed(1), num(unix.CLONE_NEWNS))
	list := sc.copyTree(galleryPlace(number))
	sc.do("enter the sandbox", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNS))
	sc.moveMount(list.arg(), AttachDir)
	_, err = j.once(stop, sc, s.gone, s.pidfd, g.space)
	return err
}

// attachable fails unless each tree has its own valid path.
func attachable(trees []Tree) error {
	places := map[string]bool{}
	for _, t := range trees {
		name, ok := strings.CutPrefix(t.Inside, AttachDir+"/")
		if !ok || name == "" || name != path.Base(path.Clean("/"+name)) || places[name] || !path.IsAbs(t.Host) || strings.ContainsRune(t.Host+name, 0) {
			return fmt.Errorf("%w: %q at %q", ErrAttach, t.Host, t.Inside)
		}
		places[name] = true
	}
	if len(trees) > maxAttached {
		return fmt.Errorf("%w: %d trees, at most %d", ErrAttach, len(trees), maxAttached)
	}
	return nil
}

func galleryPlace(number int) string { return galleryDir + "/" + strconv.Itoa(number) }

// listLocked returns the number of a list in the gallery. It makes the list if it does not
// exist. The caller holds the gallery's lock.
func (j *Jail) listLocked(stop <-chan struct{}, trees []Tree) (int, error) {
	g := &j.gallery
	var b strings.Builder
	for _, t := range trees { // the key includes inodes: a directory that was replaced makes another list
		var st unix.Stat_t
		if err := unix.Stat(t.Host, &st); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrAttach, &os.PathError{Op: "stat", Path: t.Host, Err: err})
		}
		if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG { // not a socket, for example: a program could connect to it
			return 0, fmt.Errorf("%w: %s is no directory or regular file", ErrAttach, t.Host)
		}
		fmt.Fprintf(&b, "%s\x00%s\x00%d.%d\x00", t.Host, t.Inside, st.Dev, st.Ino)
	}
	key := b.String()
	if n, ok := g.lists[key]; ok {
		g.usedLocked(key)
		return n, nil
	}
	n := g.next
	g.next++
	err := j.makeList(stop, n, trees, !j.cfg.bare)
	if errors.Is(err, errCover) { // try again without overlays, as for the template
		n = g.next
		g.next++
		err = j.makeList(stop, n, trees, false)
	}
	if err != nil {
		return 0, err
	}
	g.lists[key] = n
	g.usedLocked(key)
	if len(g.order) > maxLists {
		old := g.order[0]
		number := g.lists[old]
		g.order = g.order[1:]
		delete(g.lists, old)
		return n, j.dropList(number)
	}
	return n, nil
}

func (g *gallery) usedLocked(key string) {
	for i, k := range g.order {
		if k == key {
			g.order = append(g.order[:i], g.order[i+1:]...)
			break
		}
	}
	g.order = append(g.order, key)
}

// makeList mounts trees below one directory of the gallery. If cover is set, directories
// are mounted as overlays, so that mount tables do not show their paths on the host.
func (j *Jail) makeList(stop <-chan struct{}, number int, trees []Tree, cover bool) error {
	place := galleryPlace(number)
	var err error
	for start := 0; start == 0 || start < len(trees) && err == nil; start += maxAtOnce {
		end := min(start+maxAtOnce, len(trees))
		err = j.mountInList(stop, place, trees[start:end], cover, func(sc *script, mount func()) {
			if start == 0 {
				sc.mkdir(place)
				sc.mount("packages", place, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=256k,nr_inodes="+strconv.Itoa(len(trees)+1))
			}
			mount()
			if end == len(trees) {
				sc.mount("", place, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
			}
		})
	}
	if err != nil { // remove the incomplete list
		err = errors.Join(err, j.dropList(number))
	}
	return err
}

// mountInList mounts trees in the directory of a list. around adds the calls before and after these
// mounts.
func (j *Jail) mountInList(stop <-chan struct{}, place string, trees []Tree, cover bool, around func(sc *script, mount func())) error {
	fds := []int{j.gallery.space}
	sc := &script{}
	var handles []arg
	if j.borrows || j.gallery.host < 0 {
		opened, err := j.openTrees(j.gallery.host, trees)
		if err != nil && !j.borrows {
			err = fmt.Errorf("%w: %w", ErrAttach, err)
		}
		if err != nil {
			return j.withRight(err)
		}
		defer closeAll(opened...)
		for _, fd := range opened {
			handles = append(handles, passed(len(fds)))
			fds = append(fds, fd)
		}
	} else {
		fds = append(fds, j.gallery.host)
		sc.do("enter the host's view", unix.SYS_SETNS, passed(1), num(unix.CLONE_NEWNS))
		for _, t := range trees {
			handles = append(handles, sc.copyTree(t.Host).arg())
		}
	}
	sc.do("enter the gallery", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNS))
	around(sc, func() {
		for i, t := range trees {
			inside := place + "/" + path.Base(t.Inside)
			sc.protect(handles[i], t.Inside, readOnly)
			st, err := os.Stat(t.Host)
			if err == nil && !st.IsDir() {
				sc.file(inside, nil)
			} else {
				sc.mkdir(inside)
			}
			if cover && err == nil && st.IsDir() {
				sc.cover(handles[i], inside, galleryWork)
			} else {
				sc.moveMount(handles[i], inside)
			}
		}
	})
	_, err := j.once(stop, sc, nil, fds...)
	return j.withRight(err)
}

// dropList removes a list from the gallery. Sandboxes keep their copies of it.
func (j *Jail) dropList(number int) error {
	sc := &script{}
	sc.do("enter the gallery", unix.SYS_SETNS, passed(0), num(unix.CLONE_NEWNS))
	for _, at := range []string{galleryWork, galleryPlace(number)} {
		sc.try("detach "+at, unix.SYS_UMOUNT2, sc.str(at), num(unix.MNT_DETACH))
	}
	sc.try("remove the list", unix.SYS_UNLINKAT, num(unix.AT_FDCWD), sc.str(galleryPlace(number)), num(unix.AT_REMOVEDIR))
	_, err := j.once(nil, sc, nil, j.gallery.space)
	return err
}

// mkdir adds a call that makes a directory.
func (s *script) mkdir(path string) {
	s.do("mkdir "+path, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(path), num(0o755))
}

// copyTree adds a call that makes a detached copy of a mount and of all mounts below it.
func (s *script) copyTree(path string) reg {
	return s.keep("open "+path, unix.SYS_OPEN_TREE, num(unix.AT_FDCWD), s.str(path), num(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE))
}

// once runs a script in a fork of a spawner and returns the descriptors that the script
// gives. The script refers to fds by passed. once fails with ErrEnded if the jail ends or
// gone is closed before the script is done, and with ErrStopped if stop is closed.
func (j *Jail) once(stop <-chan struct{}, sc *script, gone <-chan struct{}, fds ...int) ([]int, error) {
	packet, err := sc.encode(make([]byte, makeHead), 'B')
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	le.PutUint32(packet[0:], 'M')
	le.PutUint32(packet[4:], modePlain|modeOnce)
	le.PutUint32(packet[24:], makeHead)
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer closeAll(ours)
	worker := &Slot{jail: j, pidfd: -1, network: -1}
	select {
	case w := <-j.spawners:
		err = worker.spawn(w, packet, append([]int{theirs}, fds...), func() error { return nil })
		j.giveBack(w)
	case <-stop:
		err = ErrStopped
	case <-gone:
		err = ErrEnded
	case <-j.done:
		err = ErrEnded
	}
	closeAll(theirs)
	defer func() { closeAll(worker.pidfd) }()
	if err != nil {
		return nil, err
	}
	var b [256]byte
	answer, got, err := receive(ours, b[:])
	switch {
	case err != nil:
	case len(answer) == 0:
		err = errors.New("the worker ended")
	case word(answer, 0) == 'E':
		err = sc.failure(word(answer, 1), word(answer, 2))
		if sc.covers(word(answer, 1)) {
			err = fmt.Errorf("%w: %w", errCover, err)
		}
	}
	if err != nil {
		closeAll(got...)
		_ = waitPidfd(worker.pidfd, time.Second) // a port of its sockets is free once it has ended
		return nil, err
	}
	return got, nil
}
