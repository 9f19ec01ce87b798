package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
)

// Purposes of the secrets that a [Signer] derives.
const (
	entryPurpose = "sandboxmcp audit entries 1"
	notePurpose  = "sandboxmcp audit notes 1"
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

// noteMAC returns the MAC of the data of a note.
func noteMAC(key, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(data)
	return h.Sum(nil)[:macBytes]
}

// openNoteData returns the data of a note that starts with its MAC.
func openNoteData(key, data []byte) ([]byte, error) {
	if len(data) < macBytes || !hmac.Equal(noteMAC(key, data[macBytes:]), data[:macBytes]) {
		return nil, errors.New("a record was not kept by a server with this signing key")
	}
	return data[macBytes:], nil
}
