package runtimes

import (
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// hit is a file on the PATH that may be an interpreter.
type hit struct {
	path string // as found, with links
	id   fileID
}

// fileID identifies a file and its content. It differs if the file was replaced or changed.
type fileID struct {
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // nanoseconds
	Inode uint64 `json:"inode"`
}

// search yields the executable files of the given names on a PATH, all of the first name
// before those of the second. It yields each file once per name. It skips directories that
// cannot be read, and relative ones, because their meaning depends on where the server was
// started.
func search(path string, names []string) iter.Seq[hit] {
	return func(yield func(hit) bool) {
		var dirs []string
		for _, d := range filepath.SplitList(path) {
			if filepath.IsAbs(d) && !slices.Contains(dirs, filepath.Clean(d)) {
				dirs = append(dirs, filepath.Clean(d))
			}
		}
		for _, name := range names {
			seen := map[fileID]bool{} // the same file may be in a second directory, such as /bin and /usr/bin
			for _, d := range dirs {
				p := filepath.Join(d, name)
				info, err := os.Stat(p)
				if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
					continue
				}
				h := hit{path: p, id: identify(info)}
				if seen[h.id] {
					continue
				}
				seen[h.id] = true
				if !yield(h) {
					return
				}
			}
		}
	}
}

// onPath reports whether a PATH has a program of a name.
func onPath(path, name string) bool {
	for range search(path, []string{name}) {
		return true
	}
	return false
}

// statID returns the identity of the file at p. It follows links.
func statID(p string) (fileID, bool) {
	info, err := os.Stat(p)
	if err != nil {
		return fileID{}, false
	}
	return identify(info), true
}

// isShim reports whether the file that was found only selects an interpreter: a script, an
// entry of a shims directory, or a link to a program of another name.
func isShim(lang sandboxmcp.Language, found, real string) bool {
	dir := filepath.Base(filepath.Dir(found))
	return dir == "shims" || isScript(real) || !named(lang, real)
}

func isScript(p string) bool {
	f, err := os.Open(p)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:]) == "#!"
}

// named reports whether a binary has the name of an interpreter of the language.
func named(lang sandboxmcp.Language, real string) bool {
	base := filepath.Base(real)
	switch lang {
	case sandboxmcp.Python:
		return strings.HasPrefix(base, "python")
	case sandboxmcp.Node:
		return base == "node" || base == "nodejs"
	case sandboxmcp.Shell:
		return slices.Contains([]string{"bash", "sh", "dash", "ash", "ksh", "mksh", "zsh"}, base)
	}
	return false
}

// installHint returns the command that installs an interpreter with the machine's package
// manager.
func installHint(path string, lang sandboxmcp.Language) string {
	pkg := map[sandboxmcp.Language]string{sandboxmcp.Python: "python3", sandboxmcp.Node: "nodejs", sandboxmcp.Shell: "bash"}[lang]
	for _, m := range []struct{ program, install string }{
		{"apt-get", "apt-get install "},
		{"dnf", "dnf install "},
		{"apk", "apk add "},
		{"pacman", "pacman -S "},
		{"zypper", "zypper install "},
		{"brew", "brew install "},
	} {
		if !onPath(path, m.program) {
			continue
		}
		switch {
		case m.program == "pacman" && lang == sandboxmcp.Python:
			pkg = "python"
		case m.program == "brew" && lang == sandboxmcp.Node:
			pkg = "node"
		}
		return m.install + pkg
	}
	return "apt-get install " + pkg
}
