package plainfile

import (
	"bufio"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Mounts are the mounts of this process. One directory can be seen at several paths: where a mount shows a part of a file system once
// more, such as two volumes of a container that come from one directory of the host.
type Mounts []mount

type mount struct{ id, parent, device, root, point, kind string }

// maxMounts bounds the bytes of paths of mounts. A user of the machine can make a table of 50 MiB with a thousand FUSE file systems, most of it escaped
// blanks in what the table has besides paths.
const maxMounts = 16 << 20

// ReadMounts returns the mounts of this process. There are none on systems without /proc.
func ReadMounts() Mounts {
	all, _ := Table()
	return all
}

// Table is [ReadMounts] with the error, such as that no more files can be opened. If the mounts take too much memory, that is ENOMEM.
func Table() (Mounts, error) {
	f, err := Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parseMounts(f)
}

// parseMounts reads a table of mounts; see proc_pid_mountinfo(5). It returns all of them or an error: one that is missing may show a closed place once more.
func parseMounts(table io.Reader) (all Mounts, err error) {
	lines := bufio.NewReaderSize(table, 64<<10)
	for size := 0; err == nil; {
		var line string
		line, err = lines.ReadString('\n')
		f := strings.Split(line, " ") // other blanks may be in a name
		if len(f) <= 4 || !strings.HasPrefix(f[3], "/") {
			continue
		}
		one := mount{id: strings.Clone(f[0]), parent: strings.Clone(f[1]), device: strings.Clone(f[2]), root: Unescape(f[3]), point: Unescape(f[4])} // without the rest of the line
		if at := slices.Index(f, "-"); at > 4 && at+1 < len(f) {                                                                                     // behind fields that may be missing
			one.kind = strings.Clone(f[at+1][:min(len(f[at+1]), maxKind)])
		}
		if size += len(one.root) + len(one.point); size > maxMounts {
			return nil, syscall.ENOMEM
		}
		all = append(all, one)
	}
	if err != io.EOF {
		return nil, err
	}
	return all, nil
}

// maxKind is how much of the name of a kind of file systems is kept. Users can give FUSE longer ones.
const maxKind = 64

// Unescape returns a path of a table of mounts as it is. The table has the characters that would separate fields as octal numbers.
func Unescape(text string) string {
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

// on returns the number of the mount that a path is on, or -1. What another mount covers is passed over. Users can mount a thousand FUSE file systems on one
// another, so each mount is looked at once.
func (m Mounts) on(path string) int {
	at, covers := -1, map[string]int{} // covers has, by the mount that is covered, the one nearest to its root
	for i, one := range m {
		if !under(path, one.point) {
			continue
		}
		if at < 0 || len(one.point) < len(m[at].point) {
			at = i
		}
		if other, ok := covers[one.parent]; one.point != "/" && (!ok || len(one.point) < len(m[other].point)) { // nothing covers the root of a process that was there before
			covers[one.parent] = i
		}
	}
	for range covers {
		next, ok := covers[m[at].id]
		if !ok {
			break
		}
		at = next
	}
	return at
}

// Paths returns the paths of a file or directory, and those of mounts that show a part of it. It gets one of them, absolute and
// without links, which is the first.
func (m Mounts) Paths(path string) []string {
	all := []string{path}
	at := m.on(path)
	if at < 0 {
		return all
	}
	file := moved(path, m[at].point, m[at].root) // its path on the file system
	for i, one := range m {
		switch {
		case i == at || one.device != m[at].device:
		case under(file, one.root):
			all = append(all, moved(file, one.root, one.point))
		case under(one.root, file):
			all = append(all, one.point)
		}
	}
	return all
}

// Of returns where file systems of a kind are mounted, such as proc.
func (m Mounts) Of(kind string) (all []string) {
	for _, one := range m {
		if one.kind == kind {
			all = append(all, one.point)
		}
	}
	return all
}

// Whole returns the Paths of a directory, and those of what is mounted in it.
func (m Mounts) Whole(dir string) []string {
	all := m.Paths(dir)
	for _, one := range m {
		if one.point != dir && under(one.point, dir) {
			all = append(all, m.Paths(one.point)...)
		}
	}
	return all
}

// Shows reports whether a file, or a part of a directory, is below a directory at one of its paths. Both paths are absolute and
// without links.
func (m Mounts) Shows(dir, path string) bool {
	return slices.ContainsFunc(m.Whole(path), func(p string) bool { return under(p, dir) }) ||
		slices.ContainsFunc(m.Whole(dir), func(d string) bool { return under(path, d) })
}

// under reports whether a path is a directory, or below it.
func under(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// moved returns a path below one directory as the same one below another.
func moved(path, from, to string) string {
	return filepath.Join(to, strings.TrimPrefix(path, strings.TrimSuffix(from, "/")))
}
