package plainfile

import (
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mounts are the mounts of this process. One directory can be seen at several paths: where a mount shows a part of a file system once
// more, such as two volumes of a container that come from one directory of the host.
type Mounts []mount

type mount struct{ device, root, point string }

// maxMounts bounds the bytes of a table of mounts.
const maxMounts = 16 << 20

// ReadMounts returns the mounts of this process. There are none on systems without /proc.
func ReadMounts() Mounts {
	f, err := Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxMounts))
	if err != nil {
		return nil
	}
	return parseMounts(string(text))
}

// parseMounts reads a table of mounts; see proc_pid_mountinfo(5).
func parseMounts(text string) (all Mounts) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 4 && strings.HasPrefix(f[3], "/") {
			all = append(all, mount{f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return all
}

// unescape replaces the octal numbers of characters that would separate fields.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if n, err := strconv.ParseUint(text[min(i+1, len(text)):min(i+4, len(text))], 8, 8); text[i] == '\\' && err == nil {
			b.WriteByte(byte(n))
			i += 3
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// Paths returns the paths of a file or directory, of which it gets one, absolute and without links. parts are the paths of
// directories in it that are mounts.
func (m Mounts) Paths(path string) (all, parts []string) {
	all = []string{path}
	at := -1
	for i, one := range m {
		if under(path, one.point) && (at < 0 || len(one.point) >= len(m[at].point)) { // a later mount covers an earlier one
			at = i
		}
	}
	if at < 0 {
		return all, nil
	}
	file := moved(path, m[at].point, m[at].root) // its path on the file system
	for i, one := range m {
		switch {
		case i == at || one.device != m[at].device:
		case under(file, one.root):
			all = append(all, moved(file, one.root, one.point))
		case under(one.root, file):
			parts = append(parts, one.point)
		}
	}
	return all, parts
}

// Shows reports whether a file, or a part of a directory, is below a directory at one of its paths. Both paths are absolute and
// without links.
func (m Mounts) Shows(dir, path string) bool {
	all, parts := m.Paths(path)
	if slices.ContainsFunc(append(all, parts...), func(p string) bool { return under(p, dir) }) {
		return true
	}
	dirs, inside := m.Paths(dir)
	return slices.ContainsFunc(append(dirs, inside...), func(d string) bool { return under(path, d) })
}

// under reports whether a path is a directory, or below it.
func under(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// moved returns a path below one directory as the same one below another.
func moved(path, from, to string) string {
	return filepath.Join(to, strings.TrimPrefix(path, strings.TrimSuffix(from, "/")))
}
