package enroll

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// errChanged means that another program has written the file meanwhile.
var errChanged = errors.New("another program has changed it meanwhile; try again")

// replace writes a file beside the old one and renames it. A link stays, and its target is
// replaced. Mode and owner stay. A new file is for its owner only.
func replace(path string, old, data []byte, missing bool) (err error) {
	mode := fs.FileMode(0o600)
	if missing {
		if _, err = os.Lstat(path); err == nil { // a link to nothing
			return errors.New("it is a link to a file that does not exist")
		}
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	} else if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	var info fs.FileInfo
	if !missing {
		if info, err = os.Stat(path); err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	temp := filepath.Join(filepath.Dir(path), ".sandboxmcp-"+rand.Text())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	_, err = f.Write(data)
	if err == nil && info != nil {
		err = sameOwner(f, info)
	}
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if now, readErr := plainfile.Read(path, maxFile); missing != errors.Is(readErr, fs.ErrNotExist) || !bytes.Equal(now, old) {
		return errChanged
	}
	return os.Rename(temp, path)
}
