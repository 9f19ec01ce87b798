package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// unpack makes a directory of a tar. It appears complete or not at all. Its files belong to this
// user, no one else can change them, and none has the rights of another user. Devices are left out.
func unpack(ctx context.Context, file, to string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer f.Close()
	stage, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".part-")
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer os.RemoveAll(stage)
	root, err := os.OpenRoot(stage)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer root.Close()
	if err = placeAll(ctx, root, tar.NewReader(f)); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	if err = os.Chmod(stage, 0o755); err == nil { //nolint:gosec // users of sandboxes enter it, as /
		err = os.Rename(stage, to)
	}
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// placeAll makes all entries of a tar.
func placeAll(ctx context.Context, root *os.Root, r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = place(root, h, r)
		}
		if err != nil {
			return err
		}
	}
}

// othersWrite are the permissions that no unpacked file has.
const othersWrite fs.FileMode = 0o022

// place makes an entry of a tar. [os.Root] keeps it below the root.
func place(root *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	mode := h.FileInfo().Mode().Perm() &^ othersWrite
	if path.IsAbs(name) || name == "." {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(path.Clean(h.Linkname), name)
	case tar.TypeReg:
	default:
		return nil
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask is
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Chtimes(name, time.Time{}, h.ModTime) // compiled Python files name the time of their source
}
