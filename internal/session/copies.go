package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// CopiesConfig configures [Copies].
type CopiesConfig struct {
	// Temp returns an empty file without a name for a content of size bytes.
	Temp func(size int64) (*os.File, error)

	// Refuse returns the error for a file that holds the secret key. Nil: such files are copied.
	Refuse func(name, key string) error

	Bytes int64         // of all copies; 0: 1 GiB
	Keep  time.Duration // how long a copy without readers may be used again; 0: 30 s
}

// Copies keeps copies of large files of live sessions on disk, while they are read and shortly
// after. A copy is searched for secrets while it is written, so that a file of any size can be
// handed out in constant memory. Its methods may be called concurrently.
type Copies struct {
	cfg CopiesConfig

	mu     sync.Mutex
	list   []*copied // unused ones in the order in which they became so
	held   int64
	freed  chan struct{} // closed when there may be room
	closed bool
}

// copied is a copy, or one that is being made.
type copied struct {
	of original

	// Guarded by Copies.mu.
	users int
	gone  bool        // not in the list any more
	idle  *time.Timer // set while users is 0

	done chan struct{} // closed when the fields below are set
	file *os.File
	info sandboxmcp.SessionFile
	err  error
}

// original identifies a file and its content.
type original struct {
	live  *Live
	name  string
	size  int64
	mark  string
	masks *redact.Masker
}

// NewCopies returns a Copies without copies.
func NewCopies(cfg CopiesConfig) *Copies {
	cfg.Bytes, cfg.Keep = cmp.Or(cfg.Bytes, 1<<30), cmp.Or(cfg.Keep, 30*time.Second)
	return &Copies{cfg: cfg, freed: make(chan struct{})}
}

// SetBytes replaces the bound on the bytes of all copies, for copies to come.
func (c *Copies) SetBytes(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Bytes = n
}

// most returns the bound on the bytes of all copies.
func (c *Copies) most() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cfg.Bytes
}

// Copy is a file of a session as it was when it was copied. The caller closes it.
type Copy struct {
	*io.SectionReader
	release func()
}

// Close ends the use of the copy.
func (c *Copy) Close() error {
	c.release()
	return nil
}

// Copy returns a copy of a file on disk, made now or shortly before, by the session's [Copies].
// While all copies are in use and the file does not fit beside them, Copy waits. It fails as
// [Files.Read] does, with session_busy if the file changes while it is copied, with
// backend_unavailable if the disk is too full, and with the error of Refuse.
func (f Files) Copy(ctx context.Context, p Path, limit int64) (sandboxmcp.SessionFile, *Copy, error) {
	c, name := f.live.cfg.Copies, f.realName(ctx, p.name)
	src, st, err := openFile(ctx, f.live.cfg.Sandbox.Files(), name)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, f.readError(ctx, p, 0, limit, err)
	}
	defer src.Close()
	info := sandboxmcp.SessionFile{Path: f.masks.Text(path.Join(backend.WorkDir, name)), Filename: f.masks.Text(path.Base(name)), SizeBytes: st.Size}
	if limit = min(limit, c.most()); st.Size > limit {
		return info, nil, f.readError(ctx, p, st.Size, limit, errLarge)
	}
	x, err := c.take(ctx, original{live: f.live, name: name, size: st.Size, mark: st.Mark, masks: f.masks}, func(x *copied) error {
		x.info = info
		return c.write(ctx, x, src, st, p)
	})
	if err != nil {
		return info, nil, f.readError(ctx, p, st.Size, limit, err)
	}
	return x.info, &Copy{io.NewSectionReader(x.file, 0, st.Size), sync.OnceFunc(func() { c.release(x) })}, nil
}

