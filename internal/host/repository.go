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
func repository(b *budget, dir string) string {
	for {
		real, err := b.follow(filepath.Join(dir, ".git"))
		if info, failed := os.Lstat(real); err == nil && failed == nil && info.IsDir() { // git passes over directories that are no repository
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
//   - A place of the repository is in the writable workspace, leads there, or contains it. Programs in sandboxes could exchange the files
//     that git reads, or write an index or a configuration that names others.
//
// The index and the configuration of any repository can name files outside of it. So git may read only the places that tracked returns.
func tracked(c further) (s scope, _ error) {
	dir := c.dir
	if err := c.away.refuseDir(dir); err != nil {
		return s, err
	}
	top := repository(c.look, dir)
	if err := c.look.over(); err != nil {
		return s, err
	}
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
	p := partsOf(c.look, top)
	if err := c.look.over(); err != nil {
		return s, err
	}
	if err := c.away.refuse(p.ways...); err != nil {
		return s, err
	}
	own, fixed := settingsOfGit(c.away)
	// Named, so that git looks for none itself: it would take a directory in which only the names of a bare repository are, and use
	// none.
	s.env = []string{"GIT_DIR=" + p.git, "GIT_WORK_TREE=" + top, "GIT_CONFIG_PARAMETERS=" + fixed}
	s.reads = slices.Concat(p.places, own)
	return s, nil
}

// gitParts are what a repository consists of.
type gitParts struct {
	git    string   // the directory with its records
	places []string // places that git reads, without links
	ways   []string // the paths by which git comes to them, and links in the records
}

// partsOf returns the parts of a repository: its directory, and, if they are elsewhere, that with its records, that of the repository of
// which it is a worktree, and those with the objects that it borrows. They are places only if they are what git makes: a repository that
// others have written can name any directory. Once the budget is used up, the rest is left out.
func partsOf(b *budget, top string) gitParts {
	git := filepath.Join(top, ".git")
	p := gitParts{git: git, places: []string{top}, ways: []string{top, git}}
	if named, ok := lineOf(b, git, "gitdir: "); ok {
		p.git = from(top, named)
		p.ways = append(p.ways, p.git)
	}
	real, err := b.follow(p.git)
	if err != nil {
		return p
	}
	p.git = real
	shared := real
	if named, ok := lineOf(b, filepath.Join(real, "commondir"), ""); ok {
		p.ways = append(p.ways, from(real, named))
		if shared, err = b.follow(from(real, named)); err != nil || filepath.Dir(real) != filepath.Join(shared, "worktrees") {
			return p
		}
	}
	if !holdsGit(shared) {
		return p
	}
	p.places = append(p.places, real, shared)
	for _, dir := range slices.Compact([]string{real, shared}) {
		for _, below := range list(". info logs") {
			p.ways = append(p.ways, b.linksIn(filepath.Join(dir, below))...)
		}
	}
	p.borrow(b, filepath.Join(shared, "objects")) // may be a link
	return p
}

// borrow adds directories with objects, and those from which these borrow further ones.
func (p *gitParts) borrow(b *budget, objects ...string) {
	for i := 0; i < len(objects) && b.over() == nil; i++ {
		p.ways = append(p.ways, objects[i])
		path, err := b.follow(objects[i])
		if err != nil || filepath.Base(path) != "objects" || slices.Contains(p.places, path) || !holdsGit(filepath.Dir(path)) || !b.keep(path) {
			continue
		}
		p.places = append(p.places, path)
		p.ways = append(append(p.ways, b.linksIn(path)...), b.linksIn(filepath.Join(path, "info"))...)
		for line := range strings.Lines(b.read(filepath.Join(path, "info/alternates"), maxPath)) { // most borrow none
			next := from(path, strings.TrimSpace(line))
			if !b.keep(next) { // each path may have thousands of bytes
				return
			}
			objects = append(objects, next)
		}
	}
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

// fixedOfGit are settings that come before those of a repository, and are what git does without any. Git prints words of such a file of
// attributes and names of such a map of names, also if it is a file with secrets among those of programs.
const fixedOfGit = "'core.attributesFile=~/.config/git/attributes' 'mailmap.file=" + os.DevNull + "'"

// settingsOfGit returns files of the server's user, without links, that say what git passes over in all repositories, and settings that come
// before those of a repository. If git may not read such a file that is there, it fails. So the settings name none if programs in sandboxes
// can change one.
func settingsOfGit(away changeable) (files []string, fixed string) {
	home := ownHome()
	if home == "" {
		return nil, fixedOfGit
	}
	for _, name := range list("ignore attributes") {
		path := filepath.Join(home, ".config/git", name)
		if away.has(path) {
			return nil, fixedOfGit + " 'core.attributesFile=" + os.DevNull + "' 'core.excludesFile=" + os.DevNull + "'"
		}
		files = append(files, plainfile.Unlinked(path))
	}
	return files, fixedOfGit
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
func lineOf(b *budget, path, prefix string) (string, bool) {
	line, ok := strings.CutPrefix(strings.TrimRight(b.read(path, maxPath), "\r\n"), prefix)
	return line, ok && line != ""
}

// from returns a path that is relative to a directory, or absolute. What ".." behind a link names is left to those who follow the path.
func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + "/" + path
}
