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
// prints the keys of that file that it does not know. .npmrc may be that of a program in a sandbox. A flag alone or a variable alone does
// not come before it: npm from version 7 keeps the first of the three as the default (tried). Of two, it uses the variable.
const noSettings = "/nonexistent/npmrc"

// maxPackage bounds the bytes of a package.json.
const maxPackage = 1 << 20

// settingsOfNpm returns variables for a program that is npm. They come before the file .npmrc of its directory, which a program in a
// sandbox may have written. Before version 7, that file could name code that npm loads; later versions warn of the variable.
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
// make them.
func project(c further) (scope, error) {
	var places []string
	for at := c.dir; ; at = filepath.Dir(at) {
		about := filepath.Join(at, "package.json")
		switch {
		case len(places) > 0:
			if text, err := plainfile.Read(about, maxPackage); err == nil && strings.Contains(string(text), `"workspaces"`) {
				places = append(places, at)
			}
		case there(about), there(filepath.Join(at, "node_modules")):
			places = append(places, at)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if len(places) == 0 {
		places = []string{c.dir}
	}
	global, _, _ := strings.Cut(c.program, "/node_modules/")
	return scope{reads: linked(places, "/usr/lib", "/usr/local/lib", global)}, nil
}

// maxLinks bounds the links to packages that are followed.
const maxLinks = 2000

// linked returns places, and what links to packages in the node_modules of these and of further directories lead to, without links:
// package.json of the package, and node_modules in its directory and above, or a node_modules that contains it. A program in a sandbox may have moved such links to
// where they lead elsewhere, so other files of a package, which may hold secrets, are not among these.
func linked(places []string, further ...string) []string {
	dirs, links, entries := slices.Concat(places, further), 0, maxEntries
	for i := 0; i < len(dirs); i++ {
		for _, link := range linksIn(filepath.Join(dirs[i], "node_modules"), &entries) {
			if links++; links > maxLinks {
				return places
			}
			real, err := filepath.EvalSymlinks(link)
			if err != nil || slices.ContainsFunc(places, func(p string) bool { return under(real, p) }) {
				continue
			}
			if before, _, ok := strings.Cut(real+"/", "/node_modules/"); ok {
				places = append(places, before+"/node_modules")
				continue
			}
			about := filepath.Join(real, "package.json")
			if info, err := os.Lstat(about); err != nil || !info.Mode().IsRegular() || slices.Contains(places, about) {
				continue
			}
			places = append(places, about)
			for at := real; at != filepath.Dir(at); at = filepath.Dir(at) { // npm looks above the package, too
				if inner := filepath.Join(at, "node_modules"); there(inner) && !slices.Contains(dirs, at) {
					places, dirs = append(places, inner), append(dirs, at)
				}
			}
		}
	}
	return places
}

// linksIn returns the links to packages in a directory node_modules, or in one of its scopes. It takes what it reads from left.
func linksIn(dir string, left *int) (all []string) {
	if *left <= 0 {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil { // most packages have none
		return nil
	}
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(*left)
	*left -= len(entries)
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
