package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// A file with notes is a sequence of frames. A frame is the length of its content, a checksum
// and the content: for each note the length and the text of its kind, and the length and the
// bytes of its data. The checksum also covers the name of the file, which is random, and the
// offset. So bytes that a program wrote are not taken for a frame, wherever they are.

const (
	frameHead = 8       // bytes of the length and the checksum
	frameMost = 1 << 20 // bytes of a frame; larger notes are an Update
	frameRead = 4 << 20 // bytes that one transaction reads
)

// liveWait is how long [Store.Settle] waits for another process to carry out its own notes.
// Then it does so itself.
const (
	liveWait  = 200 * time.Millisecond
	livePause = 5 * time.Millisecond
)

func frameSum(name string, at int64, content []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // built once, by the first call: no command's start waits for it
	sum := crc32.Checksum([]byte(name), table)
	sum = crc32.Update(sum, table, binary.BigEndian.AppendUint64(nil, uint64(at)))
	return crc32.Update(sum, table, content)
}

// NotesDir returns the directory of the files with notes. It is beside the database, so
// processes that share the database share it.
func NotesDir(database string) string { return database + "-notes" }

// append appends a frame with notes to this process's file, which it makes if there is none.
// It writes the whole frame or nothing and returns the frame's length. The caller holds n.mu.
func (n *notes) append(all []Note) (length int64, fits bool, err error) {
	frame := make([]byte, frameHead, 1024)
	for _, note := range all {
		if note.Kind == "" {
			return 0, false, nil
		}
		frame = binary.AppendUvarint(frame, uint64(len(note.Kind)))
		frame = append(frame, note.Kind...)
		frame = binary.AppendUvarint(frame, uint64(len(note.Data)))
		frame = append(frame, note.Data...)
	}
	if len(frame) > frameMost {
		return 0, false, nil
	}
	if n.file == nil {
		if err = n.makeFile(); err != nil {
			return 0, false, err
		}
	}
	content := frame[frameHead:]
	binary.BigEndian.PutUint32(frame, uint32(len(content)))
	binary.BigEndian.PutUint32(frame[4:], frameSum(n.name, n.size, content))
	if _, err = n.file.f.WriteAt(frame, n.size); err != nil {
		// Half a frame is not read, and the next one overwrites it.
		return 0, false, errors.Join(err, n.file.f.Truncate(n.size))
	}
	n.size += int64(len(frame))
	return int64(len(frame)), true, nil
}

// makeFile makes and locks this process's file. Another process may have taken the lock of a
// new file, to see whether it is in use, and then removes it.
func (n *notes) makeFile() error {
	for tries := 0; ; tries++ {
		name := rand.Text() + n.key.mark()
		l, err := tryLease(filepath.Join(n.dir, name))
		if err == nil {
			n.file, n.name, n.size = l, name, 0
		}
		if !errors.Is(err, ErrLeased) || tries == 9 {
			return err
		}
	}
}

// discard removes the file of this process. The caller holds n.mu.
func (n *notes) discard() error {
	l := n.file
	n.file, n.name, n.size = nil, "", 0
	return l.Discard()
}

// frame is the notes of one Keep of another process.
type frame struct {
	ops []Op
	end int64 // bytes of the file up to here
}

