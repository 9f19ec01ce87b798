package plainfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Unlinked returns the path of a directory without links in it, or clean if that fails. It returns "" for "".
func Unlinked(dir string) string {
	if dir == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

// Bounds of what is looked at for one path.
const (
	maxLinks = 40   // links, as in the kernel
	maxNames = 4096 // names, those of the links' targets included
)

// Real returns an absolute path without links, as [filepath.EvalSymlinks] does, or an error for one that takes more than a moment: others may have made
// its links, and each of the 255 links that EvalSymlinks follows can lead through thousands of directories. It calls visit for each path that it looks at, before
// that, and for the target of each link. An error of visit ends it.
func Real(path string, visit func(next string) error) (string, error) {
	at, rest := "/", namesOf(path)
	for links, names := 0, 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "." {
			continue
		}
		next := filepath.Join(at, name) // at has no links, so the directory above it is that of ".."
		if err := visit(next); err != nil {
			return "", err
		}
		info, err := os.Lstat(next)
		if err != nil {
			return "", err
		}
		if names++; names > maxNames {
			return "", &fs.PathError{Op: "lstat", Path: path, Err: syscall.ELOOP}
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, failed := os.Readlink(next)
			if failed != nil {
				return "", failed
			}
			if failed = visit(target); failed != nil {
				return "", failed
			}
			if links++; links > maxLinks || names+len(rest) > maxNames {
				return "", &fs.PathError{Op: "lstat", Path: path, Err: syscall.ELOOP}
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(namesOf(target), rest...)
		case len(rest) > 0 && !info.IsDir():
			return "", &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOTDIR}
		default:
			at = next
		}
	}
	return at, nil
}

// LeadsInto reports whether a path is in a directory, or leads there or through it by a link on its way, also where a mount shows
// the directory once more. A program that can change the directory then decides what the path names. The path of the directory has
// to be without links; "" contains nothing.
func LeadsInto(dir, path string) bool { return dir != "" && ReadMounts().LeadsInto(dir, path) }

// LeadsInto is as the function of that name, with the mounts as they were read.
func (m Mounts) LeadsInto(dir, path string) bool {
	if dir == "" {
		return false
	}
	dirs := m.Whole(dir)
	in := false
	whole := Walk(path, func(next string, _ bool) bool {
		in = slices.ContainsFunc(dirs, func(d string) bool { return under(next, d) })
		return !in
	})
	return in || !whole
}

// Links returns the links on the way of a path, in the order in which they are followed. The directories of each link
// are no links.
func Links(path string) []string {
	var all []string
	Walk(path, func(next string, link bool) bool {
		if link {
			all = append(all, next)
		}
		return true
	})
	return all
}

// Walk calls visit for each name on the way of a path, until visit returns false. It returns false if the path has too many
// links or names, or begins nowhere.
func Walk(path string, visit func(next string, link bool) (more bool)) (whole bool) {
	if !filepath.IsAbs(path) { // filepath.Abs would remove the ".." behind a link
		here, err := os.Getwd()
		if err != nil {
			return false
		}
		path = here + "/" + path
	}
	at, rest := "/", namesOf(path)
	if !visit(at, false) {
		return true
	}
	for links, names := 0, 0; len(rest) > 0; {
		if rest[0] == "." {
			rest = rest[1:]
			continue
		}
		if names++; names > maxNames { // the same names as in Real
			return false
		}
		next := filepath.Join(at, rest[0])
		target, err := os.Readlink(next)
		rest = rest[1:]
		if !visit(next, err == nil) {
			return true
		}
		if err != nil { // it is no link
			at = next
			continue
		}
		if links++; links > maxLinks || names+len(rest) > maxNames {
			return false
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(namesOf(target), rest...)
	}
	return true
}

// namesOf returns the names in a path, and at the end "." if what they name has to be a directory. It leaves out what names nothing: a link may have
// thousands of slashes, and forty such links on a path would be copied again and again.
func namesOf(path string) (all []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			all = append(all, name)
		}
	}
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/.") {
		all = append(all, ".")
	}
	return all
}
