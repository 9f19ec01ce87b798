package host

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
)

// tree is a directory below which files may be reached.
type tree struct {
	name string // as the settings have it
	real string // without links
}

// newTree returns the tree of a directory. The directory does not have to be there yet.
func newTree(dir string) tree {
	t := tree{name: filepath.Clean(dir)}
	t.real = t.name
	for there, rest := t.name, ""; ; there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest) {
		if real, err := filepath.EvalSymlinks(there); err == nil {
			t.real = filepath.Join(real, rest)
			return t
		}
		if there == filepath.Dir(there) {
			return t
		}
	}
}

// place is a path below a tree.
type place struct {
	tree tree
	rel  string // below tree; "." is the tree itself
}

func (p place) abs() string { return filepath.Join(p.tree.real, p.rel) }

// pathDenied is the error for a path that may not be used.
func pathDenied(path, why string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeHostPathDenied, "%s is refused: %s", sandboxmcp.Quote(path), why)
}

// maxPath bounds a path, in bytes.
const maxPath = 4096

// locate returns the place of a path, judged by its text alone. closed are paths that are
// never used.
func locate(path string, trees []tree, closed []string) (place, error) {
	switch {
	case path == "":
		return place{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "path is empty")
	case strings.IndexFunc(path, control) >= 0:
		return place{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the path contains a control character")
	case len(path) > maxPath:
		return place{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the path has %d bytes; at most %d are allowed", len(path), maxPath)
	case !filepath.IsAbs(path):
		return place{}, pathDenied(path, "it is not absolute")
	}
	if slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		return place{}, pathDenied(path, "it contains ..")
	}
	clean := filepath.Clean(path)
	var best *place // below the innermost tree, because what may be written there depends on the tree
	for _, t := range trees {
		for _, root := range []string{t.name, t.real} {
			if !under(clean, root) {
				continue
			}
			rel, err := filepath.Rel(root, clean)
			if err != nil {
				continue
			}
			if best == nil || len(t.real) > len(best.tree.real) {
				best = &place{t, rel}
			}
		}
	}
	if best != nil {
		return *best, best.judge(path, closed)
	}
	if len(trees) == 0 {
		return place{}, pathDenied(path, "no directory is open to host tools").WithHint("an operator lists directories in host_roots (SANDBOXMCP_HOST_ROOTS)")
	}
	return place{}, pathDenied(path, "it is outside of host_roots")
}

// judge refuses a place by its names.
func (p place) judge(path string, closed []string) error {
	abs := p.abs()
	if newPlaces(closed).holdFile(abs) {
		return pathDenied(path, "it belongs to this program or to the system")
	}
	for _, c := range systemPlaces {
		if under(abs, c) {
			return pathDenied(path, "it belongs to the system")
		}
	}
	if why := secret(abs); why != "" {
		return pathDenied(path, why)
	}
	return nil
}

// startedThere is why a place of [Config.Started] is not written.
const startedThere = "this program executes or trusts what is there"

// writable refuses a place that may be read and not written, also if that holds only for another path at which a mount shows it.
func (p place) writable(path string, now state) error {
	trees := now.mounts.Paths(p.tree.real)
	for _, abs := range now.mounts.Paths(p.abs()) {
		opened := slices.DeleteFunc(slices.Clone(trees), func(t string) bool { return filepath.Join(t, p.rel) != abs }) // not a mount of a part of the tree, nor one in it
		why := obeyed(abs)
		switch {
		case now.started().holdFile(abs):
			why = startedThere
		case slices.ContainsFunc(neverWritten, func(c string) bool {
			return under(abs, c) && !slices.ContainsFunc(opened, func(t string) bool { return under(t, c) })
		}):
			why = "it belongs to the system"
		case why != "":
		case recordOfGit(abs):
			why = "git has the records of a repository there, and executes or obeys some of them"
		default:
			why = hiddenAtHome(abs, opened)
		}
		if why != "" {
			return pathDenied(path, why)
		}
	}
	return nil
}

// underAny reports whether a path is one of some directories, or below one.
func underAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return under(path, dir) })
}

