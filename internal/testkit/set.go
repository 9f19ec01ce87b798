package testkit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// PackageSet is a package set that a test makes by hand. It is as whole as one that was
// installed.
type PackageSet struct {
	Tag    string            // the kind of interpreter, such as cp311
	Files  map[string]string // by path in its site-packages
	Wheels []Wheel           // what it says of its packages; their files are not read
}

// Write makes the set in a directory of sets, as the active one of the name science. It
// returns the set's site-packages.
func (s PackageSet) Write(dir string) (site string, err error) {
	hash := func(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }
	var listing []byte
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		listing = fmt.Appendf(listing, "%s  site-packages/%s\n", hash([]byte(s.Files[name])), name)
	}
	requested, wheels := []string{}, []map[string]string{}
	for _, w := range s.Wheels {
		requested = append(requested, w.Name)
		wheels = append(wheels, map[string]string{"name": strings.ToLower(w.Name), "version": w.Version})
	}
	const name = "science"
	manifest, err := json.Marshal(map[string]any{
		"version": 1, "name": name, "requested": requested, "wheels": wheels, "python": map[string]string{"tag": s.Tag},
		"files": map[string]any{"count": len(s.Files), "sha256": hash(listing)},
	})
	if err != nil {
		return "", err
	}
	digest := hash(manifest)
	active, err := json.Marshal(map[string]any{"version": 1, "active": map[string]any{s.Tag: map[string]string{name: digest}}})
	if err != nil {
		return "", err
	}
	all := map[string]string{
		"python.json": string(active), digest + "/manifest.json": string(manifest), digest + "/files.sha256": string(listing),
		digest + "/cache/fontlist-v1.json": "",
	}
	site = filepath.Join(dir, digest, "site-packages")
	err = os.MkdirAll(dir, 0o700) // and the state directory
	for path, text := range s.Files {
		all[digest+"/site-packages/"+path] = text
	}
	for path, text := range all {
		path = filepath.Join(dir, filepath.FromSlash(path))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return site, err
}