// readFrames reads the frames after offset at. It stops at the end, at a frame that is not
// whole, and after frameRead bytes.
func readFrames(f io.ReaderAt, name string, at, size int64, makers NoteMakers) (all []frame, err error) {
	buf := make([]byte, max(min(size-at, frameRead), 0))
	got, err := f.ReadAt(buf, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for buf = buf[:got]; len(buf) >= frameHead; {
		length := int64(binary.BigEndian.Uint32(buf))
		if length > int64(len(buf)-frameHead) {
			break
		}
		content := buf[frameHead : frameHead+length]
		if length == 0 || binary.BigEndian.Uint32(buf[4:]) != frameSum(name, at, content) {
			break
		}
		ops, err := makers.steps(content)
		if err != nil {
			return nil, err
		}
		at += frameHead + length
		all = append(all, frame{ops, at})
		buf = buf[frameHead+length:]
	}
	return all, nil
}

var errFrame = errors.New("a record is not whole")

// steps makes the steps of a frame.
func (m NoteMakers) steps(content []byte) (ops []Op, err error) {
	part := func() []byte {
		n, k := binary.Uvarint(content)
		if k <= 0 || n > uint64(len(content)-k) {
			err = errFrame
			return nil
		}
		p := content[k : k+int(n)]
		content = content[k+int(n):]
		return p
	}
	for len(content) > 0 {
		kind, data := string(part()), part()
		if err != nil {
			return nil, err
		}
		make := m[kind]
		if make == nil {
			return nil, fmt.Errorf("a record has the unknown kind %s", sandboxmcp.Quote(kind))
		}
		op, err := make(data)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// Settle returns once the database has every note that any process has kept before. Call it
// before reading rows that notes make. It carries out the notes of this process and of
// processes that were killed, and waits a moment for those of others.
func (s *Store) Settle(ctx context.Context) error {
	if err := s.bringIn(ctx); err != nil {
		return err
	}
	if s.notes.dir == "" || s.notes.makers == nil {
		return nil
	}
	others, err := s.unsettled(ctx)
	if err != nil || len(others) == 0 {
		return s.ReadError(err)
	}
	pause := time.NewTicker(livePause)
	defer pause.Stop()
	for deadline := time.Now().Add(liveWait); len(others) > 0; {
		if slices.ContainsFunc(others, func(o otherNotes) bool { return !o.live }) || time.Now().After(deadline) {
			for _, o := range others {
				if err = s.settleOther(ctx, o); err != nil {
					return s.ReadError(err)
				}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		now, err := s.unsettled(ctx)
		if err != nil {
			return s.ReadError(err)
		}
		// Notes that were kept since need not be waited for.
		others = slices.DeleteFunc(others, func(o otherNotes) bool {
			i := slices.IndexFunc(now, func(p otherNotes) bool { return p.name == o.name })
			return i < 0 || now[i].applied >= o.size
		})
	}
	return nil
}

// Recover carries out the notes of this process and of processes that have ended, and removes the
// files of these. Unlike Settle it waits for no other living process.
func (s *Store) Recover(ctx context.Context) error {
	if err := s.bringIn(ctx); err != nil {
		return err
	}
	if s.notes.dir == "" || s.notes.makers == nil {
		return nil
	}
	others, err := s.unsettled(ctx)
	for _, o := range others {
		if err == nil && !o.live {
			err = s.settleOther(ctx, o)
		}
	}
	return s.ReadError(err)
}

// ReadError returns the error that callers get if a read of the database fails: backend_unavailable with the reason.
// Errors with a code, those of a context, and nil are returned unchanged.
func (s *Store) ReadError(err error) error {
	if err == nil {
		return nil
	}
	return s.explain("read", err)
}

// otherNotes is a file of another process with notes that may not be in the database.
type otherNotes struct {
	name          string
	applied, size int64
	live          bool // its process lives
}

// unsettled lists the files of other processes that have notes which are not in the database,
// and the files of processes that have ended.
func (s *Store) unsettled(ctx context.Context) ([]otherNotes, error) {
	names, err := os.ReadDir(s.notes.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.notes.mu.Lock()
	own := s.notes.name
	s.notes.mu.Unlock()
	var all []otherNotes
	for _, e := range names {
		if e.Name() == own || !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		o := otherNotes{name: e.Name()}
		f, err := plainfile.Open(filepath.Join(s.notes.dir, o.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, s.notes.explain(o.name, err)
		}
		fi, err := f.Stat()
		o.live = tryLock(f, false) != nil
		if err = errors.Join(err, f.Close()); err == nil && !owned(fi) {
			err = errors.New("it belongs to another user")
		}
		if err != nil {
			return nil, s.notes.explain(o.name, err)
		}
		o.size = fi.Size()
		if err = s.reader.QueryRowContext(ctx, selectApplied, o.name).Scan(&o.applied); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if !o.live || o.applied < o.size {
			all = append(all, o)
		}
	}
	return all, nil
}

// settleOther carries out the notes of another process, and removes its file if the process
// has ended. [notes.dropRows] deletes the row later: without it, the file would be carried out
// again.
func (s *Store) settleOther(ctx context.Context, o otherNotes) error {
	path := filepath.Join(s.notes.dir, o.name)
	f, err := plainfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.notes.explain(o.name, err)
	}
	defer f.Close()
	ended, err := lockCurrent(f, path)
	if live := errors.Is(err, ErrLeased); !live && (err != nil || !ended) { // not ended: another process has removed it
		return s.notes.explain(o.name, err)
	}
	var rest int64
	for more := true; more; {
		if err = s.Update(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			rest, more, err = s.bringOther(ctx, tx, f, o.name)
			return err
		}); err != nil {
			return err
		}
	}
	if ended {
		if rest > 0 { // it was not acknowledged, unless the disk has damaged the file
			s.log.Warn("the end of a file with records is not whole and was dropped", "file", path, "bytes", rest)
		}
		err = s.notes.explain(o.name, os.Remove(path))
	}
	return err
}

// bringOther carries out some notes of another process, in a transaction. It returns how many bytes
// are left after them, and whether there may be notes in them.
func (s *Store) bringOther(ctx context.Context, tx *sql.Tx, f *os.File, name string) (rest int64, more bool, err error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, false, s.notes.explain(name, err)
	}
	applied, known, err := s.notes.applied(ctx, tx, name, fi.Size())
	if err == nil && !known {
		// Either nothing was carried out yet, or all was and the file was removed.
		var current bool
		if current, err = isCurrent(f, f.Name()); err == nil && !current {
			return 0, false, nil
		}
	}
	if err != nil {
		return 0, false, s.notes.explain(name, err)
	}
	frames, err := readFrames(f, name, applied, fi.Size(), s.notes.makers)
	for _, fr := range frames {
		j := job{ctx: ctx, ops: fr.ops}
		if err == nil {
			err = j.run(tx)
		}
	}
	if err != nil || len(frames) == 0 {
		return fi.Size() - applied, false, s.notes.explain(name, err)
	}
	end := frames[len(frames)-1].end
	err = s.notes.setApplied(ctx, tx, name, end)
	return fi.Size() - end, end < fi.Size(), err
}
