package vault

import (
	"bytes"
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
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	"github.com/zalando/go-keyring"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// KeyFile is the key file in the state directory. It holds age identities, the current one
// first. While the key is being replaced, it holds two.
const KeyFile = "vault.key"

const maxKeyFile = 4096

// keys are the keys of a sealed vault as last read. Another process may change them, so
// unseal reads them again if none fits.
type keys struct {
	place place

	mu  sync.Mutex
	all []*age.X25519Identity // the current one first; nil: not read yet
}

// place stores the text of the keys.
type place interface {
	// read returns the text. If there are no keys, it fails with fs.ErrNotExist.
	read() ([]byte, error)
	// write replaces the text. If fresh is set and there is a text, it fails with
	// fs.ErrExist.
	write(text []byte, fresh bool) error
	// tidy removes what writes of killed processes have left. No other process may write meanwhile.
	tidy() error
	fmt.Stringer
}

func newKeys(dir string, cfg Config) *keys {
	if cfg.Keyring {
		sum := sha256.Sum256([]byte(dir))
		return &keys{place: desktop{user: hex.EncodeToString(sum[:8]), env: cfg.Env}}
	}
	return &keys{place: keyFile(filepath.Join(dir, KeyFile))}
}

// current reads the keys and returns them. If there are no keys and fresh is set, it makes
// one.
func (k *keys) current(fresh bool) ([]*age.X25519Identity, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.readLocked()
	if errors.Is(err, fs.ErrNotExist) && fresh {
		var id *age.X25519Identity
		if id, err = age.GenerateX25519Identity(); err == nil {
			if err = k.place.write(keyText(id), true); errors.Is(err, fs.ErrExist) { // another process was faster
				err = nil
			}
		}
		if err == nil {
			err = k.readLocked()
		}
	}
	if err != nil {
		return nil, keyError(k.place, err)
	}
	return slices.Clone(k.all), nil
}

func (k *keys) readLocked() error {
	text, err := k.place.read()
	if err != nil {
		return err
	}
	all, err := parseKeys(text)
	if err != nil {
		return err
	}
	k.all = all
	return nil
}

// CheckKeys returns an error if text is not in the format of [KeyFile].
func CheckKeys(text []byte) error {
	_, err := parseKeys(text)
	return err
}

func parseKeys(text []byte) ([]*age.X25519Identity, error) {
	var all []*age.X25519Identity
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, err := age.ParseX25519Identity(line)
		if err != nil {
			return nil, errors.New("it does not hold an age identity") // the cause might contain a part of the key
		}
		all = append(all, id)
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no age identity")
	}
	return all, nil
}

// replace replaces the keys.
func (k *keys) replace(all []*age.X25519Identity) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.place.write(keyText(all...), false); err != nil {
		return keyError(k.place, err)
	}
	k.all = all
	return nil
}

func keyText(all ...*age.X25519Identity) []byte {
	var b bytes.Buffer
	b.WriteString("# the key of the vault in this state directory; without it no secret can be read\n")
	for _, id := range all {
		b.WriteString(id.String() + "\n")
	}
	return b.Bytes()
}

// unseal decrypts with the keys as they were last read. If that fails, it reads them again
// and retries.
func (k *keys) unseal(sealed []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for fresh := k.all == nil; ; fresh = true {
		if fresh {
			if err := k.readLocked(); err != nil {
				return nil, keyError(k.place, err)
			}
		}
		ids := make([]age.Identity, len(k.all))
		for i, id := range k.all {
			ids[i] = id
		}
		r, err := age.Decrypt(bytes.NewReader(sealed), ids...)
		if err == nil {
			return io.ReadAll(r)
		}
		if fresh {
			return nil, err
		}
	}
}

