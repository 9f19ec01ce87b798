package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp"
)

// PrepareDir makes dir if it is missing, and removes the permissions of other users. It
// changes the mode only if the directory is empty or holds a state. A directory that was
// given by mistake, such as /tmp, keeps its mode. [Open] calls it. Code that writes a file into the
// directory earlier must call it first, because Open refuses a directory with unknown files that other users
// may read.
func PrepareDir(dir string) error {
	fi, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, dirMode); err != nil {
			return err
		}
		fi, err = os.Stat(dir)
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return &dirError{reason: "it is not a directory"}
	}
	if !owned(fi) {
		return &dirError{reason: "it belongs to another user"}
	}
	if fi.Mode().Perm()&0o077 != 0 {
		if err := closeDir(dir); err != nil {
			return err
		}
	}
	return writable(dir)
}

// closeDir closes dir to other users if it is empty or holds a state. It refuses files of
// another user, who could write to them afterwards by a descriptor from before.
func closeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	ours := len(entries) == 0
	for _, e := range entries {
		if fi, err := e.Info(); err != nil || !owned(fi) {
			return &dirError{
				reason: fmt.Sprintf("others may write to it, and it holds %s of another user", sandboxmcp.Quote(e.Name())),
				hint:   "set SANDBOXMCP_STATE_DIR to a directory that only you can write to, or remove what is not yours",
			}
		}
		if e.Name() == databaseName || e.Name() == keyName {
			ours = true
		}
	}
	if !ours {
		return &dirError{
			reason: "others may read it, and it holds files that are not ours",
			hint:   fmt.Sprintf("set SANDBOXMCP_STATE_DIR to a directory for it alone, such as %s", filepath.Join(dir, "sandboxmcp")),
		}
	}
	return os.Chmod(dir, dirMode)
}

// keyName is the key file of package sign. A directory with this file holds a state.
const keyName = "signing.key"

// dirError means that a directory cannot be used as a state directory as it is.
type dirError struct{ reason, hint string }

func (e *dirError) Error() string { return e.reason }

// newerError means that a newer release has written the database.
type newerError struct {
	path    string
	version int
	known   int // the newest version that this release knows
}

func (e *newerError) Error() string {
	return fmt.Sprintf("%s has schema version %d, newer than %d, the newest that this release knows", e.path, e.version, e.known)
}
