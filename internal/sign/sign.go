// Package sign holds the server's signing key. Each state directory has one key, which is
// made when the server first starts.
//
// Receipts and artifacts are signed as in-toto Statements, version 1, by ed25519 over the
// pre-authentication encoding of DSSE. Audit checkpoints are signed notes; see [Key.Note].
// A [sandboxmcp.Receipt] is the whole envelope and can be checked with the public key
// alone. For an artifact only the signature is stored; its statement is built again from
// the artifact's fields when it is checked.
package sign

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Files of the key in the state directory.
const (
	PrivateFile = "signing.key" // PEM, PKCS #8, mode 0600
	PublicFile  = "signing.pub" // PEM, PKIX, mode 0644
)

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
	maxKeyFile   = 4096
)

// Key is a signing key. It is immutable and may be used concurrently.
type Key struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
	id      string

	verifier func() (note.Verifier, error) // verifies notes
}

// Open reads the key of the state directory dir, or makes it if it does not exist.
// Processes that open the directory at the same time get the same key. If the file is not a
// valid key, or other users can read it, the error is [sandboxmcp.CodeBackendUnavailable].
// Open never replaces a private key.
func Open(dir string) (*Key, error) {
	path := filepath.Join(dir, PrivateFile)
	private, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makePrivate(dir, path); err == nil {
			private, err = readPrivate(path)
		}
	}
	if err != nil {
		return nil, unavailable(path, err)
	}
	k, err := newKey(private)
	if err != nil {
		return nil, unavailable(path, err)
	}
	if err := publish(dir, k.public); err != nil {
		return nil, unavailable(filepath.Join(dir, PublicFile), err)
	}
	return k, nil
}

// Read reads the key of the state directory dir and writes nothing. The error wraps [fs.ErrNotExist] if
// the directory has no key. Otherwise the errors are those of [Open].
func Read(dir string) (*Key, error) {
	path := filepath.Join(dir, PrivateFile)
	private, err := readPrivate(path)
	if err != nil {
		return nil, unavailable(path, err)
	}
	k, err := newKey(private)
	if err != nil {
		return nil, unavailable(path, err)
	}
	return k, nil
}

func newKey(private ed25519.PrivateKey) (*Key, error) {
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("it has no public half")
	}
	return &Key{
		private: private, public: public, id: KeyID(public),
		verifier: sync.OnceValues(func() (note.Verifier, error) { return noteVerifier(public) }),
	}, nil
}

// Derive returns a secret of 32 bytes for a purpose. Each purpose has its own, and only a holder of the
// key can compute it. It does not reveal the key.
func (k *Key) Derive(purpose string) ([]byte, error) {
	secret, err := hkdf.Key(sha256.New, k.private.Seed(), nil, purpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return secret, nil
}

// Prepare computes what every key of this process needs before it can sign. [Open] does so itself, in
// about a millisecond. A caller with other work to do calls Prepare beside that work.
func Prepare() { ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

// ID returns the key's name: the SHA-256 of the raw public key, in hex.
func (k *Key) ID() string { return k.id }

// Public returns the public half.
func (k *Key) Public() ed25519.PublicKey { return k.public }

// KeyID returns the name of a public key, as [Key.ID] does.
func KeyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])
}

// PublicKey reads the public key of the state directory dir, for programs that only verify.
// The error wraps [fs.ErrNotExist] if the directory has no key yet.
func PublicKey(dir string) (ed25519.PublicKey, error) {
	path := filepath.Join(dir, PublicFile)
	text, err := plainfile.Read(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the public key: %w", err)
	}
	public, err := ParsePublicKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the public key %s: %w", path, err)
	}
	return public, nil
}

// ParsePublicKey parses a public key in the format of PublicFile.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != publicBlock {
		return nil, fmt.Errorf("no PEM block %q in it", publicBlock)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the key is %T, not ed25519", key)
	}
	return public, nil
}

// sign returns the signature over the payload's pre-authentication encoding.
func (k *Key) sign(payload []byte) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, preAuth(payloadType, payload)))
}

// check reports whether sig is the signature over the payload by public.
func check(public ed25519.PublicKey, payload []byte, sig string) error {
	if len(public) != ed25519.PublicKeySize {
		return errors.New("the public key has a wrong length")
	}
	raw, err := decode(sig)
	if err != nil {
		return fmt.Errorf("the signature is not base64: %w", err)
	}
	if !ed25519.Verify(public, preAuth(payloadType, payload), raw) {
		return errors.New("the signature does not fit")
	}
	return nil
}

// decode decodes base64 and fails unless s is the canonical encoding of its value. So the
// bytes that verify are the only accepted spelling.
func decode(s string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, err
	}
	if base64.StdEncoding.EncodeToString(raw) != s {
		return nil, errors.New("not the canonical spelling")
	}
	return raw, nil
}

func unavailable(path string, err error) error {
	return &sandboxmcp.Error{
		Code:    sandboxmcp.CodeBackendUnavailable,
		Message: fmt.Sprintf("the signing key %s cannot be used: %v", path, err),
		Hint:    "run `sandboxmcp doctor`; a key that was lost cannot be made again, and one that is removed is replaced at the next start",
		Err:     err,
	}
}

func readPrivate(path string) (ed25519.PrivateKey, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others may read it (mode %04o); take that away with chmod 600", fi.Mode().Perm())
	}
	text, err := plainfile.Read(path, maxKeyFile)
	if err != nil {
		return nil, err
	}
	return ParsePrivateKey(text)
}

// ParsePrivateKey parses a private key in the format of PrivateFile.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock {
		return nil, fmt.Errorf("no PEM block %q in it", privateBlock)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it does not hold a key in PKCS #8") // the cause might contain bytes of the key
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is %T, not ed25519", key)
	}
	return private, nil
}

// makePrivate makes a key in a temporary file and links it to path once it is complete and
// synced to the disk. So no process reads an incomplete key. If path exists, another
// process was faster and its key is used.
func makePrivate(dir, path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	tmp, err := writeTemp(dir, pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}), 0o600)
	if err != nil {
		return err
	}
	err = os.Link(tmp, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(tmp))
}

// publish writes the public half if its file is missing or holds another key.
func publish(dir string, public ed25519.PublicKey) error {
	if got, err := PublicKey(dir); err == nil && got.Equal(public) {
		return nil
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return err
	}
	tmp, err := writeTemp(dir, pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), 0o644)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, PublicFile)); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// writeTemp writes a new file with a random name and syncs it to the disk.
func writeTemp(dir string, text []byte, mode fs.FileMode) (path string, err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".signing-"+rand.Text()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()) // Chmod restores bits that the umask removed
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// preAuth returns DSSE's pre-authentication encoding: type and payload, each after its
// length, so that the boundary between them is unambiguous.
func preAuth(payloadType string, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+len(payloadType)+32)
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(payloadType)), 10)
	b = append(append(append(b, ' '), payloadType...), ' ')
	b = strconv.AppendInt(b, int64(len(payload)), 10)
	return append(append(b, ' '), payload...)
}
