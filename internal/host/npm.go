package host

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// noSettings is a file that is not there. npm takes the word of .npmrc in its directory for where the file of global settings is, and
// prints the keys of that file that it does not know. Others may have written .npmrc. A flag alone or a variable alone does
// not come before it: npm from version 7 keeps the first of the three as the default (tried). Of two, it uses the variable.
const noSettings = "/nonexistent/npmrc"

// maxPackage bounds the bytes of a package.json.
const maxPackage = 1 << 20

// settingsOfNpm returns variables for a program that is npm. They come before the file .npmrc of its directory, which others
// may have written. Before version 7, that file could name code that npm loads; later versions warn of the variable.
func settingsOfNpm(b *budget, program string) []string {
	text := b.read(filepath.Join(filepath.Dir(filepath.Dir(program)), "package.json"), maxPackage)
	var about struct{ Name, Version string }
	if json.Unmarshal([]byte(text), &about) != nil || about.Name != "npm" {
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
		if err = c.look.over(); err != nil {
			return s, err
		}
		about := filepath.Join(at, "package.json")
		switch {
		case len(places) > 0:
			if strings.Contains(c.look.read(about, maxPackage), `"workspaces"`) {
				places = append(places, at)
			}
		case c.look.there(about), c.look.there(filepath.Join(at, "node_modules")):
			places = append(places, at)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	for _, place := range places {
		if err = c.away.refuse(place, filepath.Join(place, "package.json"), filepath.Join(place, "node_modules")); err != nil {
			return s, err
		}
	}
	global, _, _ := strings.Cut(c.program, "/node_modules/")
	dirs := slices.Concat(places, []string{"/usr/lib", "/usr/local/lib", global})
	if len(places) == 0 && !c.away.in(c.dir) { // npm looks for the parts of a project here
		places = []string{c.dir}
	}
	look := c.look.part(maxProject)
	for _, place := range places {
		if found := secretsIn(look, place); look.over() == nil {
			s.reads, s.closed = append(s.reads, place), append(s.closed, append(found, filepath.Join(place, ".git"))...)
			continue
		}
		s.lists = append(s.lists, place)
		for _, part := range list("package.json package-lock.json npm-shrinkwrap.json node_modules") {
			s.reads = append(s.reads, filepath.Join(place, part))
		}
	}
	s.reads, err = linked(c, s.reads, dirs)
	return s, err
}

// secretsIn returns the files below a directory whose names are those of files with secrets. It does not look into node_modules. npm must not read these files:
// if package.json is a link to one, npm prints its JSON, or, if it is not JSON, its first bytes. Once the budget is used up, the other files are left out.
func secretsIn(b *budget, dir string) (all []string) {
	for dirs := []string{dir}; len(dirs) > 0; {
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		for e := range b.entries(at) { // what this server cannot list, npm cannot list either
			path := filepath.Join(at, e.Name())
			switch {
			case e.Name() != ".git" && secret(strings.TrimPrefix(path, dir)) != "":
				if !b.keep(path) {
					return all
				}
				all = append(all, path)
			case e.IsDir() && e.Name() != "node_modules" && e.Name() != ".git" && b.note(path):
				dirs = append(dirs, path)
			}
		}
	}
	return all
}

// linked returns places, and what links to packages in the node_modules of directories lead to, without links:
// package.json of the package, and node_modules in its directory and above, or a node_modules that contains it. Others may have made such a link, so
// other files of a package, which may hold secrets, are not among these. What leads into the
// writable workspace or contains it is left out.
func linked(c further, places, dirs []string) ([]string, error) {
	add := func(place string) {
		if c.look.keep(place) {
			places = append(places, place)
		}
	}
	looked := map[string]bool{} // directories above packages
	for i := 0; i < len(dirs); i++ {
		for _, link := range c.look.linksIn(filepath.Join(dirs[i], "node_modules")) {
			if err := c.look.spend(len(places) * costPlaces); err != nil {
				return nil, err
			}
			real, err := c.look.follow(link)
			if err != nil || slices.ContainsFunc(places, func(p string) bool { return under(real, p) }) || c.away.refuse(link) != nil {
				continue
			}
			if before, _, ok := strings.Cut(real+"/", "/node_modules/"); ok {
				if inner := before + "/node_modules"; c.away.refuse(inner) == nil {
					add(inner)
				}
				continue
			}
			about := filepath.Join(real, "package.json")
			if info, err := os.Lstat(about); err != nil || !info.Mode().IsRegular() || slices.Contains(places, about) {
				continue
			}
			add(about)
			for at := real; at != filepath.Dir(at) && !looked[at]; at = filepath.Dir(at) { // npm looks above the package, too
				looked[at] = true
				if inner := filepath.Join(at, "node_modules"); !slices.Contains(dirs, at) && c.look.there(inner) && c.away.refuse(inner) == nil {
					add(inner)
					dirs = append(dirs, at)
				}
			}
		}
	}
	return places, c.look.over()
}
