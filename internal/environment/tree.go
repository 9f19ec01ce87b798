package environment

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Listing describes all files below a directory.
type Listing struct {
	Files

	Text []byte // one line per file, in the format of sha256sum: the content of files.sha256
}

const maxFiles = 200_000

// List hashes every file below a directory of a set. It fails on anything that is neither a
// regular file nor a directory, and on names that a line cannot represent. Names are relative
// to the set.
func List(ctx context.Context, set, below string) (Listing, error) {
	var paths []string
	var l Listing
	err := filepath.WalkDir(filepath.Join(set, below), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(set, p)
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no regular file", rel)
		case strings.ContainsAny(rel, "\n\r\\\x00"):
			return fmt.Errorf("%q is not a valid file name", rel)
		case len(paths) >= maxFiles:
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		paths = append(paths, rel)
		return nil
	})
	if err != nil {
		return l, err
	}
	sums, err := hashAll(ctx, set, paths)
	if err != nil {
		return l, err
	}
	var text bytes.Buffer
	for i, rel := range paths {
		text.WriteString(sums[i].hex + "  " + rel + "\n")
		l.Bytes += sums[i].size
	}
	l.Count, l.Text = len(paths), text.Bytes()
	l.SHA256 = digestOf(l.Text)
	return l, nil
}

type sum struct {
	hex  string
	size int64
}

// hashAll hashes files with as many goroutines as there are processors.
func hashAll(ctx context.Context, dir string, paths []string) ([]sum, error) {
	sums := make([]sum, len(paths))
	next := make(chan int)
	errs := make([]error, runtime.NumCPU())
	var work sync.WaitGroup
	for w := range errs {
		work.Go(func() {
			for i := range next {
				if errs[w] == nil {
					sums[i], errs[w] = hashFile(filepath.Join(dir, paths[i]))
				}
			}
		})
	}
	for i := range paths {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	work.Wait()
	return sums, errors.Join(append(errs, ctx.Err())...)
}

func hashFile(name string) (sum, error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return sum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return sum{}, fmt.Errorf("read %s: %w", name, err)
	}
	return sum{hex.EncodeToString(h.Sum(nil)), n}, nil
}

// Verify hashes every file of a set and compares the hashes with files.sha256. It takes
// about a second.
func (l *Library) Verify(ctx context.Context, s Set) error {
	if _, err := l.open(s.Digest); err != nil {
		return err
	}
	want, err := readOwn(filepath.Join(s.Dir, filesName), maxFiles*256)
	if err != nil {
		return err
	}
	if digestOf(want) != s.Files.SHA256 {
		return fmt.Errorf("%s is not the one that the manifest names", filepath.Join(s.Dir, filesName))
	}
	if err = onlyOurs(s.Dir); err != nil {
		return err
	}
	got, err := List(ctx, s.Dir, sitePackages)
	if err != nil || got.SHA256 == s.Files.SHA256 {
		return err
	}
	return errors.New(differs(want, got.Text))
}

// onlyOurs fails if another user can write to anything below a directory: files could then
// change after they were hashed.
func onlyOurs(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err == nil && !onlyOursWrite(info) {
			err = fmt.Errorf("%s can be written by others", p)
		}
		return err
	})
}

// differs names the first file in which two listings differ.
func differs(want, got []byte) string {
	was := map[string]string{}
	for line := range strings.Lines(string(want)) {
		hash, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		was[name] = hash
	}
	for line := range strings.Lines(string(got)) {
		hash, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		switch old, ok := was[name]; {
		case !ok:
			return name + " was added"
		case old != hash:
			return name + " was changed"
		}
		delete(was, name)
	}
	for name := range was {
		return name + " is gone"
	}
	return "the files are listed in another order"
}

// Protect makes everything below a directory read-only, and readable for all users, because
// code in a sandbox runs as another user.
func Protect(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if info, err := d.Info(); err != nil {
			return err
		} else if d.IsDir() || info.Mode()&0o111 != 0 {
			mode = 0o555
		}
		return os.Chmod(p, mode) //nolint:gosec // no other user can change dir before it is renamed, and List has refused links
	})
}

// RemoveTree removes a directory that may have read-only directories in it.
func RemoveTree(dir string) error {
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(p, 0o700) //nolint:gosec // a directory that is removed next
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// readOwn reads a file. It fails if a user other than root and the process's own can write
// to it.
func readOwn(name string, limit int64) ([]byte, error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !onlyOursWrite(info):
		return nil, fmt.Errorf("%s can be written by others", name)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s is too large", name)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Private fails if dir is not a directory or if others can write it.
func Private(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !onlyOursWrite(info):
		return fmt.Errorf("%s can be written by others", dir)
	}
	return nil
}

// replace writes a file atomically.
func replace(name string, data []byte) error {
	temp := name + "." + rand.Text()
	err := put(temp, data, 0o600)
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, remove(temp))
	}
	return nil
}

// put creates a file. It fails if the file exists.
func put(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// remove removes a file if it exists.
func remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