// recordOfGit reports whether a path is below the directory of a bare repository, or makes its directory one. Such a directory may have
// any name.
func recordOfGit(path string) bool {
	dir := filepath.Dir(path)
	if isThere(dir, "objects", "refs") && slices.Contains(parts(filepath.Base(path)), "head") { // "HEAD" would be the last that is missing
		return true
	}
	for ; !holdsGit(dir); dir = filepath.Dir(dir) {
		if dir == filepath.Dir(dir) {
			return false
		}
	}
	return true
}

// hiddenAtHome returns why a path is not written that has a hidden name in a home directory, or is below it, or "". Programs keep their
// settings there, and many settings name what a program executes. The same holds for bin, which shells have in their PATH. It may be
// written if its tree is there. trees are the paths of the tree by which it is abs.
func hiddenAtHome(abs string, trees []string) string {
	users, err := homes()
	if usedUp(err) {
		return "the server can open no more files at the moment, so it does not know the home directories"
	}
	for _, home := range users {
		for _, dir := range []string{home, newTree(home).real} {
			rest, below := strings.CutPrefix(abs, dir+string(filepath.Separator))
			name, _, _ := strings.Cut(rest, string(filepath.Separator))
			read := parts(rest)
			if !below || len(read) == 0 || slices.ContainsFunc(trees, func(t string) bool { return under(t, filepath.Join(dir, name)) }) {
				continue
			}
			if read[0] == "bin" {
				return "a user's programs are in bin of a home directory"
			}
			if strings.HasPrefix(read[0], ".") {
				return "programs keep their settings in " + name + " of a home directory"
			}
		}
	}
	return ""
}

// open opens the directory of a place, or with parent the one that contains it. No component
// may be a symbolic link, also not if it is swapped meanwhile. The caller closes it.
func (p place) open(path string, parent bool) (*os.Root, error) {
	dir, err := openTree(p.tree.real)
	if err != nil {
		return nil, readError(path, err)
	}
	rel := p.rel
	if parent {
		rel = filepath.Dir(rel)
	}
	if rel == "." {
		return dir, nil
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		next, err := step(dir, name)
		_ = dir.Close()
		if err != nil {
			return nil, readError(path, err)
		}
		dir = next
	}
	return dir, nil
}

