package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// plainPrefix begins the names of the directories that sandboxes of tier L1
// live in.
const plainPrefix = "sandboxmcp-l1-"

// claim holds the lock that says that a directory's server lives. The kernel
// lets it go when the server ends, however it does.
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

// sweepable reports whether a directory is ours and old enough.
func sweepable(dir string, now time.Time) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && now.Sub(time.Unix(st.Ctim.Unix())) >= time.Minute
}

// sweepPlain removes what dead servers left of sandboxes of tier L1: what nobody
// holds a lock on. A directory that was made a moment ago is spared, because its
// server may not have come to locking it.
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

// removeTree removes a directory in which a dead program may have taken the
// rights to its own directories away, which stops everybody but root.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	root, openErr := os.OpenRoot(dir) // no link leads out of it
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(name, 0o700)
		}
		return nil
	})
	return errors.Join(root.Close(), os.RemoveAll(dir))
}

// plainReadable is what code may read of the host in tier L1: programs and
// libraries, and the parts of /etc that they need. Not /proc, not /etc as a
// whole, nobody's home.
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
