package runtimes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are visible in every sandbox.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// virtualMark is the file in the root of every Python virtual environment.
const virtualMark = "pyvenv.cfg"

// storeDirs hold packages that depend on each other, so an interpreter in one of them needs
// the whole directory. They hold no user's data.
var storeDirs = []string{"/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"}

func inSystem(p string) bool {
	return slices.ContainsFunc(systemDirs, func(d string) bool { return within(d, p) })
}

// within reports whether p is dir or lies below it. Both must be clean paths.
func within(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// installation returns the directories that an interpreter installed under prefix needs.
// That is the prefix itself, or only parts of it, such as bin and lib, if the prefix also
// holds other data. Examples are a home directory, ~/.local and a virtual environment in a
// project.
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
	if _, err := os.Stat(filepath.Join(real, virtualMark)); err == nil { // a virtual environment may share its directory with a project
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

// shared reports whether a directory holds the files of many programs or of a user.
func shared(dir, home string) bool {
	if strings.Count(dir, "/") < 2 || filepath.Base(dir) == ".local" || filepath.Dir(dir) == "/home" || filepath.Dir(dir) == "/Users" {
		return true // /, /opt, /root, /home/USER
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

// reduce sorts dirs and drops paths that do not exist, that every sandbox sees anyway, that
// are duplicates, or that lie below another path of the list.
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
