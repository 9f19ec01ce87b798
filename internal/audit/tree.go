package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// edge is the part of a Merkle tree that is needed to add leaves: the roots of its perfect
// subtrees, the largest first. It has one for each bit that is set in size.
type edge struct {
	size  int64
	roots []tlog.Hash
}

// add adds a leaf after the last one.
func (e *edge) add(leaf tlog.Hash) {
	for n := e.size; n&1 == 1; n >>= 1 {
		last := len(e.roots) - 1
		leaf = tlog.NodeHash(e.roots[last], leaf)
		e.roots = e.roots[:last]
	}
	e.roots = append(e.roots, leaf)
	e.size++
}

// root returns the root of the tree, as RFC 6962 defines it.
func (e *edge) root() tlog.Hash {
	if len(e.roots) == 0 {
		return sha256.Sum256(nil)
	}
	last := len(e.roots) - 1
	h := e.roots[last]
	for last--; last >= 0; last-- {
		h = tlog.NodeHash(e.roots[last], h)
	}
	return h
}

func (e *edge) bytes() []byte {
	b := make([]byte, 0, len(e.roots)*tlog.HashSize)
	for _, h := range e.roots {
		b = append(b, h[:]...)
	}
	return b
}

func parseEdge(size int64, b []byte) (edge, error) {
	e := edge{size: size}
	if size < 0 || len(b) != bits.OnesCount64(uint64(size))*tlog.HashSize {
		return e, errors.New("the edge of the tree has a wrong length")
	}
	for ; len(b) > 0; b = b[tlog.HashSize:] {
		e.roots = append(e.roots, tlog.Hash(b[:tlog.HashSize]))
	}
	return e, nil
}

// leafOf returns the leaf of an entry, as RFC 6962 defines it for the 32 bytes of its hash.
func leafOf(hash string) (tlog.Hash, error) {
	raw, err := hex.DecodeString(hash)
	if err != nil || len(raw) != sha256.Size {
		return tlog.Hash{}, errors.New("the hash of an entry is not a SHA-256")
	}
	return tlog.RecordHash(raw), nil
}
