package audit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxPlace bounds how many bytes of a checkpoint file are read. A note has about 300 bytes.
const maxPlace = 256 << 20

// maxNote is larger than any note, in bytes.
const maxNote = 1024

// places are the files outside the database that also hold checkpoints.
type places struct {
	head   string // file with only the newest checkpoint; empty: no file
	second string // file with all checkpoints, in order; empty: no file

	seen *atomic.Pointer[string] // the note of head that was last compared with the record, or written; nil: it is not remembered
}

func (p places) none() bool { return p.head == "" && p.second == "" }

// HeadFile returns the path of the file with the newest checkpoint of a database. It is
// beside the key. A user who can write only to the database thus cannot cut off its end
// without being detected.
func HeadFile(stateDir, database string) string {
	abs, err := filepath.Abs(database)
	if err != nil {
		abs = database
	}
	if dir, err := filepath.Abs(stateDir); err == nil && filepath.Dir(abs) == dir {
		return filepath.Join(stateDir, strings.TrimSuffix(filepath.Base(abs), ".db")+".head")
	}
	sum := sha256.Sum256([]byte(abs))
	return filepath.Join(stateDir, "audit-"+hex.EncodeToString(sum[:6])+".head")
}

// openSecond checks that the checkpoint file can be written to.
func openSecond(path string) error {
	if path == "" {
		return nil
	}
	f, err := plainfile.Append(path, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the second place of the audit's checkpoints, %s, cannot be written to: %v", sandboxmcp.Quote(path), err).
			WithHint("set audit_checkpoint_file to a file that can be appended to, or remove the setting").WithCause(err)
	}
	return nil
}

// write writes a checkpoint to each place that does not have it.
func (p places) write(c checkpoint) error {
	return errors.Join(p.writeSecond(c), p.writeHead(c))
}

// writeSecond appends a checkpoint in one write, so that several processes may do so.
func (p places) writeSecond(c checkpoint) error {
	if p.second == "" {
		return nil
	}
	last, whole, err := lastNote(p.second)
	if err != nil {
		return err
	}
	if isFinding(last) {
		return &tamperedError{reason: "the second place " + p.second + " ends with the statement of a server about a fault", kept: true}
	}
	if sizeOf(last) >= c.size {
		return nil
	}
	return p.appendSecond(c.note, whole)
}

// appendSecond appends a note to the second place. whole is false if that does not end with a complete line.
func (p places) appendSecond(text string, whole bool) error {
	if !whole { // an earlier write was incomplete
		text = "\n" + text
	}
	f, err := plainfile.Append(p.second, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// writeHead replaces the head file by a newer checkpoint. It keeps a file whose checkpoint
// covers more entries: either another process was faster, or the file is evidence that
// entries were removed.
func (p places) writeHead(c checkpoint) error {
	if p.head == "" {
		return nil
	}
	old, err := readHead(p.head)
	if err != nil || sizeOf(old) >= c.size {
		return err
	}
	return replaceFile(p.head, c.note, false)
}

// replaceFile gives a file another content at once. sync waits until that is on the disk.
func replaceFile(path, text string, sync bool) error {
	tmp := filepath.Join(filepath.Dir(path), ".head-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// compare checks the checkpoints of the files against the record, whose newest checkpoint
// is c. It runs in a transaction. That sees every checkpoint of a file, because each is
// committed before it is written to a file.
func (p places) compare(ctx context.Context, tx *sql.Tx, open func(string) (string, error), c checkpoint) (err error) {
	if err := p.found(open); err != nil {
		return err
	}
	var notes []string
	if p.head != "" {
		n, err := readHead(p.head)
		if err != nil {
			return err
		}
		notes = append(notes, n)
		defer func(n string) {
			if err == nil && p.seen != nil {
				p.seen.Store(&n)
			}
		}(n)
	}
	if p.second != "" {
		n, _, err := lastNote(p.second)
		if err != nil {
			return err
		}
		if isFinding(n) {
			return foundIn(p.second, open, n)
		}
		notes = append(notes, n)
	}
	for _, n := range notes {
		if n == "" || n == c.note {
			continue
		}
		st, err := openStatement(open, originCheckpoint, n)
		if err != nil {
			return &tamperedError{reason: fmt.Sprintf("a checkpoint outside the database is not ours: %v", err)}
		}
		if st.size > c.size {
			return &tamperedError{reason: fmt.Sprintf("it had %d signed entries, and the newest checkpoint is over %d", st.size, c.size)}
		}
		same, err := has(ctx, tx, selectNoteAt, st.size, n)
		if err == nil && !same {
			same, err = dropped(ctx, tx, open, st.size+1)
		}
		if err != nil {
			return fmt.Errorf("look for checkpoint %d: %w", st.size, err)
		}
		if !same {
			return &tamperedError{reason: fmt.Sprintf("the checkpoint over %d entries is not the one that was signed", st.size)}
		}
	}
	return nil
}

// unknown reports whether the head file has a note that a checkpoint is to replace and that was not compared
// with the record.
func (p places) unknown(c checkpoint) (bool, error) {
	if p.head == "" {
		return false, nil
	}
	n, err := readHead(p.head)
	if err != nil || n == "" || sizeOf(n) >= c.size { // writeHead keeps a larger one
		return false, err
	}
	seen := p.seen.Load()
	return seen == nil || *seen != n, nil
}

// sizeOf returns the number of entries in a note, or 0 if it is not a note. It does not
// check the signature.
func sizeOf(note string) int64 {
	s, err := unchecked(note)
	if err != nil {
		return 0
	}
	return s.size
}

// readHead returns the note in a head file, or "" if the file does not exist.
func readHead(path string) (string, error) {
	b, err := plainfile.Read(path, maxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// lastNote returns the last note of a checkpoint file, or "". whole reports whether the
// file ends with a complete line.
func lastNote(path string) (note string, whole bool, err error) {
	f, err := plainfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, plainfile.ErrNotRegular) { // there is nothing to compare; writing reports the error
		return "", true, nil
	}
	if err != nil {
		return "", false, err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	end := make([]byte, min(fi.Size(), 4*maxNote))
	if n, err := f.ReadAt(end, fi.Size()-int64(len(end))); err != nil && !errors.Is(err, io.EOF) || n != len(end) {
		return "", false, errors.Join(err, fmt.Errorf("%s changed while it was read", path))
	}
	text := string(end)
	whole = text == "" || strings.HasSuffix(text, "\n")
	if notes := splitNotes(text); len(notes) > 0 {
		note = notes[len(notes)-1]
		if !strings.HasSuffix(note, "\n") && len(notes) > 1 {
			note = notes[len(notes)-2]
		}
	}
	return note, whole, nil
}

// splitNotes splits the text of a checkpoint file into notes. Text between notes is
// returned like a note.
func splitNotes(text string) []string {
	var notes []string
	start := 0
	for at := 0; at < len(text); {
		line, _, whole := strings.Cut(text[at:], "\n")
		end := at + len(line)
		if whole {
			end++
		}
		if (line == originCheckpoint || line == originFault) && at > start {
			notes, start = append(notes, text[start:at]), at
		}
		if strings.HasPrefix(line, "— ") {
			notes, start = append(notes, text[start:end]), end
		}
		at = end
	}
	if start < len(text) {
		notes = append(notes, text[start:])
	}
	return notes
}
