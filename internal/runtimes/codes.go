package runtimes

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// maxCodes is how many files with compiled code are kept, of all interpreters.
const maxCodes = 32

// compiled is a [Source] compiled by the binary of an interpreter.
type compiled struct {
	path   string // of the interpreter
	real   fileID // of its binary
	source string // see Source.sum
}

// codes keeps compiled code in memory and, if there is a cache file, in files beside it. The code is
// kept apart from the cache file, because that is read and decoded before every first run of a server.
type codes struct {
	dir string // empty: code is kept in memory only

	mu    sync.Mutex
	known map[compiled][]byte
}

// newCodes returns the code that is kept beside a cache file.
func newCodes(cacheFile string) *codes {
	c := &codes{known: map[compiled][]byte{}}
	if cacheFile != "" {
		c.dir = strings.TrimSuffix(cacheFile, ".json") + "-compiled"
	}
	return c
}

// file is the path of a file with code. It differs for each text and each binary, so a whole file never
// becomes wrong.
func (c *codes) file(id compiled) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d %d %d %s", id.path, id.real.Size, id.real.MTime, id.real.Inode, id.source))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:])+".code")
}

// Files begin with a checksum: a crash of the machine can leave one in part. Its table is made faster than that of Castagnoli's, for which
// the first interpreter of a process would wait.
const checksumSize = 4

func checksum(code []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(code))
}

// get returns the code, or nil if none is kept. It ignores a file that is damaged or that another user can write to.
func (c *codes) get(id compiled) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	code := c.known[id]
	if code == nil && c.dir != "" {
		read, err := readOwn(c.file(id))
		if err == nil && len(read) > checksumSize+pycHeader && bytes.Equal(read[:checksumSize], checksum(read[checksumSize:])) {
			code = read[checksumSize:]
			c.known[id] = code
		}
	}
	return code
}

// put keeps code.
func (c *codes) put(id compiled, code []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCodes {
		clear(c.known)
	}
	c.known[id] = code
	if c.dir == "" {
		return nil
	}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a directory for compiled code: %w", err)
	}
	if err := writeOwn(c.file(id), slices.Concat(checksum(code), code)); err != nil {
		return err
	}
	return c.prune()
}

// prune removes the oldest files, but for maxCodes.
func (c *codes) prune() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) <= maxCodes {
		return err
	}
	age := map[string]int64{}
	for _, e := range entries {
		if info, gone := e.Info(); gone == nil {
			age[e.Name()] = info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(age[b.Name()], age[a.Name()]) })
	for _, e := range entries[maxCodes:] {
		err = errors.Join(err, os.Remove(filepath.Join(c.dir, e.Name())))
	}
	return err
}
