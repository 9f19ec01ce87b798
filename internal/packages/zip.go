package packages

import (
	"archive/zip"
	"errors"
	"io"
	"math"
)

// maxDirectory bounds the bytes of an archive that are read to list its files. A wheel of
// maxEntries files needs less. Each file takes 46 bytes or more there, and some hundred in
// memory, and an archive may be a gigabyte of them.
const maxDirectory = 16 << 20

var errDirectory = errors.New("its list of files is too long")

// openZip opens a wheel. The error is that of package zip, or errDirectory.
func openZip(b *blob) (*zip.Reader, error) {
	r := &rationed{r: b, left: maxDirectory}
	z, err := zip.NewReader(r, b.size)
	if r.left < 0 {
		return nil, errDirectory
	}
	r.left = math.MaxInt64 // files are bounded by what unpacks them
	return z, err
}

// rationed fails when more than left bytes are read.
type rationed struct {
	r    io.ReaderAt
	left int64
}

func (r *rationed) ReadAt(p []byte, at int64) (int, error) {
	if r.left -= int64(len(p)); r.left < 0 {
		return 0, errDirectory
	}
	return r.r.ReadAt(p, at)
}
