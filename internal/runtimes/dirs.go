package runtimes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are shown in every sandbox.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// virtualMark is the file that makes a directory a virtual environment.
const virtualMark = "pyvenv.cfg"

// storeDirs hold packages that lean on each other, so that one of them needs
// the whole place. They hold nothing of a user.
var storeDirs = []string{"/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"}

func inSystem(p string) bool {
	return slices.ContainsFunc(systemDirs, func(d string) bool { return within(d, p) })
}

// within reports whether p is dir or lies below it. Both are clean.
func within(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// installation returns what has to be shown of an interpreter that is installed
// under prefix: the prefix itself where it holds nothing else, but only its bin
// and lib where it is also a place for other things, such as a home directory
// or ~/.local, which holds keys.
func installation(prefix, home string) []string {
	if !filepath.IsAbs(prefix) {
		return nil
	}
	prefix = filepath.Clean(prefix)
	real, err := filepath.EvalSymlinks(prefix)
	if err != nil || inSystem(real) {
		return nil
	}
	for _, d := range storeDirs {
		if within(d, real) {
			return []string{d}
		}
	}
	parts := []string{"bin", "lib", "lib64"}
	if _, err := os.Stat(filepath.Join(real, virtualMark)); err == nil { // a virtual environment may be made in a project's own directory
		parts = append(parts, "include", "share", virtualMark)
	} else if !shared(prefix, home) && !shared(real, home) {
		return []string{prefix, real}
	}
	var dirs []string
	for _, sub := range parts {
		dirs = append(dirs, filepath.Join(prefix, sub), filepath.Join(real, sub))
	}
	return dirs
}

// shared reports whether a directory is one that many programs or a person put
// their things into.
func shared(dir, home string) bool {
	if strings.Count(dir, "/") < 2 || filepath.Base(dir) == ".local" || filepath.Dir(dir) == "/home" || filepath.Dir(dir) == "/Users" {
		return true // /, /opt, /root, /home/somebody
	}
	if home == "" {
		return false
	}
	home = filepath.Clean(home)
	if within(dir, home) {
		return true
	}
	real, err := filepath.EvalSymlinks(home)
	return err == nil && within(dir, real)
}

// reduce drops what does not exist, what the system shows anyway, duplicates
// and what lies in another.
func reduce(dirs []string) []string {
	var kept []string
	slices.Sort(dirs)
	for _, d := range slices.Compact(dirs) {
		info, err := os.Stat(d)
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() || inSystem(d) || d == "/" {
			continue
		}
		if slices.ContainsFunc(kept, func(k string) bool { return within(k, d) }) {
			continue
		}
		kept = append(kept, d)
	}
	return kept
}

// trusted reports whether only root can change any of the paths or a directory
// above one of them, links followed.
func trusted(paths []string) bool {
	for _, p := range paths {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return false
		}
		for _, start := range []string{p, real} {
			for at := start; ; at = filepath.Dir(at) {
				info, err := os.Lstat(at)
				if err != nil {
					return false
				}
				// The permission bits of a link mean nothing; its owner does.
				if info.Mode()&os.ModeSymlink == 0 && !onlyRootWrites(info) {
					return false
				}
				if at == "/" || at == "." {
					break
				}
			}
		}
	}
	return true
}
