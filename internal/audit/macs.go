package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"sync"
)

// Purposes of the secrets that a [Signer] derives.
const (
	entryPurpose = "sandboxmcp audit entries 1"
	notePurpose  = "sandboxmcp audit notes 1"
	rowsPurpose  = "sandboxmcp notes carried out 1"
)

const (
	macBytes  = sha256.Size / 2 // half of an HMAC-SHA256
	macLength = 2 * macBytes    // its length in hex
)

// macs computes the MACs of entries. Only one goroutine at a time may use it.
type macs struct {
	hmac hash.Hash
	in   [8 + sha256.Size]byte
	out  [sha256.Size]byte
}

func newMACs(s Signer) (*macs, error) {
	key, err := s.Derive(entryPurpose)
	if err != nil {
		return nil, err
	}
	return &macs{hmac: hmac.New(sha256.New, key)}, nil
}

// of returns the MAC of the entry with a hash at a position. It covers both. The hash covers the entry's content,
// its number and the hash before it. It is empty if m is nil or the hash is not a SHA-256.
func (m *macs) of(position int64, hash string) string {
	if m == nil || len(hash) != hashLength {
		return ""
	}
	binary.BigEndian.PutUint64(m.in[:], uint64(position))
	if _, err := hex.Decode(m.in[8:], []byte(hash)); err != nil {
		return ""
	}
	m.hmac.Reset()
	m.hmac.Write(m.in[:])
	return hex.EncodeToString(m.hmac.Sum(m.out[:0])[:macBytes])
}

// fits reports whether mac is the MAC of the entry with a hash at a position.
func (m *macs) fits(position int64, hash, mac string) bool {
	want := m.of(position, hash)
	return want != "" && hmac.Equal([]byte(want), []byte(mac))
}

// noteMACs computes the MACs of notes. Its methods may be called concurrently.
type noteMACs struct{ idle sync.Pool }

func newNoteMACs(s Signer) (*noteMACs, error) {
	key, err := s.Derive(notePurpose)
	if err != nil {
		return nil, err
	}
	return &noteMACs{sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}, nil
}

// sealed returns the data of a note after their MAC.
func (n *noteMACs) sealed(data []byte) []byte {
	h, _ := n.idle.Get().(hash.Hash)
	defer n.idle.Put(h)
	h.Reset()
	h.Write(data)
	all := h.Sum(make([]byte, 0, sha256.Size+len(data)))
	return append(all[:macBytes], data...)
}

// open returns the data of a note without the MAC before them. It fails if that is a wrong one.
func (n *noteMACs) open(all []byte) ([]byte, error) {
	if len(all) < macBytes || !hmac.Equal(n.sealed(all[macBytes:])[:macBytes], all[:macBytes]) {
		return nil, errors.New("a record was not kept by a server with this signing key")
	}
	return all[macBytes:], nil
}
