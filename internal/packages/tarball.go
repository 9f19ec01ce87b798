package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

const maxPackageJSON = 4 << 20

// npm unpacks a tarball into its directory. The first directory of its names is dropped, as
// npm does. Its scripts are not run.
func (u *unpacker) npm(b *blob, p pin, one *Installed) error {
	zipped, err := gzip.NewReader(b)
	if err != nil {
		return unfit("it is no tarball")
	}
	bd := &budget{packed: b.size, names: map[string]string{}, bundled: map[string]bool{}}
	into, ok := strings.CutPrefix(p.path, "node_modules/")
	if !ok {
		return unfit("it has no place")
	}
	// The headers and the files that are skipped count, too: all that is decompressed does.
	most := min(maxUnpacked-u.total, max(freeRatio, maxRatio*b.size)) + maxEntries*1024
	bounded := &io.LimitedReader{R: zipped, N: most}
	archive := tar.NewReader(bounded)
	var about []byte
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case bounded.N <= 0 || n > maxEntries:
			return unfit("it unpacks to more than %d MiB or %d files", most>>20, maxEntries)
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return unfit("its archive is damaged")
		}
		name, err := tarballEntry(h)
		if err != nil {
			return err
		}
		if name == "" || !p.bundle && strings.HasPrefix(name, "node_modules/") {
			continue
		}
		if err = bd.claim(name); err != nil {
			return err
		}
		if bd.modules(name); len(bd.bundled) > maxPins {
			return unfit("it contains more than %d packages", maxPins)
		}
		var r io.Reader = archive
		if name == "package.json" {
			if about, err = io.ReadAll(io.LimitReader(archive, maxPackageJSON+1)); err != nil || len(about) > maxPackageJSON {
				return unfit("its package.json cannot be read")
			}
			r = bytes.NewReader(about)
		}
		if err := u.write(bd, p.path, path.Join(into, name), h.FileInfo().Mode(), r); err != nil {
			return err
		}
	}
	one.Bundled = slices.Sorted(maps.Keys(bd.bundled))
	return u.about(about, bd, p, one)
}

// modules notes the packages in whose directories a file of a tarball lies. Node finds a package in
// each directory of the name node_modules, also as a single file there.
func (b *budget) modules(name string) {
	parts := strings.Split(name, "/")
	for i, part := range parts[:len(parts)-1] {
		if part != "node_modules" {
			continue
		}
		module, last := parts[i+1], i+1 == len(parts)-1
		if strings.HasPrefix(module, "@") && !last {
			module, last = module+"/"+parts[i+2], i+2 == len(parts)-1
		}
		if last {
			module = strings.TrimSuffix(module, path.Ext(module))
		}
		if module != "" && module[0] != '.' {
			b.bundled[module] = true
		}
	}
}

// tarballEntry returns the name of a file in the package, or "" for what is not unpacked.
func tarballEntry(h *tar.Header) (string, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeXGlobalHeader:
		return "", nil
	default:
		return "", unfit("its file %s is a link or no regular file", sandboxmcp.Quote(h.Name))
	}
	full := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
	if full == "" || full == "." {
		return "", nil
	}
	if err := checkName(full); err != nil {
		return "", err
	}
	_, name, _ := strings.Cut(full, "/")
	if h.Typeflag == tar.TypeDir {
		return "", nil
	}
	if name == "" {
		return "", unfit("its file %s is in no directory", sandboxmcp.Quote(h.Name))
	}
	return name, nil
}

// about compares package.json with the index: an index may describe another package than its
// tarball contains.
func (u *unpacker) about(data []byte, bd *budget, p pin, one *Installed) error {
	var about struct {
		Name    string          `json:"name"`
		Version string          `json:"version"`
		License json.RawMessage `json:"license"`
		Scripts json.RawMessage `json:"scripts"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &about); err != nil {
		return unfit("its package.json cannot be read")
	}
	version, _, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(about.Version), "=v"), "+")
	if want, _, _ := strings.Cut(p.version, "+"); about.Name != p.pkg || version != want {
		return unfit("its package.json is that of %s %s", clean(about.Name), clean(about.Version))
	}
	var license string
	var typed struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(about.License, &license) != nil {
		_ = json.Unmarshal(about.License, &typed)
		license = typed.Type
	}
	one.License = textField(license)
	one.Script = bd.names["binding.gyp"] != ""
	if len(about.Scripts) > 0 {
		err := eachPart(about.Scripts, func(p part) error {
			runs := p.name == "preinstall" || p.name == "install" || p.name == "postinstall"
			one.Script = one.Script || runs && string(p.raw) != "null"
			return nil
		})
		one.Script = one.Script || errors.Is(err, errMembers)
	}
	if one.Script {
		u.warn("%s %s has an install script, which was not run", p.pkg, p.version)
	}
	return nil
}
