package audit_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// lose lets a server find that its entry in row 31 was removed, and ends it.
func lose(t *testing.T, dir string, change ...func(*audit.Config)) (reason string) {
	t.Helper()
	filled(t, dir)
	r := openSealed(t, dir, change...)
	r.append(t, "a", 1)
	alter(t, dir, `DELETE FROM audit WHERE position > 30`)
	r.tells(t, "row 31")
	if r.cfg.HeadFile != "" { // also after kill -9
		if _, err := os.Stat(faultOf(r)); err != nil {
			t.Error(err)
		}
	}
	reason = r.l.Signing().Reason
	r.close(t)
	return reason
}

// faultOf returns the path of the statement that a server leaves.
func faultOf(r *sealed) string { return strings.TrimSuffix(r.cfg.HeadFile, ".head") + ".fault" }

// found returns the faults of a report that a server has found.
func found(rep sandboxmcp.AuditReport) (all []sandboxmcp.AuditFault) {
	for _, f := range rep.Faults {
		if f.Kind == "found" {
			all = append(all, f)
		}
	}
	return all
}

// A restart does not forget that entries without a checkpoint were removed, whichever of the files is left.
func TestFindingOutlivesTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*audit.Config)
		check  func(*audit.Evidence)
	}{
		"in both files":       {func(*audit.Config) {}, func(*audit.Evidence) {}},
		"no second place":     {func(c *audit.Config) { c.CheckpointFile = "" }, func(e *audit.Evidence) { e.CheckpointFile = "" }},
		"only a second place": {func(c *audit.Config) { c.HeadFile = "" }, alone},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			reason := lose(t, dir, c.change)
			for range 2 {
				r := openSealed(t, dir, c.change)
				if s := r.l.Signing(); s.Signed || !strings.HasPrefix(s.Reason, reason) || s.Since == nil {
					t.Errorf("after a restart: got %+v, want %q", s, reason)
				}
				r.append(t, "a", 130) // recorded all the same
				r.close(t)
			}
			rep := check(t, dir, second(dir), c.check)
			if all := found(rep); rep.OK || len(all) != 1 || all[0].Row != 31 || !strings.Contains(all[0].Reason, "row 31, which a server has appended") {
				t.Errorf("got %+v, want one fault of row 31 that a server has found", rep.Faults)
			}
			if rep.Checkpoints != 3 || rep.Head.Size != 30 {
				t.Errorf("got %d checkpoints, the newest over %d entries: want 3 and 30", rep.Checkpoints, rep.Head.Size)
			}
		})
	}
}

// A new record begins once database and files were moved away.
func TestNewRecordAfterAFinding(t *testing.T) {
	dir, kept := t.TempDir(), t.TempDir()
	lose(t, dir)
	if all, err := filepath.Glob(filepath.Join(dir, "*.fault")); err != nil || len(all) != 1 {
		t.Fatalf("got %v and %v, want one statement", all, err)
	}
	all, err := os.ReadDir(dir)
	for _, e := range all {
		err = errors.Join(err, os.Rename(filepath.Join(dir, e.Name()), filepath.Join(kept, e.Name())))
	}
	if err != nil {
		t.Fatal(err)
	}
	if storetest.Postgres() {
		storetest.Remove(t, dir)
	}
	r := openSealed(t, dir)
	r.append(t, "a", 2)
	r.soundly(t)
}

// A second server of the state directory stops with its next checkpoint.
func TestFindingStopsOtherServers(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	other := openSealed(t, dir)
	defer other.close(t)
	other.append(t, "b", 1)
	testkit.Until(t, "the other server signs", func() bool { return check(t, dir).Head.Size == 31 })
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	alter(t, dir, `DELETE FROM audit WHERE position > 31`)
	r.tells(t, "row 32")
	r.close(t)
	other.append(t, "b", 1)
	other.tells(t, "row 32")
	if rep := check(t, dir, second(dir)); rep.Head.Size != 31 {
		t.Errorf("the newest checkpoint is over %d entries, want 31", rep.Head.Size)
	}
}

// What is in the place of the statement and is not one refuses signing as well.
func TestForgedFindings(t *testing.T) {
	forged, err := keeper{"another"}.Note("sandboxmcp audit fault v1\n3\n-\ntime 2031-02-03T04:05:06.000000000Z\nreason \"none\"\n")
	if err != nil {
		t.Fatal(err)
	}
	ofCheckpoint, err := ours.Note("sandboxmcp audit checkpoint v1\n3\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\ntime 2031-02-03T04:05:06.000000000Z\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"another key": forged, "another kind": ofCheckpoint, "empty": "", "large": strings.Repeat("x", 1<<20)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			r := openSealed(t, dir)
			r.close(t)
			if err := os.WriteFile(faultOf(r), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r = openSealed(t, dir)
			defer r.close(t)
			if s := r.l.Signing(); s.Signed || !strings.Contains(s.Reason, faultOf(r)) {
				t.Errorf("got %+v, want no signing and the file", s)
			}
			if rep := check(t, dir); rep.OK {
				t.Error("the record is called sound")
			}
		})
	}
}

