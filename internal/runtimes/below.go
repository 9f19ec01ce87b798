package runtimes

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// mostLinks bounds the symbolic links between a name on the PATH and an interpreter.
const mostLinks = 16

// findBelow returns the interpreter of a language in the root file system Config.Root. It starts
// none: a program of that system runs in sandboxes only. The version is therefore that of the
// file's name, as of python3.13, or empty.
func (s *Set) findBelow(lang sandboxmcp.Language) (Interpreter, error) {
	root, err := os.OpenRoot(s.cfg.Root)
	if err != nil {
		return Interpreter{}, missingBelow(s.cfg.Root, lang).WithCause(err)
	}
	defer root.Close()
	for _, name := range names[lang] {
		for _, dir := range filepath.SplitList(s.cfg.Path) {
			found := path.Join(dir, name)
			real, err := follow(root, found)
			if err != nil || !inSystem(real) || lang == sandboxmcp.Python && !named(lang, real) {
				continue
			}
			in := Interpreter{Language: lang, Path: real}
			if !named(lang, real) {
				in.Path = found // a multi-call binary
			}
			if m := pythonMinor().FindStringSubmatch(path.Base(real)); lang == sandboxmcp.Python && m != nil {
				if in.Version = m[1]; pythonTooOld(in.Version) {
					continue
				}
			}
			in.judgeBelow(s.cfg.Root)
			return in, nil
		}
	}
	return Interpreter{}, missingBelow(s.cfg.Root, lang)
}

func missingBelow(root string, lang sandboxmcp.Language) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the root file system %s has no interpreter for %s", sandboxmcp.Quote(root), lang).
		WithHint("make one with `sandboxmcp image build --rootfs DIR`, and set rootfs to DIR")
}

// follow returns the executable file at a path below a root, without symbolic links. Absolute
// links begin at the root, as for a program whose root it is. No link leads out of the root.
func follow(root *os.Root, name string) (string, error) {
	rest, at := strings.Split(path.Clean("/"+name), "/")[1:], "/"
	for links := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		st, err := root.Lstat(below(next))
		switch {
		case err != nil:
			return "", err
		case st.Mode()&fs.ModeSymlink == 0:
			if at = next; len(rest) == 0 && (!st.Mode().IsRegular() || st.Mode()&0o111 == 0) {
				return "", fs.ErrPermission
			}
			continue
		}
		target, err := root.Readlink(below(next))
		if links++; err != nil || links > mostLinks {
			return "", errors.Join(err, errors.New("too many symbolic links"))
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(next), target)
		}
		rest, at = append(strings.Split(path.Clean("/"+target), "/")[1:], rest...), "/"
	}
	return at, nil
}

// below returns an absolute path as [os.Root] takes it.
func below(name string) string {
	if name = strings.TrimPrefix(name, "/"); name != "" {
		return name
	}
	return "."
}

// judgeBelow sets TrustedForPreload and TrustedSite by the files below a root.
func (in *Interpreter) judgeBelow(root string) {
	there := *in
	there.Path = filepath.Join(root, in.Path)
	there.judge()
	in.TrustedForPreload, in.TrustedSite = there.TrustedForPreload, there.TrustedSite
}
