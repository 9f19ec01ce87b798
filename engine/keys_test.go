package engine_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestBadKeysAreNotAdopted: an engine does not start with a directory of keys that has none, or a file that is
// no key. It copies nothing, so that it starts once the directory is right.
func TestBadKeysAreNotAdopted(t *testing.T) {
	whole := t.TempDir()
	donor := open(t, &fake{}, func(c *engine.Config) { c.StateDir = whole })
	if err := donor.Close(); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(whole, "signing.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"no key": {}, "a bad signing key": {"signing.key": "bad"}, "a bad vault key": {"signing.key": string(key), "vault.key": "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			from, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(from, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			e, err := engine.New(t.Context(), engine.Config{StateDir: state, KeysFrom: from, Backends: []backend.Backend{&fake{}}})
			if err == nil {
				_ = e.Close()
			}
			asCode(t, err, sandboxmcp.CodeBackendUnavailable)
			for _, file := range []string{"signing.key", "vault.key"} {
				if _, err := os.Stat(filepath.Join(state, file)); err == nil {
					t.Errorf("%s was made, want none", file)
				}
			}
		})
	}
}

// TestKeysAreAdoptedTogether: if one of the two keys of the state directory differs, neither key is copied.
func TestKeysAreAdoptedTogether(t *testing.T) {
	from := t.TempDir()
	donor := open(t, &fake{}, func(c *engine.Config) { c.StateDir = from })
	if err := errors.Join(donor.AddSecret(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SecretSpec{Key: "TOKEN", Value: sandboxmcp.NewSecret("hunter22hunter")}), donor.Close()); err != nil {
		t.Fatal(err)
	}
	keys := []string{"signing.key", "vault.key"}
	for i, other := range keys {
		for range 8 { // the keys are copied in any order
			state := filepath.Join(t.TempDir(), "state")
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(state, other), []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
			e, err := engine.New(t.Context(), engine.Config{StateDir: state, KeysFrom: from, Backends: []backend.Backend{&fake{}}})
			if err == nil {
				_ = e.Close()
			}
			asCode(t, err, sandboxmcp.CodeBackendUnavailable)
			if text, err := os.ReadFile(filepath.Join(state, other)); err != nil || string(text) != "another" {
				t.Errorf("%s is %q, %v, want it unchanged", other, text, err)
			}
			if _, err := os.Stat(filepath.Join(state, keys[1-i])); err == nil {
				t.Errorf("%s was copied beside another %s, want neither", keys[1-i], other)
			}
		}
	}
}

// TestAHalfCopiedKeyIsCompleted: a start that is killed between two steps leaves an empty file or the
// beginning of a key.
func TestAHalfCopiedKeyIsCompleted(t *testing.T) {
	from := t.TempDir()
	donor := open(t, &fake{}, func(c *engine.Config) { c.StateDir = from })
	if err := errors.Join(donor.AddSecret(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SecretSpec{Key: "TOKEN", Value: sandboxmcp.NewSecret("hunter22hunter")}), donor.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"signing.key", "vault.key"} {
		whole, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 30, len(whole) - 1} {
			state := filepath.Join(t.TempDir(), "state")
			if err := errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, name), whole[:n], 0o600)); err != nil {
				t.Fatal(err)
			}
			e, err := engine.New(t.Context(), engine.Config{StateDir: state, KeysFrom: from, Backends: []backend.Backend{&fake{}}})
			if err != nil {
				t.Errorf("%d bytes of %s: %v", n, name, err)
				continue
			}
			if err = e.Close(); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(filepath.Join(state, name)); err != nil || !bytes.Equal(got, whole) {
				t.Errorf("%d bytes of %s became %d, %v; want the whole %d", n, name, len(got), err, len(whole))
			}
		}
	}
}

// A key that servers get from a directory is not replaced in one state directory: nothing could
// read the secrets after that, and no server could start.
func TestAKeyOfTheDirectoryIsNotReplaced(t *testing.T) {
	from, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	donor := open(t, &fake{}, func(c *engine.Config) { c.StateDir = from })
	secret := sandboxmcp.SecretSpec{Key: "TOKEN", Value: sandboxmcp.NewSecret("hunter22hunter")}
	if err := errors.Join(donor.AddSecret(t.Context(), sandboxmcp.Caller{}, secret), donor.Close()); err != nil {
		t.Fatal(err)
	}
	with := func(c *engine.Config) { c.StateDir, c.KeysFrom = state, from }
	e := open(t, &fake{}, with)
	if err := e.AddSecret(t.Context(), sandboxmcp.Caller{}, secret); err != nil {
		t.Fatal(err)
	}
	_, err := e.RotateVault(t.Context(), sandboxmcp.Caller{})
	asCode(t, err, sandboxmcp.CodeInvalidArgument)
	if err = e.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, &fake{}, with) // it starts again
	if err = os.Remove(filepath.Join(from, "vault.key")); err != nil {
		t.Fatal(err)
	}
	if n, err := open(t, &fake{}, with).RotateVault(t.Context(), sandboxmcp.Caller{}); n != 1 || err != nil {
		t.Errorf("without a key there: got %d, %v; want 1", n, err)
	}
}
