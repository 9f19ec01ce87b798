package artifact_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// dir is backend.Files over a directory, for tests: it stats without following
// and opens regular files only, but trusts the rest of the path.
type dir struct {
	root string

	// onRead is called after each Read of an opened file, with its path.
	onRead func(path string)
	opened map[string]int
	bytes  int64 // that were read of all files
}

func describe(name string, info fs.FileInfo) backend.FileInfo {
	st := info.Sys().(*syscall.Stat_t)                                                                                                             //nolint:forcetypeassert // a test on a unix system
	return backend.FileInfo{Name: name, Mode: info.Mode(), Size: info.Size(), Blocks: st.Blocks, Links: uint64(st.Nlink), ModTime: info.ModTime()} //nolint:unconvert // differs by system
}

func (d *dir) Open(_ context.Context, name string) (backend.File, error) {
	p := filepath.Join(d.root, name)
	info, err := os.Lstat(p)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	if d.opened == nil {
		d.opened = map[string]int{}
	}
	d.opened[name]++
	return &file{File: f, name: name, dir: d}, nil
}

func (d *dir) List(_ context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	f, err := os.Open(filepath.Join(d.root, name))
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, false, err
	}
	var list []backend.FileInfo
	for _, e := range entries {
		if len(list) == limit {
			return list, true, nil
		}
		info, err := e.Info()
		if err != nil {
			return nil, false, err
		}
		list = append(list, describe(e.Name(), info))
	}
	return list, false, nil
}

type file struct {
	*os.File
	name string
	dir  *dir
}

func (f *file) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.dir.bytes += int64(n)
	if f.dir.onRead != nil {
		f.dir.onRead(filepath.Join(f.dir.root, f.name))
	}
	return n, err
}

func (f *file) Stat(context.Context) (backend.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return backend.FileInfo{}, err
	}
	return describe(f.name, info), nil
}

// fill writes files, by name and content, below a directory.
func fill(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
