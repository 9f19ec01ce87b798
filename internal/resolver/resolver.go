// Package resolver holds the programs that work on packages in a sandbox: pip and npm, which
// choose versions, and the compiler of Python modules. None of them runs code of a package.
package resolver

import (
	_ "embed" // the programs
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

//go:embed pip.py
var pipText string

//go:embed npm.cjs
var npmText string

//go:embed compile.py
var compileText string

// Run says how pip or npm is run.
type Run struct {
	Args  []string          `json:"args"`
	Env   map[string]string `json:"env"`
	Files map[string]string `json:"files"` // that must be in the working directory, by name
}

// NoNpm is the exit code of a program of [Program] that found no npm.
const NoNpm = 127

// Program returns a program that runs pip or npm, and its standard input. The program runs in
// /mnt/data, in the interpreter that the packages are for.
func Program(l sandboxmcp.Language, r Run) (text string, stdin []byte, err error) {
	if r.Env == nil {
		r.Env = map[string]string{}
	}
	if r.Files == nil {
		r.Files = map[string]string{}
	}
	stdin, err = json.Marshal(r)
	if err != nil {
		return "", nil, fmt.Errorf("encode order: %w", err)
	}
	if l == sandboxmcp.Node {
		return npmText, stdin, nil
	}
	return pipText, stdin, nil
}

// Compiled is the file in the working directory that the program of [Compile] writes.
const Compiled = "compiled"

// Bounds of compiled modules.
const (
	maxModules  = 50_000
	maxCompiled = 64 << 20 // bytes of one module's code
)

// Compile returns a program that compiles the Python modules below dir, and its standard input.
// The program sees dir as shown.
// modules are paths below dir, for [Store]; there may be none.
func Compile(dir, shown string) (text string, stdin []byte, modules []string, err error) {
	var lines strings.Builder
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(p, ".py") || strings.ContainsAny(p, "\n\r") {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || len(modules) >= maxModules {
			return err
		}
		modules = append(modules, rel)
		lines.WriteString(path.Join(shown, filepath.ToSlash(rel)) + "\n")
		return nil
	})
	return compileText, []byte(lines.String()), modules, err
}

var tagForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9]*-[0-9]+[a-z0-9-]*$`) })

// Store writes what the program of [Compile] has written beside the modules. It is untrusted: a
// file is written only where Python looks for the code of one of the modules. Files that exist
// are kept.
func Store(dir string, modules []string, from io.Reader) error {
	tag, err := readTag(from)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		var head [8]byte
		if _, err := io.ReadFull(from, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read compiled modules: %w", err)
		}
		number, size := binary.BigEndian.Uint32(head[:4]), binary.BigEndian.Uint32(head[4:])
		if int64(number) >= int64(len(modules)) || size > maxCompiled {
			return errors.New("read compiled modules: they are damaged")
		}
		if err := write(root, cacheFile(modules[number], tag), from, int64(size)); err != nil {
			return err
		}
	}
}

// readTag reads the tag of cache files, such as cpython-311.
func readTag(from io.Reader) (string, error) {
	var size [1]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return "", fmt.Errorf("read compiled modules: %w", err)
	}
	tag := make([]byte, size[0])
	if _, err := io.ReadFull(from, tag); err != nil {
		return "", fmt.Errorf("read compiled modules: %w", err)
	}
	if !tagForm().Match(tag) {
		return "", fmt.Errorf("%s is not the tag of an interpreter", sandboxmcp.Quote(string(tag)))
	}
	return string(tag), nil
}

// cacheFile returns where Python looks for the code of a module.
func cacheFile(module, tag string) string {
	dir, file := filepath.Split(module)
	return filepath.Join(dir, "__pycache__", strings.TrimSuffix(file, ".py")+"."+tag+".pyc")
}

// write creates a file of so many bytes of from. It reads them, too, if the file exists.
func write(root *os.Root, name string, from io.Reader, size int64) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		_, err = io.CopyN(io.Discard, from, size)
		return err
	}
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, from, size)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(name)) // Python would not read the module's text instead of a part of its code
	}
	return nil
}
