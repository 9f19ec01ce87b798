package host

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// repository returns the directory of the git repository that a directory belongs to, or "".
func repository(dir string) string {
	for {
		info, err := os.Stat(filepath.Join(dir, ".git"))
		if err == nil && info.IsDir() { // git passes over directories that are no repository
			_, err = os.Lstat(filepath.Join(dir, ".git", "HEAD"))
		}
		if err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// tracked returns variables that tie a command of git to the repository of its directory, and the places that it may read. It fails with
// host_path_denied in three cases:
//
//   - The directory is in no repository. There, git diff compares whatever it is given: with two directories it prints all files of one of
//     them, also those that may hold secrets and that no word names.
//   - A word names a place outside of the repository. The same holds for that place.
//   - The records of the repository are in the workspace, and its other files are not, as with a linked worktree elsewhere. A program in a
//     sandbox cannot read these files, but it can write an index that names them.
//
// A program in a sandbox can also write an index or a configuration that names files outside of the repository. So git may read only the
// places that tracked returns.
func tracked(c further) (s scope, _ error) {
	dir := c.dir
	top := repository(dir)
	if top == "" {
		return s, pathDenied(dir, "it is in no git repository, and git would use any files").WithHint("name a directory of a repository as cwd")
	}
	for _, w := range c.operands {
		path := filepath.Clean(w)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if !under(path, top) {
			return s, pathDenied(w, "it is outside of the git repository of the directory, and git would use any files").
				WithHint("name paths of one repository, and a directory of it as cwd")
		}
	}
	if records := recordsOf(top); c.changes(records) && !c.changes(top) {
		return s, pathDenied(dir, "programs in sandboxes can change the records of its repository, which are in workspace_path, and these can name any of its files").
			WithHint("name a directory of workspace_path as cwd, or ask a person: request_host_access")
	}
	// Named, so that git looks for none itself: it would take a directory in which only the names of a bare repository are, and use
	// none. The one that .git names now, because a program in a sandbox may change .git until git reads it.
	git, parts := partsOf(top)
	s.env = []string{"GIT_DIR=" + git, "GIT_WORK_TREE=" + top, "GIT_CONFIG_PARAMETERS=" + fixedOfGit}
	switch {
	case c.changes(top): // git prints any file there that an index names
		s.as = c.owner()
	case c.around(top): // a program can exchange such a file for one of root, or for a link to a file with secrets elsewhere in the repository
		s.as = c.owner()
		left, whole := maxSeen, false
		if s.closed, whole = secretsIn(top, &left); !whole {
			return s, pathDenied(dir, "its repository contains workspace_path, and has more files than are looked at for names of secrets").
				WithHint("ask a person: request_host_access")
		}
		if err := c.late(); err != nil {
			return s, err
		}
	}
	s.reads = slices.Concat(parts, settingsOfGit(s.as))
	return s, nil
}

// fixedOfGit are settings that come before those of a repository, and are what git does without any. Git prints words of such a file of
// attributes and names of such a map of names, also if it is a file with secrets among those of programs.
const fixedOfGit = "'core.attributesFile=~/.config/git/attributes' 'mailmap.file=" + os.DevNull + "'"

// recordsOf returns where the files of a repository say that its records are.
func recordsOf(top string) string {
	git := filepath.Join(top, ".git")
	if named, ok := lineOf(git, "gitdir: "); ok {
		return from(top, named)
	}
	return git
}

// maxBorrowed bounds the directories from which a repository may borrow objects.
const maxBorrowed = 100

// partsOf returns the directory with the records of a repository, and the places that it consists of, without links: its directory,
// and, if they are elsewhere, that with its records, that of the repository of which it is a worktree, and those with the objects that
// it borrows. They count only if they are what git makes: a program in a sandbox can name others, but cannot make these outside of the
// workspace.
func partsOf(top string) (git string, all []string) {
	git, all = recordsOf(top), []string{top}
	real, err := plainfile.Real(git)
	if err != nil {
		return git, all
	}
	shared := real
	if named, ok := lineOf(filepath.Join(real, "commondir"), ""); ok {
		shared = from(real, named)
		if filepath.Dir(real) != filepath.Join(shared, "worktrees") {
			return real, all
		}
	}
	if !holdsGit(shared) {
		return real, all
	}
	all = append(all, real, shared)
	objects := []string{filepath.Join(shared, "objects")} // may be a link; those that it borrows may borrow further ones
	for i := 0; i < min(len(objects), maxBorrowed); i++ {
		path, err := plainfile.Real(objects[i])
		if err != nil || filepath.Base(path) != "objects" || slices.Contains(all, path) || !holdsGit(filepath.Dir(path)) {
			continue
		}
		all = append(all, path)
		borrowed, _ := plainfile.Read(filepath.Join(path, "info/alternates"), maxPath) // most borrow none
		for line := range strings.Lines(string(borrowed)) {
			objects = append(objects, from(path, strings.TrimSpace(line)))
		}
	}
	return real, all
}

// holdsGit reports whether a directory has what git makes in that of a repository.
func holdsGit(dir string) bool { return isThere(dir, "HEAD", "objects", "refs") }

// isThere reports whether a directory has all of some names.
func isThere(dir string, names ...string) bool {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// settingsOfGit returns files of a user, or of the server's for nil, without links, that say what git passes over in all repositories. If it may not
// read one that is there, git fails.
func settingsOfGit(as *account) []string {
	home := ownHome()
	if as != nil {
		home = as.home
	}
	if home == "" {
		return nil
	}
	dir := filepath.Join(home, ".config/git")
	return []string{plainfile.Unlinked(filepath.Join(dir, "ignore")), plainfile.Unlinked(filepath.Join(dir, "attributes"))}
}

// ownHome returns the home directory of the server's user, or "".
func ownHome() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// lineOf returns what follows a prefix in the only line of a file.
func lineOf(path, prefix string) (string, bool) {
	text, err := plainfile.Read(path, maxPath)
	line, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), prefix)
	return line, ok && err == nil && line != ""
}

// from returns a path that is relative to a directory, or absolute.
func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
