package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// originFault is the first line of a finding's text.
const originFault = "sandboxmcp audit fault v1"

const (
	maxFinding = 4 * maxNote // larger than any signed finding, in bytes
	maxReason  = 300         // bytes of a finding's reason
)

// finding is what a server has found wrong with the record. Its signed text is kept outside the database. Without
// it, a server that starts later would not know of entries that left no trace there.
type finding struct {
	entryPlace // the entry that is missing; the zero value if there is none

	at     time.Time
	reason string
}

func (f finding) text() string {
	return originFault + "\n" + strconv.FormatInt(f.position, 10) + "\n" + cmp.Or(f.hash, "-") + "\ntime " + formatTime(f.at) + "\nreason " + strconv.Quote(f.reason) + "\n"
}

func isFinding(note string) bool { return strings.HasPrefix(note, originFault+"\n") }

// openFinding checks the signature of a finding's note and returns the finding.
func openFinding(open func(string) (string, error), signed string) (f finding, err error) {
	text, err := open(signed)
	if err != nil {
		return f, err
	}
	lines := strings.Split(text, "\n")
	bad := errors.New("its text is not a statement about a fault of the audit")
	if len(lines) != 6 {
		return f, bad
	}
	var err2, err3 error
	f.position, err = strconv.ParseInt(lines[1], 10, 64)
	f.at, err2 = time.Parse("time "+timeFormat, lines[3])
	f.reason, err3 = strconv.Unquote(strings.TrimPrefix(lines[4], "reason "))
	if lines[2] != "-" {
		f.hash = lines[2]
	}
	if errors.Join(err, err2, err3) != nil || f.text() != text {
		return f, bad
	}
	return f, nil
}

// faultFile returns the path of the file with the finding. It is beside the head file, which only the server's user
// can write to.
func (p places) faultFile() string {
	if p.head == "" {
		return ""
	}
	return strings.TrimSuffix(p.head, ".head") + ".fault"
}

// readFault returns the note in the file with the finding, or "" if there is none.
func (p places) readFault() (string, error) {
	path := p.faultFile()
	if path == "" {
		return "", nil
	}
	b, err := plainfile.Read(path, maxFinding)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, plainfile.ErrNotRegular), errors.As(err, new(*plainfile.TooLargeError)), err == nil && len(b) == 0:
		return "it is not a note", nil // no key has signed that
	}
	return string(b), err
}

// found fails with a [*tamperedError] if a server has kept a finding, or something is in its place.
func (p places) found(open func(string) (string, error)) error {
	note, err := p.readFault()
	if err != nil || note == "" {
		return err
	}
	return foundIn(p.faultFile(), open, note)
}

// foundAnywhere is found, and also looks at the end of the second place. Findings follow all other notes there.
func (p places) foundAnywhere(open func(string) (string, error)) error {
	if err := p.found(open); err != nil || p.second == "" {
		return err
	}
	note, _, err := lastNote(p.second)
	if err != nil || !isFinding(note) {
		return err
	}
	return foundIn(p.second, open, note)
}

// foundIn returns the [*tamperedError] for the note of a finding in a file.
func foundIn(path string, open func(string) (string, error), note string) error {
	f, err := openFinding(open, note)
	if err != nil {
		return &tamperedError{reason: fmt.Sprintf("the statement about a fault in %s is not ours: %v", path, err), kept: true}
	}
	return &tamperedError{
		reason: fmt.Sprintf("%s. A server found that at %s; its statement is in %s", f.reason, f.at.Format(time.RFC3339), path),
		at:     f.entryPlace, since: f.at, kept: true,
	}
}

// Found returns an error that says what a server has found wrong with a record and kept outside the database, or
// nil. open checks the note; the paths are those of [Config].
func Found(open func(note string) (text string, err error), headFile, checkpointFile string) error {
	return places{head: headFile, second: checkpointFile}.foundAnywhere(open)
}

// findings keeps the first finding of this process.
type findings struct {
	places places
	signer Signer
	now    func() time.Time
	log    *slog.Logger

	mu   sync.Mutex
	kept bool
	told bool // the log has that it could not be kept
}

// keep writes a finding to each place that has none, if the record is of this key. It returns once the files are on the disk. If it fails, the
// caller tries again later.
func (f *findings) keep(found *tamperedError) error {
	if f == nil || found.kept || f.places.none() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept || !f.places.ours(f.signer.OpenNote) {
		return nil
	}
	reason := strings.ToValidUTF8(found.reason[:min(len(found.reason), maxReason)], "")
	kept := finding{found.at, f.now().UTC(), reason}
	var note string
	err := checkTime(kept.at)
	if err == nil {
		note, err = f.signer.Note(kept.text())
	}
	if err == nil {
		err = errors.Join(f.places.keepFault(note), f.places.keepSecondFault(note))
	}
	f.kept = err == nil
	if err != nil && !f.told {
		f.told = true
		f.log.Error("the fault of the audit cannot be written to the files outside the database; trying again. Until then a restart forgets it", "fault", found, "error", err)
	}
	return err
}

// ours reports whether the newest checkpoint outside the database is of this key, if there is one. A server that was
// started with another key finds a fault of every record, and keeps nothing: its statement would stop the
// servers that have the right key.
func (p places) ours(open func(string) (string, error)) bool {
	note := ""
	if p.head != "" {
		note, _ = readHead(p.head) // without one the second place decides
	}
	if note == "" && p.second != "" {
		note, _, _ = lastNote(p.second)
	}
	if note == "" || isFinding(note) {
		return true
	}
	_, err := openStatement(open, originCheckpoint, note)
	return err == nil
}

// keepFault writes the file with the finding, unless it exists.
func (p places) keepFault(note string) error {
	path := p.faultFile()
	if path == "" {
		return nil
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := replaceFile(path, note, true); err != nil {
		return err
	}
	if d, err := os.Open(filepath.Dir(path)); err == nil { // not every system can sync a directory
		_ = errors.Join(d.Sync(), d.Close())
	}
	return nil
}

// keepSecondFault appends a finding to the second place, unless it ends with one.
func (p places) keepSecondFault(note string) error {
	if p.second == "" {
		return nil
	}
	last, whole, err := lastNote(p.second)
	if err != nil || isFinding(last) {
		return err
	}
	return p.appendSecond(note, whole)
}

// outsideFault reports the finding of a server in the file beside the head file.
func (v *verifier) outsideFault() error {
	p := places{head: v.with.HeadFile}
	note, err := p.readFault()
	if err == nil && note != "" {
		v.finding("the statement in "+p.faultFile(), note)
	}
	return err
}

// finding adds what a server has found to the faults.
func (v *verifier) finding(where, note string) {
	if v.with.Open == nil {
		v.unopened = true
		return
	}
	f, err := openFinding(v.with.Open, note)
	if err != nil {
		v.fault(kindCheckpoint, place{}, where+": "+err.Error())
		return
	}
	if v.findings == nil {
		v.findings = map[finding]bool{}
	}
	if !v.findings[f] {
		v.findings[f] = true
		v.fault(kindFound, place{row: f.position}, fmt.Sprintf("a server found at %s: %s; see %s", f.at.Format(time.RFC3339), f.reason, where))
	}
}
