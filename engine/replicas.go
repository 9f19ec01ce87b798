package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// Elsewhere returns the address of the server that has the session of an error; empty: the error is another one.
func Elsewhere(err error) string { return session.Elsewhere(err) }

// Peers returns the addresses of the other servers of the database that are alive.
func (e *Engine) Peers(ctx context.Context) ([]string, error) { return e.sessions.Servers(ctx) }

// join lists a server among those that reach each other.
func (e *Engine) join(ctx context.Context) error {
	switch {
	case !e.cfg.Server || e.cfg.PeerAddress == "":
		return nil
	case e.cfg.Postgres == "":
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "peer_address needs a database that servers share").WithHint("set database_url as well, or unset peer_address")
	}
	return e.sessions.Join(ctx)
}

// maxKeys bounds a file of keys.
const maxKeys = 4096

// adoptKeys copies the keys of a directory into a state directory that has none. It fails if the state directory has
// different keys, or if the directory has no key. If it fails, it removes the keys that it has copied.
func adoptKeys(from, to string) error {
	if from == "" {
		return nil
	}
	unusable := func(name string, err error) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the key %s cannot be used: %v", filepath.Join(from, name), err).
			WithHint("see keys_from in docs/config.md").WithCause(err)
	}
	keys := map[string][]byte{}
	for name, check := range map[string]func([]byte) error{sign.PrivateFile: checkSigningKey, vault.KeyFile: vault.CheckKeys} {
		text, err := plainfile.Read(filepath.Join(from, name), maxKeys)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = check(text)
		}
		if err != nil {
			return unusable(name, err)
		}
		keys[name] = text
	}
	if len(keys) == 0 {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "keys_from is %s, which has neither %s nor %s", sandboxmcp.Quote(from), sign.PrivateFile, vault.KeyFile).
			WithHint("set keys_from to the directory of the keys, or unset it to have keys made")
	}
	var made []string
	for name, text := range keys {
		isNew, err := adoptKey(text, filepath.Join(to, name))
		if isNew {
			made = append(made, filepath.Join(to, name))
		}
		if err != nil {
			for _, path := range made {
				err = errors.Join(err, os.Remove(path))
			}
			return unusable(name, err)
		}
	}
	return nil
}

func checkSigningKey(text []byte) error {
	_, err := sign.ParsePrivateKey(text)
	return err
}

// adoptKey writes a key into a file that does not exist, and reports whether it wrote the file. An existing file has to
// contain that key. If it has only the beginning of it, a start was killed as it wrote the key, and the rest is written.
func adoptKey(want []byte, path string) (made bool, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		got, failed := plainfile.Read(path, maxKeys)
		if failed != nil || bytes.Equal(got, want) {
			return false, failed
		}
		if !bytes.HasPrefix(want, got) {
			return false, fmt.Errorf("%s is another one", path)
		}
		f, err = os.OpenFile(path, os.O_WRONLY, 0)
	}
	if err != nil {
		return false, err
	}
	_, err = f.Write(want)
	return true, errors.Join(err, f.Sync(), f.Close())
}
