package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// entry is a file or symbolic link of an archive or package. Directories follow from the names; one
// with a mode of its own can be an entry of a tar.
type entry struct {
	name string // slash-separated, relative
	mode fs.FileMode
	data []byte
	link string // what a symbolic link points to
}

// writeTar writes the entries, and the directories above them, owned by root.
func writeTar(w io.Writer, entries []entry, when time.Time) error {
	tw := tar.NewWriter(w)
	seen := map[string]bool{}
	for _, e := range entries {
		for i, c := range e.name {
			if dir := e.name[:i]; c == '/' && !seen[dir] {
				seen[dir] = true
				if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: when}); err != nil {
					return err
				}
			}
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)), ModTime: when}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		case e.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
			if e.mode&fs.ModeSticky != 0 {
				h.Mode |= 0o1000
			}
		}
		if err := tw.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := tw.Write(e.data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// writeZip writes the entries that are files.
func writeZip(w io.Writer, entries []entry, when time.Time) error {
	zw := zip.NewWriter(w)
	for _, e := range entries {
		if e.link != "" {
			continue
		}
		h := zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when}
		h.SetMode(e.mode)
		f, err := zw.CreateHeader(&h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return zw.Close()
}

// writeTree writes the entries below a directory.
func writeTree(dir string, entries []entry, when time.Time) error {
	for _, e := range entries {
		path := filepath.Join(dir, filepath.FromSlash(e.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if e.link != "" {
			if err := os.Symlink(e.link, path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, e.data, e.mode.Perm()); err != nil {
			return err
		}
		if err := os.Chmod(path, e.mode.Perm()); err != nil { // whatever the umask is
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		if d.IsDir() {
			if err := os.Chmod(path, 0o755); err != nil {
				return err
			}
		}
		return os.Chtimes(path, when, when)
	})
}

// writeFile creates a file and fills it.
func writeFile(path string, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := fill(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// archive writes the program with its license and documents: a zip for Windows, else a tar.gz.
func (r *release) archive(t target, p program) error {
	dir := "sandboxmcp_" + r.version + "/"
	entries := []entry{{name: dir + t.executable(), mode: 0o755, data: p.data}}
	for _, name := range aliases {
		entries = append(entries, entry{name: dir + name, link: "sandboxmcp"})
	}
	pages, err := r.pages(dir, "LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md")
	if err != nil {
		return err
	}
	entries = append(entries, pages...)
	if t.os == "windows" {
		return writeFile(r.file(t, ".zip"), func(w io.Writer) error { return writeZip(w, entries, r.when) })
	}
	return writeFile(r.file(t, ".tar.gz"), func(w io.Writer) error {
		gw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := writeTar(gw, entries, r.when); err != nil {
			return err
		}
		return gw.Close()
	})
}
