package host

import (
	"os"
	"path/filepath"
	"strings"
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

// tracked returns variables that tie a command of git diff to the repository of its directory. Outside of a repository, and for
// places outside of it, git diff compares whatever is there: with two directories it prints all files of one of them, also
// those that may hold secrets and that no word names. It fails with host_path_denied for such a command.
func tracked(dir string, words []string) ([]string, error) {
	top := repository(dir)
	if top == "" {
		return nil, pathDenied(dir, "it is in no git repository, and git diff would compare any files").WithHint("name a directory of a repository as cwd")
	}
	only := false // what follows -- is no flag
	for _, w := range words {
		if strings.HasPrefix(w, "-") && !only {
			only = w == "--"
			continue
		}
		path := filepath.Clean(w)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if !under(path, top) {
			return nil, pathDenied(w, "it is outside of the git repository of the directory, and git diff would compare any files").
				WithHint("name paths of one repository, and a directory of it as cwd")
		}
	}
	// Named, so that git looks for none itself: it would take a directory in which only the names of a bare repository are, and use none.
	return []string{"GIT_DIR=" + filepath.Join(top, ".git"), "GIT_WORK_TREE=" + top}, nil
}
