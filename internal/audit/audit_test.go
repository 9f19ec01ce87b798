package audit_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// childEnv makes the test binary a second process: "<dir> <actor> <entries>". The actor signer signs.
const childEnv = "AUDIT_TEST_CHILD"

func TestMain(m *testing.M) { os.Exit(testkit.RunOrChild(m, childEnv, child)) }

// child appends entries and prints the id of each that was acknowledged.
func child(args string) (err error) {
	var dir, actor string
	var n int
	if _, err := fmt.Sscan(args, &dir, &actor, &n); err != nil {
		return err
	}
	s, err := store.Open(context.Background(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c := audit.Config{}
	if actor == "signer" {
		c.Signer, c.HeadFile = ours, audit.HeadFile(dir, s.Path())
	}
	l, err := audit.Open(context.Background(), s, c)
	if err != nil {
		return err
	}
	for i := range n {
		e := entry("default", i)
		if i%3 == 0 {
			e.Namespace = "other"
		}
		e.Actor = actor
		got, err := l.Append(context.Background(), e)
		if err != nil {
			return err
		}
		fmt.Println(got.ID)
	}
	return nil
}

func command(t *testing.T, dir, actor string, n int) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", childEnv, dir, actor, n))
	cmd.Stderr = os.Stderr
	return cmd
}

func open(tb testing.TB, dir string) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func entry(ns sandboxmcp.Namespace, i int) sandboxmcp.AuditEntry {
	code, ok, took := i%3, i%3 == 0, 12.5+float64(i)
	return sandboxmcp.AuditEntry{
		Namespace: ns, Action: "execute", Phase: sandboxmcp.PhaseOutcome, Actor: "mcp", Language: sandboxmcp.Python,
		RequestID: sandboxmcp.RequestID("r" + strconv.Itoa(i)), Detail: "python: exit=0 duration=12ms",
		ExitCode: &code, Success: &ok, DurationMS: &took,
		Usage:    &sandboxmcp.ResourceUsage{PeakRAMMB: 9.25, CPUSeconds: 0.011, PeakTasks: 1, WallSeconds: 0.02, MaxTasks: 160},
		Metadata: map[string]any{"code_sha256": strings.Repeat("ab", 32), "code_bytes": 12.0, "a": []any{"x", 1.5, nil, true}},
	}
}

// fill makes a log with n entries in the namespace.
func fill(tb testing.TB, s *store.Store, ns sandboxmcp.Namespace, n int) *audit.Log {
	tb.Helper()
	l := record(tb, s, nil)
	for i := range n {
		if _, err := l.Append(tb.Context(), entry(ns, i)); err != nil {
			tb.Fatal(err)
		}
	}
	return l
}

// chainReport is what became of the check of one namespace.
type chainReport struct {
	Entries int64
	Head    string
	Bad     *sandboxmcp.AuditFault // the first
}

// verify checks a record that is under no checkpoint.
func verify(t *testing.T, s *store.Store, ns sandboxmcp.Namespace) chainReport {
	t.Helper()
	rep, err := audit.Verify(t.Context(), s.DB(), audit.Evidence{Open: func(string) (string, error) { return "", errors.New("there is no key") }})
	if err != nil {
		t.Fatal(err)
	}
	c := chainReport{}
	for _, n := range rep.Namespaces {
		if n.Namespace == ns {
			c.Entries, c.Head = n.Entries, n.Hash
		}
	}
	for _, f := range rep.Faults {
		if f.Kind != "unsigned" && (f.Namespace == ns || f.Namespace == "") {
			c.Bad = &f
			break
		}
	}
	return c
}

// record is the record in s, which is not signed.
func record(tb testing.TB, s *store.Store, now func() time.Time) *audit.Log {
	tb.Helper()
	l, err := audit.Open(tb.Context(), s, audit.Config{Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// The hash is over the text that doc.go describes, written out here by hand.
func TestHashIsOverTheCanonicalForm(t *testing.T) {
	s := open(t, t.TempDir())
	at := time.Date(2031, 2, 3, 4, 5, 6, 700, time.FixedZone("x", 3600))
	l := record(t, s, func() time.Time { return at })
	code, ok, took := -1, false, 1e21
	got, err := l.Append(t.Context(), sandboxmcp.AuditEntry{
		ID: "id", Namespace: "ns", Action: "execute", Phase: "outcome", RequestID: "r", Language: "python",
		ExitCode: &code, Success: &ok, DurationMS: &took, Actor: "mcp",
		Detail: "a\"b\\c\n\x01\x7f<é\u2028\xff",
		Usage:  &sandboxmcp.ResourceUsage{PeakRAMMB: 1.5, CPUSeconds: 1e-7, PeakTasks: 2, WallSeconds: 3, MaxTasks: 4},
		Metadata: map[string]any{
			"\U0001F600": 1, "\uFFFD": 2, "b": map[string]any{"z": nil, "y": []int{1}}, "a": "<",
			"big": int64(math.MaxInt64), "bigger": uint64(math.MaxUint64), "half": -0.5, "zero": math.Copysign(0, -1),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"action":"execute","actor":"mcp","detail":"a\"b\\c\n\u0001` + "\x7f<é\u2028\uFFFD" + `","duration_ms":1e+21,"exit_code":-1,"id":"id","language":"python",` +
		`"metadata":{"a":"<","b":{"y":[1],"z":null},"big":9223372036854775807,"bigger":18446744073709551615,"half":-0.5,"zero":0,"` + "\U0001F600" + `":1,"` + "\uFFFD" + `":2},` +
		`"namespace":"ns","phase":"outcome","prev":"` + strings.Repeat("0", 64) + `","request_id":"r",` +
		`"resource_usage":{"cpu_seconds":1e-7,"max_tasks":4,"peak_ram_mb":1.5,"peak_tasks":2,"wall_seconds":3},` +
		`"seq":1,"session_id":"","success":false,"timestamp":"2031-02-03T03:05:06.000000700Z"}`
	sum := sha256.Sum256([]byte(want))
	if want := hex.EncodeToString(sum[:]); got.Hash != want {
		t.Errorf("hash: got %s, want %s", got.Hash, want)
	}
	if rep := verify(t, s, "ns"); rep.Bad != nil || rep.Entries != 1 || rep.Head != got.Hash {
		t.Errorf("verify: got %+v", rep)
	}
}

func TestChain(t *testing.T) {
	s := open(t, t.TempDir())
	l := record(t, s, nil)
	prev := map[sandboxmcp.Namespace]string{"a": strings.Repeat("0", 64), "b": strings.Repeat("0", 64)}
	for i := range 10 {
		ns := sandboxmcp.Namespace([]string{"a", "b"}[i%2])
		e, err := l.Append(t.Context(), entry(ns, i))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := e.Seq, int64(i/2+1); got != want {
			t.Errorf("seq: got %d, want %d", got, want)
		}
		if e.Prev != prev[ns] {
			t.Errorf("entry %d of %s: got another prev, want the hash of the entry before", e.Seq, ns)
		}
		if e.ID == "" || e.Timestamp.IsZero() {
			t.Errorf("got id %q, timestamp %v; want both set", e.ID, e.Timestamp)
		}
		prev[ns] = e.Hash
	}
	for ns, head := range prev {
		if rep := verify(t, s, ns); rep.Bad != nil || rep.Entries != 5 || rep.Head != head {
			t.Errorf("%s: got %+v", ns, rep)
		}
	}
}

// Callers may send any bytes. Bytes that a database cannot store are replaced before the text is hashed.
func TestEntriesOfAnyBytesVerify(t *testing.T) {
	s := open(t, t.TempDir())
	l := record(t, s, nil)
	e := entry("a", 0)
	e.Detail, e.Actor, e.SessionID = "a\x00b", "\xff\x00", "\x00"
	e.Metadata = map[string]any{"k\x00": "v\x00\xff"}
	if _, err := l.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	page, err := l.List(t.Context(), "a", sandboxmcp.AuditQuery{Action: "no\x00ne"})
	if err != nil || page.Total != 0 {
		t.Errorf("an action of odd bytes: got %d entries, %v; want none", page.Total, err)
	}
	page, err = l.List(t.Context(), "a", sandboxmcp.AuditQuery{})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Detail != "a\ufffdb" {
		t.Errorf("got %+v, %v", page.Entries, err)
	}
	if rep := verify(t, s, "a"); rep.Bad != nil || rep.Entries != 1 {
		t.Errorf("got %+v", rep)
	}
}

// Entries of one Update are chained too, and none stays when it fails.
func TestOpInOneUpdate(t *testing.T) {
	s := open(t, t.TempDir())
	l := record(t, s, nil)
	a, b, c := entry("default", 0), entry("default", 1), entry("default", 2)
	if err := s.Update(t.Context(), l.Op(&a), l.Op(&b)); err != nil {
		t.Fatal(err)
	}
	if a.Seq != 1 || b.Seq != 2 || b.Prev != a.Hash {
		t.Errorf("got %d, %d", a.Seq, b.Seq)
	}
	c.Phase = "perhaps"
	d := entry("default", 3)
	if err := s.Update(t.Context(), l.Op(&d), l.Op(&c)); err == nil {
		t.Error("an entry with an unknown phase: got no error, want a refusal")
	}
	if rep := verify(t, s, "default"); rep.Entries != 2 || rep.Bad != nil {
		t.Errorf("got %+v", rep)
	}
	// What was undone is not where the next one goes on.
	for i, ns := range []sandboxmcp.Namespace{"default", "other", "default"} {
		if e, err := l.Append(t.Context(), entry(ns, i)); err != nil || e.Seq != []int64{3, 1, 4}[i] {
			t.Errorf("got %d and %v", e.Seq, err)
		}
	}
	if rep := verify(t, s, "default"); rep.Entries != 4 || rep.Bad != nil {
		t.Errorf("got %+v", rep)
	}
}

func TestAppendRefuses(t *testing.T) {
	s := open(t, t.TempDir())
	l := record(t, s, nil)
	nan := math.NaN()
	for name, change := range map[string]func(*sandboxmcp.AuditEntry){
		"no action":    func(e *sandboxmcp.AuditEntry) { e.Action = "" },
		"no namespace": func(e *sandboxmcp.AuditEntry) { e.Namespace = "" },
		"phase":        func(e *sandboxmcp.AuditEntry) { e.Phase = "" },
		"duration":     func(e *sandboxmcp.AuditEntry) { e.DurationMS = &nan },
		"metadata":     func(e *sandboxmcp.AuditEntry) { e.Metadata = map[string]any{"f": func() {}} },
		"usage":        func(e *sandboxmcp.AuditEntry) { e.Usage.CPUSeconds = nan },
	} {
		e := entry("default", 0)
		change(&e)
		if _, err := l.Append(t.Context(), e); err == nil {
			t.Errorf("%s: got no error, want a refusal", name)
		}
	}
	if rep := verify(t, s, "default"); rep.Entries != 0 {
		t.Errorf("got %d entries, want none", rep.Entries)
	}
}

func TestRecordIsAppendOnly(t *testing.T) {
	statements := []string{
		`UPDATE audit SET detail = 'x' WHERE seq = 1`, `DELETE FROM audit WHERE seq = 2`, `DELETE FROM audit`,
		`INSERT INTO audit (position, mac, ` + columns + `) SELECT position, mac, ` + columns + ` FROM audit WHERE seq = 1
			ON CONFLICT (position) DO UPDATE SET detail = 'x'`,
	}
	checkpoints := []string{`UPDATE audit_checkpoints SET note = 'x'`, `DELETE FROM audit_checkpoints`}
	if storetest.Postgres() {
		checkpoints = append(checkpoints, `TRUNCATE audit_checkpoints`)
		statements = append(statements, `TRUNCATE audit`,
			`INSERT INTO audit SELECT * FROM audit WHERE seq = 1 ON CONFLICT (namespace, seq) DO UPDATE SET detail = 'x'`)
	} else {
		statements = append(statements, `INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE seq = 1`,
			`INSERT OR REPLACE INTO audit (rowid, mac, `+columns+`) SELECT rowid, mac, `+strings.Replace(columns, "seq", "3", 1)+` FROM audit WHERE seq = 1`)
	}
	s := open(t, t.TempDir())
	fill(t, s, "default", 2)
	refused := func(statements []string) {
		for _, statement := range statements {
			err := s.Update(t.Context(), execute(statement))
			if err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: got %v, want a refusal", statement, err)
			}
		}
	}
	refused(statements)
	if rep := verify(t, s, "default"); rep.Entries != 2 || rep.Bad != nil {
		t.Errorf("got %+v", rep)
	}
	if err := s.Update(t.Context(), execute(`INSERT INTO audit_checkpoints VALUES (?, ?, ?)`, 2, "note", []byte{0})); err != nil {
		t.Fatal(err)
	}
	refused(checkpoints)
}

const columns = `id, namespace, seq, timestamp, action, phase, request_id, session_id, language, exit_code, duration_ms, success, detail, actor, resource_usage, metadata, prev, hash`

func TestList(t *testing.T) {
	s := open(t, t.TempDir())
	at := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	l := record(t, s, func() time.Time { at = at.Add(time.Second); return at })
	want := make([]sandboxmcp.AuditEntry, 6)
	for i := range want {
		e := entry("default", i)
		if i == 2 {
			e.Action, e.Usage, e.ExitCode, e.Success, e.DurationMS, e.Metadata = "create_session", nil, nil, nil, nil, map[string]any{}
		}
		var err error
		if want[len(want)-1-i], err = l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Append(t.Context(), entry("other", 0)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		query sandboxmcp.AuditQuery
		want  []sandboxmcp.AuditEntry
		total int
	}{
		{"all, newest first", sandboxmcp.AuditQuery{}, want, 6},
		{"limit", sandboxmcp.AuditQuery{Limit: 2}, want[:2], 6},
		{"action", sandboxmcp.AuditQuery{Action: "create_session"}, want[3:4], 1},
		{"runs", sandboxmcp.AuditQuery{Action: audit.Execute}, slices.Delete(slices.Clone(want), 3, 4), 5},
		{"runs after a seq", sandboxmcp.AuditQuery{Action: audit.Execute, After: 2}, want[:3], 3},
		{"runs since", sandboxmcp.AuditQuery{Action: audit.Execute, Since: want[4].Timestamp}, []sandboxmcp.AuditEntry{want[0], want[1], want[2], want[4]}, 4},
		{"action after a seq", sandboxmcp.AuditQuery{Action: "create_session", After: 2, Since: want[5].Timestamp}, want[3:4], 1},
		{"since", sandboxmcp.AuditQuery{Since: want[1].Timestamp}, want[:2], 2},
		{"since, later", sandboxmcp.AuditQuery{Since: want[1].Timestamp.Add(1)}, want[:1], 1},
		{"after a seq", sandboxmcp.AuditQuery{After: 4}, want[:2], 2},
		{"future", sandboxmcp.AuditQuery{Since: at.AddDate(900, 0, 0)}, []sandboxmcp.AuditEntry{}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := l.List(t.Context(), "default", tt.query)
			if err != nil {
				t.Fatal(err)
			}
			if got.Total != tt.total {
				t.Errorf("total: got %d, want %d", got.Total, tt.total)
			}
			if diff := cmp.Diff(tt.want, got.Entries); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := l.List(t.Context(), "", sandboxmcp.AuditQuery{}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("no namespace: got %v, want invalid_argument", err)
	}
	for _, bad := range []sandboxmcp.AuditQuery{{Limit: 1001}, {Limit: -1}} {
		if _, err := l.List(t.Context(), "default", bad); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%+v: got %v, want invalid_argument", bad, err)
		}
	}
}

func TestVerifyFindsTheFirstBadRow(t *testing.T) {
	tests := []struct {
		name, statement string
		seq             int64 // of the row that is named
		reason          string
	}{
		{"edit", `UPDATE audit SET action = 'exekute' WHERE seq = 4`, 4, "does not have the hash"},
		{"edit to null", `UPDATE audit SET exit_code = NULL WHERE seq = 4`, 4, "does not have the hash"},
		{"edit of a small number", `UPDATE audit SET success = 2 WHERE seq = 4`, 4, "neither 0 nor 1"},
		{"edit of time", `UPDATE audit SET timestamp = '2001-01-01T00:00:00.000000000Z' WHERE seq = 4`, 4, "does not have the hash"},
		{"space in metadata", `UPDATE audit SET metadata = metadata || ' ' WHERE seq = 4`, 4, "canonical"},
		{"member into metadata", `UPDATE audit SET metadata = metadata || ',"namespace":"x"' WHERE seq = 4`, 4, "canonical"},
		{"edit with its own hash", `UPDATE audit SET hash = '` + strings.Repeat("1", 64) + `' WHERE seq = 4`, 4, "does not have the hash"},
		{"delete in the middle", `DELETE FROM audit WHERE seq = 4`, 5, "entry 4 is missing"},
		{"delete the first", `DELETE FROM audit WHERE seq = 1`, 2, "entry 1 is missing"},
		{"delete and close the gap", `DELETE FROM audit WHERE seq = 4; UPDATE audit SET seq = seq - 1 WHERE seq > 4`, 4, "prev of entry 4"},
		{"reorder", `UPDATE audit SET seq = 100 WHERE seq = 4; UPDATE audit SET seq = 4 WHERE seq = 5; UPDATE audit SET seq = 5 WHERE seq = 100`, 5, "entry 4 is missing"},
		{"an entry again", `DROP INDEX audit_chain; INSERT INTO audit (` + columns + `) SELECT ` + columns + ` FROM audit WHERE seq = 8`, 8, "more than once"},
		{"an older one again", `DROP INDEX audit_chain; INSERT INTO audit (` + columns + `) SELECT ` + columns + ` FROM audit WHERE seq = 4`, 4, "stands after entry 8"},
		{"into another namespace", `UPDATE audit SET namespace = 'other' WHERE seq = 4`, 5, "entry 4 is missing"},
		{"another table", `ALTER TABLE audit RENAME TO old; CREATE TABLE audit AS SELECT * FROM old; UPDATE audit SET exit_code = 'four' WHERE seq = 4`, 0, "cannot be read"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "another table" {
				storetest.SQLite(t) // a column of PostgreSQL has one type
			}
			dir := t.TempDir()
			s := open(t, dir)
			fill(t, s, "default", 8)
			if rep := verify(t, s, "default"); rep.Bad != nil || rep.Entries != 8 {
				t.Fatalf("before: got %+v", rep)
			}
			storetest.Tamper(t, dir, tt.statement)
			rep := verify(t, s, "default")
			if rep.Bad == nil {
				t.Fatal("got no fault in the record, want one")
			}
			if tt.seq != 0 && rep.Bad.Seq != tt.seq || !strings.Contains(rep.Bad.Reason, tt.reason) || rep.Bad.Row == 0 {
				t.Errorf("got %+v, want entry %d, %q", *rep.Bad, tt.seq, tt.reason)
			}
		})
	}
}

func TestTwoProcessesMakeOneChain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	const each = 150
	a, b := command(t, dir, "a", each), command(t, dir, "b", each)
	if err := errors.Join(a.Start(), b.Start()); err != nil {
		t.Fatal(err)
	}
	fill(t, s, "default", 30) // and a third
	if err := errors.Join(a.Wait(), b.Wait()); err != nil {
		t.Fatal(err)
	}
	for ns, want := range map[sandboxmcp.Namespace]int64{"default": 2*each*2/3 + 30, "other": 2 * each / 3} {
		if rep := verify(t, s, ns); rep.Bad != nil || rep.Entries != want {
			t.Errorf("%s: got %+v, want %d entries", ns, rep, want)
		}
	}
	var changes int
	const q = `SELECT count(*) FROM audit x JOIN audit y ON y.namespace = x.namespace AND y.seq = x.seq + 1 WHERE x.actor <> y.actor`
	if err := s.DB().QueryRowContext(t.Context(), q).Scan(&changes); err != nil {
		t.Fatal(err)
	}
	if changes < 2 {
		t.Errorf("got %d changes between processes, want at least 2, or the test shows nothing", changes)
	}
}

func TestKilledProcessLeavesSoundChain(t *testing.T) {
	dir := t.TempDir()
	const n = 1000
	cmd := command(t, dir, "a", n)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Log(err)
			}
			break
		}
		if ids = append(ids, strings.TrimSpace(line)); len(ids) == n/2 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(ids) >= n {
		t.Fatalf("got %v after %d entries, want a process that was killed in the middle", err, len(ids))
	}
	s := open(t, dir)
	var total int64
	for _, ns := range []sandboxmcp.Namespace{"default", "other"} {
		rep := verify(t, s, ns)
		if rep.Bad != nil {
			t.Errorf("%s: got fault %+v, want none", ns, *rep.Bad)
		}
		total += rep.Entries
	}
	if got, most := int(total), len(ids)+1; got < len(ids) || got > most {
		t.Errorf("entries: got %d, %d were acknowledged", got, len(ids))
	}
	for _, id := range ids {
		var found int
		if err := s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM audit WHERE id = ?`, id).Scan(&found); err != nil || found != 1 {
			t.Fatalf("acknowledged entry %s: got %d rows, %v; want 1", id, found, err)
		}
	}
	fill(t, s, "default", 1) // and it goes on
}

func BenchmarkAppend(b *testing.B) {
	l := record(b, open(b, b.TempDir()), nil)
	e := entry("default", 1)
	all := []time.Duration{}
	for b.Loop() {
		t := time.Now()
		if _, err := l.Append(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(t))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "µs/p50")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1000, "µs/p99")
}

func BenchmarkVerify(b *testing.B) {
	s := open(b, b.TempDir())
	fill(b, s, "default", 1000)
	for b.Loop() {
		if rep, err := audit.Verify(b.Context(), s.DB(), audit.Evidence{}); err != nil || rep.Entries != 1000 {
			b.Fatal(rep, err)
		}
	}
}

// TestEntriesOfAnActionAreFoundByAnIndex: no query reads the entries of other actions, of
// which there may be a million.
func TestEntriesOfAnActionAreFoundByAnIndex(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, t.TempDir())
	for action, want := range map[string]string{"": "audit_chain", audit.Execute: "audit_chain", "create_session": "audit_action"} {
		count, list, args := audit.Listed("default", sandboxmcp.AuditQuery{Action: action})
		for what, q := range map[string]string{"count": count, "list": list} {
			rows, err := s.DB().QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+q, append(args, 10)[:len(args)+strings.Count(q, "LIMIT")]...)
			if err != nil {
				t.Fatal(err)
			}
			var plan []string
			for rows.Next() {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(step, "audit") && step != "SCAN CONSTANT ROW" {
					plan = append(plan, step)
				}
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
			for _, step := range plan {
				if !strings.Contains(step, "SEARCH") || !strings.Contains(step, "INDEX audit_") {
					t.Errorf("%s of %q: got %q, want a search by an index", what, action, step)
				}
			}
			if got := strings.Join(plan, "; "); !strings.Contains(got, want) {
				t.Errorf("%s of %q: got %q, want %s", what, action, got, want)
			}
		}
	}
}
