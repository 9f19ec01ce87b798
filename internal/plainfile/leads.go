package plainfile

import (
	"os"
	"path/filepath"
	"strings"
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

// maxLinks is how many links one path may have, as in the kernel.
const maxLinks = 40

// LeadsInto reports whether a path is in a directory, or leads there or through it by a link on its way. A
// program that can change the directory then decides what the path names. The path of the directory has to be
// without links; "" contains nothing.
func LeadsInto(dir, path string) bool {
	if dir == "" {
		return false
	}
	if !filepath.IsAbs(path) { // filepath.Abs would remove the ".." behind a link
		here, err := os.Getwd()
		if err != nil {
			return true
		}
		path = here + "/" + path
	}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		if rest = rest[1:]; next == dir || strings.HasPrefix(next, strings.TrimSuffix(dir, "/")+"/") {
			return true
		}
		target, err := os.Readlink(next)
		if err != nil { // it is no link
			at = next
			continue
		}
		if links++; links > maxLinks {
			return true
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false
}
