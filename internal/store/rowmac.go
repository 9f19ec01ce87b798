package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
)

// RowKey is a key for MACs of rows. Without it, a writer of the database can make or change no row that a room accepts.
type RowKey []byte

// MAC returns the MAC of a row with these columns: an HMAC-SHA256 in hexadecimal. The length of each column precedes it.
func (k RowKey) MAC(columns ...string) string {
	h := hmac.New(sha256.New, k)
	for _, column := range columns {
		h.Write(binary.AppendUvarint(nil, uint64(len(column))))
		h.Write([]byte(column))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Fits reports whether mac is the MAC of a row with these columns.
func (k RowKey) Fits(mac string, columns ...string) bool {
	return hmac.Equal([]byte(mac), []byte(k.MAC(columns...)))
}

// RowMACs makes and checks MACs of rows with a key that is derived when it is first needed.
type RowMACs struct {
	key func() (RowKey, error)
}

// NewRowMACs returns the MACs for a purpose. derive derives a secret from the signing key; if it is nil, there is no key.
func NewRowMACs(derive func(purpose string) ([]byte, error), purpose string) RowMACs {
	return RowMACs{sync.OnceValues(func() (RowKey, error) {
		if derive == nil {
			return nil, fmt.Errorf("%s: there is no signing key", purpose)
		}
		return derive(purpose)
	})}
}

// Of returns the MAC of a row with these columns.
func (m RowMACs) Of(columns ...string) (string, error) {
	key, err := m.key()
	if err != nil {
		return "", err
	}
	return key.MAC(columns...), nil
}

// Fit reports whether mac is the MAC of a row with these columns. Without the key it returns false.
func (m RowMACs) Fit(mac string, columns ...string) bool {
	key, err := m.key()
	return err == nil && key.Fits(mac, columns...)
}