func seal(plain []byte, to *age.X25519Recipient) ([]byte, error) {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(plain); err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

func keyError(p place, err error) error {
	if _, coded := errors.AsType[*sandboxmcp.Error](err); coded {
		return err
	}
	why := fmt.Sprintf("%s cannot be used: %v", p, err)
	if errors.Is(err, fs.ErrNotExist) {
		why = fmt.Sprintf("%s is missing", p)
	}
	return unavailable(why, err).WithHint("restore the key; if it is lost, delete the secrets and add them again")
}

// keyFile is the path of a key file. Only its owner may read it.
type keyFile string

func (f keyFile) String() string { return "the key file " + string(f) }

func (f keyFile) read() ([]byte, error) {
	fi, err := os.Lstat(string(f))
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others may read it (mode %04o); take that away with chmod 600", fi.Mode().Perm())
	}
	return plainfile.Read(string(f), maxKeyFile)
}

// tempPrefix begins the names of temporary files with keys.
const tempPrefix = ".vault-"

// isTemp reports whether a name is one that write makes: the prefix and a text of [rand.Text].
func isTemp(name string) bool {
	text, ok := strings.CutPrefix(name, tempPrefix)
	return ok && len(text) == 26 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '2' || r > '7')
	})
}

// tidy removes temporary files. What is not of write stays.
func (f keyFile) tidy() error {
	dir := filepath.Dir(string(f))
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if isTemp(e.Name()) && e.Type().IsRegular() {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// write writes a temporary file and moves it to its final name once it is synced to the
// disk.
func (f keyFile) write(text []byte, fresh bool) (err error) {
	tmp := filepath.Join(filepath.Dir(string(f)), tempPrefix+rand.Text())
	t, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = t.Write(text)
	err = errors.Join(err, t.Sync(), t.Close())
	if err == nil && fresh {
		err = os.Link(tmp, string(f)) // fails if the name exists
	} else if err == nil {
		return os.Rename(tmp, string(f))
	}
	if gone := os.Remove(tmp); err == nil {
		err = gone
	}
	return err
}

// desktop is a key in the keyring of a desktop session.
type desktop struct {
	user string // the key's name in the keyring, different for each state directory
	env  []string
}

const keyringService = "sandboxmcp vault"

func (desktop) String() string { return "the keyring" }

func (desktop) tidy() error { return nil }

// keyringWait bounds a call of the keyring, which may ask a person to unlock it.
const keyringWait = 30 * time.Second

// ask calls the keyring, which has no deadline of its own. Without a D-Bus session it
// fails, because the library would start one.
func (d desktop) ask(what func() (string, error)) (string, error) {
	if runtime.GOOS != "darwin" && runtime.GOOS != "windows" && !d.bus() {
		return "", unavailable("there is no keyring: this process has no D-Bus session", nil).
			WithHint("start it in a desktop session with a keyring, or set SANDBOXMCP_VAULT_KEY=file")
	}
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := what()
		done <- answer{text, err}
	}()
	t := time.NewTimer(keyringWait)
	defer t.Stop()
	var err error
	select {
	case a := <-done:
		if a.err == nil {
			return a.text, nil
		}
		if errors.Is(a.err, keyring.ErrNotFound) {
			return "", fs.ErrNotExist
		}
		err = a.err
	case <-t.C:
		err = fmt.Errorf("no answer within %s", keyringWait)
	}
	return "", unavailable("the keyring does not answer: "+err.Error(), err).WithHint("unlock it, or set SANDBOXMCP_VAULT_KEY=file")
}

func (d desktop) bus() bool {
	for _, kv := range d.env {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "DBUS_SESSION_BUS_ADDRESS" && value != "" && value != "autolaunch:":
			return true
		case name == "XDG_RUNTIME_DIR" && value != "":
			if _, err := os.Stat(filepath.Join(value, "bus")); err == nil {
				return true
			}
		}
	}
	return false
}

func (d desktop) read() ([]byte, error) {
	text, err := d.ask(func() (string, error) { return keyring.Get(keyringService, d.user) })
	if err != nil {
		return nil, err
	}
	return []byte(text), nil
}

func (d desktop) write(text []byte, fresh bool) error {
	if fresh {
		if _, err := d.read(); err == nil {
			return fs.ErrExist
		}
	}
	_, err := d.ask(func() (string, error) { return "", keyring.Set(keyringService, d.user, string(text)) })
	return err
}
