package backend

// Tree is a directory or file of the backend's machine that is shown in a sandbox, read-only.
type Tree struct {
	Host   string // absolute
	Inside string // where it is shown; the path must be free. Empty: at its own path
}

// At returns where the tree is shown.
func (t Tree) At() string {
	if t.Inside == "" {
		return t.Host
	}
	return t.Inside
}

// Trees returns trees that show directories at their own paths.
func Trees(dirs ...string) []Tree {
	var all []Tree
	for _, d := range dirs {
		all = append(all, Tree{Host: d})
	}
	return all
}
