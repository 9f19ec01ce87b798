package backend

import "strings"

// mostBeginning is how much a Beginning keeps.
const mostBeginning = 64 << 10

// Beginning keeps the first bytes of what a program writes. It is for programs whose answer is a few lines: a program of an
// image or of a root directory may write without end.
type Beginning struct{ text strings.Builder }

// Write takes everything and keeps what it has room for.
func (b *Beginning) Write(p []byte) (int, error) {
	b.text.Write(p[:min(len(p), mostBeginning-b.text.Len())])
	return len(p), nil
}

// String returns the bytes that Write has kept.
func (b *Beginning) String() string { return b.text.String() }
