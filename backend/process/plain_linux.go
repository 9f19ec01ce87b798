package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// plainPrefix begins the names of the directories of tier L1 sandboxes. Package host refuses these names.
const plainPrefix = "sandboxmcp-l1-"

// claim locks a directory to show that its server lives. The kernel releases the lock when the
// server ends in any way. If another process holds it, claim fails.
func claim(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweepable reports whether a directory belongs to the server's user and is a minute old.
func sweepable(dir string, now time.Time) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && now.Sub(time.Unix(st.Ctim.Unix())) >= time.Minute
}

// sweepPlain removes the directories that dead servers left of tier L1 sandboxes: those without a
// lock. It skips new directories, because their server may not have locked them yet.
func sweepPlain(tempDir string) {
	dirs, err := filepath.Glob(filepath.Join(tempDir, plainPrefix+"*"))
	if err != nil {
		return
	}
	for _, d := range dirs {
		if !sweepable(d, time.Now()) {
			continue
		}
		if lock, err := claim(d); err == nil {
			_ = errors.Join(removeTree(d), lock.Close())
		}
	}
}

// removeTree removes a directory. A dead program may have nested directories deeper than the server may
// open files, or have removed its permissions from some, which stops every user but root. Each directory
// is therefore moved to the top, where its path is short, and gets its permissions back.
func removeTree(dir string) error {
	root, err := os.OpenRoot(dir) // os.Root follows no link out of it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	moved := 0
	err = empty(root, ".", func(name string) error {
		bad := empty(root, name, func(inner string) error {
			_ = root.Chmod(inner, 0o700) // a directory that changes its parent is written to
			for {
				moved++
				failed := root.Rename(inner, ".moved-"+strconv.Itoa(moved))
				if !errors.Is(failed, fs.ErrExist) && !errors.Is(failed, unix.ENOTDIR) { // else the program has taken the name
					return failed
				}
			}
		})
		return errors.Join(bad, root.Remove(name))
	})
	return errors.Join(err, root.Close(), os.Remove(dir))
}

// empty removes all entries of a directory of root. For an entry that is a directory it calls away, which has to
// remove or rename that directory. empty stops at the first error.
func empty(root *os.Root, dir string, away func(name string) error) error {
	_ = root.Chmod(dir, 0o700)
	for {
		list, err := some(root, dir)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, d := range list {
			name, remove := path.Join(dir, d.Name()), root.Remove
			if d.IsDir() {
				remove = away
			}
			if err = remove(name); err != nil {
				return err
			}
		}
	}
}

// some returns entries of a directory, none if it is empty.
func some(root *os.Root, dir string) ([]fs.DirEntry, error) {
	const most = 1000
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := f.ReadDir(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

// seen returns the trees that a tier L1 sandbox may read.
func (s *sandbox) seen() []backend.Tree {
	if s.b.cfg.Shown == "" || s.spec.Apart {
		return s.spec.Trees
	}
	return append(slices.Clone(s.spec.Trees), backend.Tree{Host: s.b.shared.Host})
}

// settle makes the host directories of a tier L1 sandbox.
func (s *sandbox) settle(mode jail.Mode, cfg *jail.SlotConfig) error {
	if mode != jail.ModePlain {
		return nil
	}
	root, err := os.MkdirTemp(s.b.cfg.TempDir, plainPrefix)
	if err != nil {
		return err
	}
	s.root = root
	if s.lock, err = claim(root); err != nil {
		return err
	}
	p := &jail.Place{UID: -1, Work: filepath.Join(root, "data"), Temp: filepath.Join(root, "tmp"), Program: filepath.Join(root, "program"), Readable: plainReadable(s.seen())}
	if os.Geteuid() == 0 {
		if p.UID, err = s.b.plainUser(); err != nil {
			return err
		}
		if err := os.Chmod(root, 0o711); err != nil { //nolint:gosec // the sandbox's user has to pass through it
			return err
		}
	}
	for _, d := range []string{p.Work, p.Temp, p.Program} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		if p.UID >= 0 {
			if err := os.Lchown(d, p.UID, p.UID); err != nil {
				return err
			}
		}
	}
	s.place, cfg.Plain = p, p
	return nil
}

// plainUser returns the user of a tier L1 sandbox of a server of root. Root of a user namespace may have no
// other users.
func (b *Backend) plainUser() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lease == nil {
		return -1, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "programs would run as the server's user, which is root of a user namespace").
			WithHint("start the server as an ordinary user, or as root of the host")
	}
	b.nextPlain++
	return b.lease.Plain(b.nextPlain), nil
}

// plainReadable returns the host paths that code at tier L1 may read: programs and libraries, the
// parts of /etc that they need, and extra. It includes neither /proc nor home directories.
func plainReadable(extra []backend.Tree) []string {
	all := []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
		"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/fonts",
	}
	for _, t := range extra {
		all = append(all, t.Host)
	}
	there := all[:0]
	for _, p := range all {
		if _, err := os.Stat(p); err == nil {
			there = append(there, p)
		}
	}
	return there
}
