package door

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// KeyFile is the file in the state directory with the key for programs of this machine.
const KeyFile = "http.key"

const maxKeyFile = 4096

// LocalKey returns the key in the state directory dir, and the path of its file. It makes the
// key if there is none. Only the server's user can read the file.
func LocalKey(dir string) (key sandboxmcp.Secret, path string, err error) {
	path = filepath.Join(dir, KeyFile)
	text, err := plainfile.Read(path, maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err = writeKey(dir, path); err == nil {
			text, err = plainfile.Read(path, maxKeyFile)
		}
	}
	if err != nil {
		return key, path, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the key file %s cannot be read or made", path).
			WithHint("check its owner and mode, or remove it").WithCause(err)
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Perm()&0o077 != 0 {
		return key, path, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "other users can read or change the key file %s", path).
			WithHint("remove it; the next start makes a new key").WithCause(err)
	}
	word := strings.TrimSpace(string(text))
	if len(word) < 20 || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return key, path, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the key file %s does not hold one key", path).
			WithHint("remove it; the next start makes a new key")
	}
	return sandboxmcp.NewSecret(word), path, nil
}

// writeKey writes a new key beside the path and links it there, so that no other process
// reads half of it. If another process was faster, its key stays.
func writeKey(dir, path string) error {
	f, err := os.CreateTemp(dir, ".http-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(rand.Text() + rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