// openChecked opens a directory whose path has no links now.
func openChecked(real string) (*os.Root, error) {
	now, err := filepath.EvalSymlinks(real)
	if err == nil && now != real {
		err = errLink
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(real)
}

// Errors of entries.
var (
	errLink    = errors.New("it is a symbolic link, or leads through one")
	errSwapped = errors.New("it was replaced while it was opened")
	errSpecial = errors.New("it is not a regular file")
	errLinks   = errors.New("it has several names, and one of them may be outside of host_roots")
)

// step opens a directory in another one.
func step(dir *os.Root, name string) (*os.Root, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if before.Mode()&fs.ModeSymlink != 0 {
		return nil, errLink
	}
	if !before.IsDir() {
		return nil, syscall.ENOTDIR
	}
	next, err := dir.OpenRoot(name + "/.") // without the dot, os.Root would wait for the writer of a FIFO that was put there meanwhile
	if err != nil {
		return nil, err
	}
	now, err := next.Stat(".")
	if err == nil && !os.SameFile(before, now) {
		err = errSwapped
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// regular opens a regular file of a directory for reading. It does not wait for a FIFO and
// opens no device. The caller closes it.
func regular(dir *os.Root, name string) (*os.File, os.FileInfo, error) {
	before, err := dir.Lstat(name)
	if err == nil {
		err = plain(before)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(before, now) {
		err = errSwapped
	}
	if err == nil {
		err = plain(now)
	}
	if err == nil && ofKernel(f) {
		err = errSpecial
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, now, nil
}

// plain refuses everything but a regular file of one name.
func plain(info os.FileInfo) error {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return errLink
	case !info.Mode().IsRegular():
		return errSpecial
	case links(info) > 1:
		return errLinks
	}
	return nil
}

// readError returns the error for a path that cannot be opened.
func readError(path string, err error) error {
	for _, why := range []error{errLink, errSwapped, errSpecial, errLinks} {
		if errors.Is(err, why) {
			return pathDenied(path, why.Error())
		}
	}
	switch {
	case errors.As(err, new(*sandboxmcp.Error)): // the time was over
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is not there", sandboxmcp.Quote(path)).WithCause(err)
	case errors.Is(err, fs.ErrPermission):
		return pathDenied(path, "this server's user may not use it")
	}
	return pathDenied(path, "it cannot be opened as a file below its root")
}

// readPart reads up to most bytes of the regular file at a path, from an offset. If the file has more than largest bytes, it reads nothing.
func (f *Files) readPart(ctx context.Context, path string, offset, most, largest int64) ([]byte, os.FileInfo, error) {
	content := &kept{bytes: []byte{}}
	info, err := looked(ctx, timeToLook, func(ctx context.Context) (os.FileInfo, error) {
		file, info, err := f.openHere(ctx, path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // Close may wait, too
		if info.Size() > largest {
			return info, nil
		}
		if _, err = file.Seek(offset, io.SeekStart); err == nil {
			_, err = io.Copy(content, io.LimitReader(wanted(ctx, file), most))
		}
		if err != nil {
			err = readError(path, err)
		}
		return info, err
	})
	return content.take(), info, err
}

// readFunc is an [io.Reader].
type readFunc func(b []byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// wanted returns a reader that fails once ctx has ended. The call has returned then, and left its turn to another one, so its bytes must not stay in memory
// until a slow disk has all of them.
func wanted(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(b []byte) (int, error) {
		if err := late(ctx); err != nil {
			return 0, err
		}
		return r.Read(b[:min(len(b), 1<<20)])
	})
}

// openHere opens the regular file at a path for reading. The caller closes it.
func (f *Files) openHere(ctx context.Context, path string) (*os.File, os.FileInfo, error) {
	now, err := f.now(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := locate(path, *f.trees.Load(), now.closed)
	if err != nil {
		return nil, nil, err
	}
	if p.rel == "." {
		return nil, nil, pathDenied(path, errSpecial.Error())
	}
	dir, err := p.open(path, true)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = dir.Close() }()
	file, info, err := regular(dir, filepath.Base(p.rel))
	if err != nil {
		return nil, nil, readError(path, err)
	}
	shared := f.host.cfg.Changeable // there, a program can rename the directory by whose name a file was refused
	if now.mounts.LeadsInto(shared, p.abs()) && !readableBy(ownerOf(shared), info) {
		return nil, nil, errors.Join(pathDenied(path, "it is another user's in workspace_path, and programs in sandboxes may not read it"), file.Close())
	}
	return file, info, nil
}

// account is a user.
type account struct{ uid, gid int }

// put writes a file at a place. It replaces a file whole, so that no reader sees a part of it
// and a link that is put in its way is replaced, not followed. Once ctx ends, nothing is replaced.
func put(ctx context.Context, p place, path string, content io.Reader, overwrite bool) error {
	if p.rel == "." {
		return pathDenied(path, errSpecial.Error())
	}
	dir, err := p.open(path, true)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	name, mode := filepath.Base(p.rel), fs.FileMode(0o644)
	old, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return readError(path, err)
	case !overwrite:
		return sandboxmcp.Errorf(sandboxmcp.CodeFileExists, "%s is there", sandboxmcp.Quote(path))
	default:
		if bad := plain(old); bad != nil {
			return readError(path, bad)
		}
		mode = old.Mode().Perm()
	}
	temp := ".sandboxmcp-" + rand.Text()
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return readError(path, err)
	}
	_, err = io.Copy(f, wanted(ctx, content))
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && old != nil {
		keepOwner(f, old)
	}
	err = errors.Join(err, f.Close())
	if failed := late(ctx); failed != nil {
		_ = dir.Remove(temp)
		return failed
	}
	if err == nil && !overwrite {
		err = dir.Link(temp, name) // fails if the name was taken meanwhile
		if errors.Is(err, fs.ErrExist) {
			err = sandboxmcp.Errorf(sandboxmcp.CodeFileExists, "%s is there", sandboxmcp.Quote(path))
		}
		return errors.Join(err, dir.Remove(temp))
	}
	if err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		_ = dir.Remove(temp)
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s could not be written", sandboxmcp.Quote(path)).WithCause(err)
	}
	return nil
}
