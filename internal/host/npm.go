package host

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// noSettings is a file that is not there. npm takes the word of .npmrc in its directory for where the file of global settings is, and
// prints the keys of that file that it does not know. Others may have written .npmrc. A flag alone or a variable alone does
// not come before it: npm from version 7 keeps the first of the three as the default (tried). Of two, it uses the variable.
const noSettings = "/nonexistent/npmrc"

// maxPackage bounds the bytes of a package.json.
const maxPackage = 1 << 20

// settingsOfNpm returns variables for a program that is npm. They come before the file .npmrc of its directory, which others
// may have written. Before version 7, that file could name code that npm loads; later versions warn of the variable.
func settingsOfNpm(program string) []string {
	text, err := plainfile.Read(filepath.Join(filepath.Dir(filepath.Dir(program)), "package.json"), maxPackage)
	if err != nil {
		return nil
	}
	var about struct{ Name, Version string }
	if json.Unmarshal(text, &about) != nil || about.Name != "npm" {
		return nil
	}
	major, _, _ := strings.Cut(about.Version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 7 {
		return nil
	}
	return []string{"NPM_CONFIG_ONLOAD_SCRIPT=null"}
}

// project allows the directory that npm takes for that of its project: the next one above that has a package.json or node_modules, and
// those above it whose package.json may name it as a part. It also allows what links in their node_modules lead to, as npm link and pnpm
// make them. It fails with host_path_denied if one of these directories is in the
// writable workspace, leads there, or contains it.
func project(c further) (s scope, err error) {
	if err = c.away.refuseDir(c.dir); err != nil {
		return s, err
	}
	var places []string
	for at := c.dir; ; at = filepath.Dir(at) {
		if err = c.late(); err != nil {
			return s, err
		}
		about := filepath.Join(at, "package.json")
		switch {
		case len(places) > 0:
			if text, failed := plainfile.Read(about, maxPackage); failed == nil && strings.Contains(string(text), `"workspaces"`) {
				places = append(places, at)
			}
		case there(about), there(filepath.Join(at, "node_modules")):
			places = append(places, at)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	for _, place := range places {
		if err = c.away.refuse(c.late, place, filepath.Join(place, "package.json"), filepath.Join(place, "node_modules")); err != nil {
			return s, err
		}
	}
	global, _, _ := strings.Cut(c.program, "/node_modules/")
	dirs := slices.Concat(places, []string{"/usr/lib", "/usr/local/lib", global})
	if len(places) == 0 && !c.away.in(c.dir) { // npm looks for the parts of a project here
		places = []string{c.dir}
	}
	for left, i := maxSeen, 0; i < len(places); i++ {
		found, whole := secretsIn(places[i], &left)
		if err = c.late(); err != nil {
			return s, err
		}
		if whole {
			s.reads, s.closed = append(s.reads, places[i]), append(s.closed, append(found, filepath.Join(places[i], ".git"))...)
			continue
		}
		s.lists = append(s.lists, places[i])
		for _, part := range list("package.json package-lock.json npm-shrinkwrap.json node_modules") {
			s.reads = append(s.reads, filepath.Join(places[i], part))
		}
	}
	s.reads, err = linked(c, s.reads, dirs)
	return s, err
}

// Bounds of the search for secrets in a project.
const (
	maxSeen    = 50_000 // entries
	maxSecrets = 1000   // of them, those that may hold secrets
)

// secretsIn returns what is in a directory with a name of what may hold secrets, but not in node_modules: npm prints the JSON in a file package.json
// that is a link to one of these, and the begin of what is no JSON. whole reports whether the directory has been looked at to its end. The entries
// are taken from left, as weight says: there may be more of them than fit into memory.
func secretsIn(dir string, left *int) (all []string, whole bool) {
	for dirs := []string{dir}; len(dirs) > 0; {
		if *left < 0 { // a further directory, and ReadDir would read all of it
			return all, false
		}
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries := entriesOf(at, *left/weight(at)+1) // what this server cannot list, npm cannot list either
		if *left -= len(entries) * weight(at); *left < 0 || len(all) > maxSecrets {
			return all, false
		}
		for _, e := range entries {
			path := filepath.Join(at, e.Name())
			switch {
			case e.Name() != ".git" && secret(strings.TrimPrefix(path, dir)) != "":
				all = append(all, path)
			case e.IsDir() && e.Name() != "node_modules" && e.Name() != ".git":
				dirs = append(dirs, path)
			}
		}
	}
	return all, true
}

// weight returns for how many each entry of a directory counts: one, or more if its path is long and takes more memory.
func weight(dir string) int { return 1 + len(dir)/256 }

// entriesOf returns up to most entries of a directory. It does not wait for a FIFO.
func entriesOf(dir string, most int) []os.DirEntry {
	f, err := os.OpenFile(dir, os.O_RDONLY|onlyDirectory, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(most) // what cannot be read is passed over
	return entries
}

// Bounds of the packages to which links lead.
const (
	maxLinks  = 2000 // links that are followed
	maxPlaces = 8000 // places from which no further link is followed
)

// linked returns places, and what links to packages in the node_modules of directories lead to, without links:
// package.json of the package, and node_modules in its directory and above, or a node_modules that contains it. Others may have made such a link, so
// other files of a package, which may hold secrets, are not among these. What leads into the
// writable workspace or contains it is left out.
func linked(c further, places, dirs []string) ([]string, error) {
	links, entries := 0, maxEntries
	for i := 0; i < len(dirs); i++ {
		for _, link := range linksIn(filepath.Join(dirs[i], "node_modules"), &entries) {
			if links++; links > maxLinks || len(places) > maxPlaces {
				return places, nil
			}
			if err := c.late(); err != nil {
				return nil, err
			}
			real, err := plainfile.Real(link)
			if err != nil || slices.ContainsFunc(places, func(p string) bool { return under(real, p) }) || c.away.refuse(c.late, link) != nil {
				continue
			}
			if before, _, ok := strings.Cut(real+"/", "/node_modules/"); ok {
				if inner := before + "/node_modules"; c.away.refuse(c.late, inner) == nil {
					places = append(places, inner)
				}
				continue
			}
			about := filepath.Join(real, "package.json")
			if info, err := os.Lstat(about); err != nil || !info.Mode().IsRegular() || slices.Contains(places, about) {
				continue
			}
			places = append(places, about)
			for at := real; at != filepath.Dir(at); at = filepath.Dir(at) { // npm looks above the package, too
				if inner := filepath.Join(at, "node_modules"); there(inner) && !slices.Contains(dirs, at) && c.away.refuse(c.late, inner) == nil {
					places, dirs = append(places, inner), append(dirs, at)
				}
			}
		}
	}
	return places, nil
}

// linksIn returns the links in a directory, and in the scopes of packages in a directory node_modules. It takes what it reads from left, as weight says.
func linksIn(dir string, left *int) (all []string) {
	most := *left / weight(dir)
	if most <= 0 {
		return nil
	}
	entries := entriesOf(dir, most) // it may not be there
	*left -= len(entries) * weight(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			all = append(all, path)
		case e.IsDir() && e.Name()[0] == '@' && filepath.Base(dir) == "node_modules":
			all = append(all, linksIn(path, left)...)
		}
	}
	return all
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