// take returns the copy of a file with one more user, and makes it if there is none.
func (c *Copies) take(ctx context.Context, of original, write func(*copied) error) (*copied, error) {
	for {
		x, mine, freed := c.find(of)
		switch {
		case mine:
			x.err = write(x)
			c.made(x)
			return x, x.err
		case x == nil:
			select {
			case <-freed:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		select {
		case <-x.done:
		case <-ctx.Done():
			c.release(x)
			return nil, ctx.Err()
		}
		switch {
		case x.err == nil:
			return x, nil
		case !errors.Is(x.err, context.Canceled) && !errors.Is(x.err, context.DeadlineExceeded):
			return nil, x.err
		}
		// The caller that made it has given up.
	}
}

// find returns the copy of a file with one more user. If there is none, it makes room and returns
// a copy that the caller has to write (mine). If there is no room, it returns no copy, and a
// channel that is closed when there may be.
func (c *Copies) find(of original) (x *copied, mine bool, freed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.list, func(x *copied) bool { return of.mark != "" && x.of == of }); i >= 0 {
		x = c.list[i]
		x.users++
		if x.idle != nil {
			x.idle.Stop()
			x.idle = nil
		}
		return x, false, nil
	}
	for c.held+of.size > c.cfg.Bytes {
		i := slices.IndexFunc(c.list, func(x *copied) bool { return x.users == 0 })
		if i < 0 {
			return nil, false, c.freed
		}
		c.dropLocked(c.list[i])
	}
	x = &copied{of: of, users: 1, done: make(chan struct{})}
	c.list = append(c.list, x)
	c.held += of.size
	return x, true, nil
}

// made ends the making of a copy. One that failed is dropped.
func (c *Copies) made(x *copied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.err != nil {
		c.dropLocked(x)
		_ = x.close()
	}
	close(x.done)
}

// release ends one use of a copy.
func (c *Copies) release(x *copied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.users--; x.users > 0 || x.gone {
		if x.users == 0 {
			_ = x.close()
		}
		return
	}
	if c.closed {
		c.dropLocked(x)
		return
	}
	i := slices.Index(c.list, x)
	c.list = append(slices.Delete(c.list, i, i+1), x)
	x.idle = time.AfterFunc(c.cfg.Keep, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if x.users == 0 && !x.gone {
			c.dropLocked(x)
		}
	})
	c.tellLocked()
}

// dropLocked forgets a copy. Its file is closed when its last reader has closed it.
func (c *Copies) dropLocked(x *copied) {
	if x.gone {
		return
	}
	x.gone = true
	c.list = slices.DeleteFunc(c.list, func(y *copied) bool { return y == x })
	c.held -= x.of.size
	if x.idle != nil {
		x.idle.Stop()
	}
	if x.users == 0 {
		_ = x.close()
	}
	c.tellLocked()
}

func (c *Copies) tellLocked() {
	close(c.freed)
	c.freed = make(chan struct{})
}

// close closes the file. Nothing can be lost: its content was only read.
func (x *copied) close() error {
	if x.file == nil {
		return nil
	}
	return x.file.Close()
}

// drop forgets the copies of a session that has ended. It may be called for nil.
func (c *Copies) drop(live *Live) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range slices.Clone(c.list) {
		if x.of.live == live {
			c.dropLocked(x)
		}
	}
}

// Close forgets all copies. Those that are being read end with their reader.
func (c *Copies) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, x := range slices.Clone(c.list) {
		c.dropLocked(x)
	}
}

// copyBuffer is how many bytes are copied at a time.
const copyBuffer = 256 << 10

// write makes a copy of src, which was like st when it was opened. It sets what of x was not known.
func (c *Copies) write(ctx context.Context, x *copied, src backend.File, st backend.FileInfo, p Path) (err error) {
	if x.file, err = c.cfg.Temp(st.Size); err != nil {
		return err
	}
	var search *redact.Search
	if c.cfg.Refuse != nil {
		search = x.of.masks.Search()
	}
	h, head := sha256.New(), &head{}
	into := []io.Writer{copyFile{x.file}, h, head}
	if search != nil {
		into = append(into, search)
	}
	n, err := io.CopyBuffer(io.MultiWriter(into...), io.LimitReader(backend.Reading(ctx, src), st.Size+1), make([]byte, copyBuffer))
	if err != nil {
		return err
	}
	if key := search.Close(); key != "" {
		return c.cfg.Refuse(p.given, key)
	}
	after, err := src.Stat(ctx)
	switch {
	case err != nil:
		return err
	case n != st.Size, after.Size != st.Size, after.Mark != st.Mark, !after.ModTime.Equal(st.ModTime):
		return errMoved
	}
	x.info.SHA256, x.info.MIMEType = hex.EncodeToString(h.Sum(nil)), artifact.MIMEType(x.of.name, head.Bytes())
	return nil
}

// copyFile is the file of a copy. It says of its errors that they are the machine's.
type copyFile struct{ *os.File }

func (f copyFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err != nil {
		err = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the copy of a file could not be written to the state directory").WithHint("check its free space").WithCause(err)
	}
	return n, err
}

// errMoved reports a file that changed while it was copied.
var errMoved = errors.New("changed while it was copied")

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), sniffed-h.Len())])
	return len(p), nil
}