// A statement that cannot be written changes nothing else. It is written as soon as it can be.
func TestFindingThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	places := t.TempDir()
	gone := filepath.Join(places, "gone")
	r := openSealed(t, dir, func(c *audit.Config) { c.HeadFile, c.CheckpointFile = filepath.Join(gone, "x.head"), "" })
	r.append(t, "a", 1)
	alter(t, dir, `DELETE FROM audit WHERE position > 30`)
	r.tells(t, "row 31")
	r.append(t, "a", 2)
	if _, err := os.Stat(faultOf(r)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no file", err)
	}
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	r.close(t)
	if _, err := os.Stat(faultOf(r)); err != nil {
		t.Error(err)
	}
}

// A checkpoint that was committed and is in no file yet is removed with its entries.
func TestFindingOfAMissingCheckpoint(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir, func(c *audit.Config) { c.HeadFile, c.CheckpointFile = filepath.Join(dir, "other.head"), "" })
	r.append(t, "a", 1)
	testkit.Until(t, "the entry is signed", func() bool { return check(t, dir).Head.Size == 31 })
	testkit.Until(t, "the head file is there", func() bool { _, err := os.Stat(r.cfg.HeadFile); return err == nil })
	if err := os.Remove(r.cfg.HeadFile); err != nil { // as if the process had ended before it was written
		t.Fatal(err)
	}
	alter(t, dir, `DELETE FROM audit WHERE position > 30; DELETE FROM audit_checkpoints WHERE size > 30`)
	r.append(t, "a", 1)
	testkit.Until(t, "the server tells", func() bool { return !r.l.Signing().Signed })
	reason := r.l.Signing().Reason
	r.close(t)
	r = openSealed(t, dir, func(c *audit.Config) { *c = r.cfg })
	if s := r.l.Signing(); s.Signed || !strings.HasPrefix(s.Reason, reason) {
		t.Errorf("after a restart: got %+v, want %q", s, reason)
	}
	r.close(t)
}

// A server that was started with another key leaves no statement, which would stop the servers with the right one.
func TestServerWithAnotherKeyKeepsNoFinding(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir, func(c *audit.Config) { c.Signer = keeper{"another"} })
	testkit.Until(t, "the server tells", func() bool {
		r.append(t, "a", 1)
		return !r.l.Signing().Signed
	})
	r.close(t)
	if _, err := os.Stat(faultOf(r)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no statement", err)
	}
}

// A row that no server has appended stops the signing. Removed together with all that follows, it is still known.
func TestFindingOfARemovedForgery(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	r := openSealed(t, dir)
	r.append(t, "a", 1)
	alter(t, dir, `UPDATE audit SET mac = 'x' WHERE position = 31`)
	testkit.Until(t, "the server tells", func() bool { return !r.l.Signing().Signed })
	r.append(t, "a", 3)
	r.close(t)
	alter(t, dir, `DELETE FROM audit WHERE position > 30`)
	r = openSealed(t, dir)
	if s := r.l.Signing(); s.Signed || !strings.Contains(s.Reason, "row 31 was not appended by a server") {
		t.Errorf("after a restart: got %+v, want the fault of row 31", s)
	}
	r.close(t)
	if rep := check(t, dir); rep.OK || len(found(rep)) != 1 {
		t.Errorf("got %+v, want what the server has found", rep.Faults)
	}
}

// A fault that the dropping of old entries finds ends the signing. Nothing is dropped after a fault.
func TestFindingOfDrop(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	alter(t, dir, `UPDATE audit SET detail = 'x' WHERE position = 4`)
	r := openSealed(t, dir)
	if n, err := r.l.Drop(t.Context(), time.Nanosecond); n != 0 || err == nil {
		t.Errorf("got %d and %v, want an error", n, err)
	}
	if s := r.l.Signing(); s.Signed || !strings.Contains(s.Reason, "row 4 ") {
		t.Errorf("got %+v, want the fault of row 4", s)
	}
	if n, err := r.l.Drop(t.Context(), time.Nanosecond); n != 0 || err != nil {
		t.Errorf("after that: got %d and %v, want nothing", n, err)
	}
	r.close(t)
	if rep := check(t, dir); rep.OK || rep.Entries != 30 || len(found(rep)) != 1 {
		t.Errorf("got %d entries and %+v, want 30 and what the server has found", rep.Entries, rep.Faults)
	}
}

// If dropping old entries finds a fault that cannot be written to its file at once, the server writes it as soon as it
// can, also if no further entry is added.
func TestFindingOfDropThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	alter(t, dir, `UPDATE audit SET detail = 'x' WHERE position = 4`)
	gone := filepath.Join(t.TempDir(), "gone")
	r := openSealed(t, dir, func(c *audit.Config) { c.HeadFile, c.CheckpointFile = filepath.Join(gone, "x.head"), "" })
	defer r.close(t)
	if n, err := r.l.Drop(t.Context(), time.Nanosecond); n != 0 || err == nil {
		t.Errorf("got %d and %v, want an error", n, err)
	}
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the fault is written to its file", func() bool { _, err := os.Stat(faultOf(r)); return err == nil })
}
