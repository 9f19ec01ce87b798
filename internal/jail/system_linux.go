package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemTrees are mounted read-only at their own paths if they exist. Symbolic links among
// them stay symbolic links.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// configTrees are the parts of /etc that programs need and that hold no data of the
// machine's users and no secrets.
var configTrees = []string{
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts", "/etc/matplotlibrc",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
	"/etc/magic", "/etc/services", "/etc/protocols", "/etc/debian_version", "/etc/os-release", "/etc/mime.types",
}

// Shows reports whether every sandbox with its own mounts sees the host's file at the same
// path, if Config.Root is not set.
func Shows(path string) bool {
	return slices.ContainsFunc(slices.Concat(systemTrees, configTrees), func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}

// copiedBytes bounds the bytes of system files that are copied into the template instead
// of mounted. The kernel copies every mount for every sandbox, so few mounts make
// sandboxes fast. The whole script has to fit into one packet.
const copiedBytes = 96 << 10

// system is the part of a system that sandboxes see.
type system struct {
	trees  []Tree      // mounted
	links  [][2]string // target and path of symbolic links
	copies []copied    // small files
}

// copied is a small file that is copied into the template.
type copied struct {
	Tree

	size int64
	open bool // every user may read it, so the builder copies it; otherwise the server reads it and sends its bytes
}

// systemBelow returns the parts of the system whose root is a directory; empty: of the host's. Of
// a directory it fails if that is no root of a system, or if a link on the way to a part leads
// out of it.
func systemBelow(root string) (system, error) {
	lstat, readlink, strict := os.Lstat, os.Readlink, root != ""
	if strict {
		dir, err := os.OpenRoot(root)
		if err != nil {
			return system{}, fmt.Errorf("open the root file system: %w", err)
		}
		defer dir.Close()
		lstat = func(path string) (fs.FileInfo, error) { return dir.Lstat(strings.TrimPrefix(path, "/")) }
		readlink = func(path string) (string, error) { return dir.Readlink(strings.TrimPrefix(path, "/")) }
	}
	etc, err := os.Lstat("/etc")
	open := err == nil && !strict && etc.Mode()&0o001 != 0
	var sys system
	budget := int64(copiedBytes)
	for _, inside := range slices.Concat(systemTrees, configTrees) {
		t := Tree{Host: filepath.Join(root, inside), Inside: inside}
		st, err := lstat(inside)
		switch {
		case err != nil && (!strict || errors.Is(err, fs.ErrNotExist)):
		case err != nil:
			return system{}, fmt.Errorf("look at the root file system: %w", err)
		case st.Mode()&fs.ModeSymlink != 0:
			if target, err := readlink(inside); err == nil {
				sys.links = append(sys.links, [2]string{target, inside})
			}
		case st.Mode().IsRegular() && st.Size() <= budget:
			sys.copies = append(sys.copies, copied{t, st.Size(), open && st.Mode()&0o004 != 0})
			budget -= st.Size()
		case strict && !st.IsDir(): // the mount table would show the file's path on the host
		default:
			sys.trees = append(sys.trees, t)
		}
	}
	if usr := systemTrees[0]; strict && !slices.ContainsFunc(sys.trees, func(t Tree) bool { return t.Inside == usr }) {
		return system{}, fmt.Errorf("look at the root file system: it has no directory %s", filepath.Join(root, usr))
	}
	return sys, nil
}
