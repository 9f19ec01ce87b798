package cli_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// killed is a state directory whose servers are killed under load.
type killed struct {
	t       *testing.T
	program string
	state   string
	second  string
	url     string         // of a PostgreSQL database; empty: SQLite
	acked   map[string]int // what was answered: ids of requests and sessions, and how many entries each has to have
}

// TestKilledUnderLoad: a server is killed with -9 in the middle of its work,
// twenty times on one state directory. Each time the record verifies, and nothing
// that was answered is missing in it.
func TestKilledUnderLoad(t *testing.T) {
	testkit.Sandbox(t, canRun(), "this machine cannot build a sandbox")
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := &killed{t: t, program: filepath.Join(dir, "sandboxmcp"), state: filepath.Join(dir, "state"), second: filepath.Join(dir, "second"), acked: map[string]int{}}
	if err := os.Symlink(self, k.program); err != nil {
		t.Fatal(err)
	}
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	start := time.Now()
	done := 0
	for ; done < rounds && time.Since(start) < time.Minute; done++ {
		k.round()
		k.check()
	}
	t.Logf("killed %d times in %v, %d acts were answered", done, time.Since(start).Round(time.Second), len(k.acked))
	if done < 4 || len(k.acked) < done {
		t.Errorf("got %d kills and %d answered acts, want more of both", done, len(k.acked))
	}
	// And it goes on, clearing away what the killed ones have left.
	out, err := k.command(t.Context(), "run", "-c", "print('on')").Output()
	if err != nil || string(out) != "on\n" {
		t.Errorf("afterwards: got %q and %v, want on", out, err)
	}
	k.check()
}

func (k *killed) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.program, args...)
	cmd.Env = []string{
		"HOME=" + filepath.Dir(k.state), "PATH=" + os.Getenv("PATH"), "SANDBOXMCP_STATE_DIR=" + k.state, "TMPDIR=" + os.Getenv("TMPDIR"),
		"SANDBOXMCP_AUDIT_CHECKPOINT_FILE=" + k.second, "SANDBOXMCP_DATABASE_URL=" + k.url,
	}
	cmd.Stderr = io.Discard
	return cmd
}

// round starts a server, gives it work, kills it at an arbitrary moment, and takes in the
// answers that it sent before.
func (k *killed) round() {
	cmd := k.command(context.WithoutCancel(k.t.Context()), "serve")
	in, err := cmd.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	var write sync.Mutex
	send := func(id int64, method string, params map[string]any) {
		line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
		if err != nil {
			return
		}
		write.Lock()
		defer write.Unlock()
		_, _ = fmt.Fprintf(in, "%s\n", line) // it may be dead
	}
	var next atomic.Int64
	call := func() {
		id := next.Add(1)
		if id%9 == 0 {
			send(id, "tools/call", map[string]any{"name": "create_session", "arguments": map[string]any{"language": "shell"}})
			return
		}
		send(id, "tools/call", map[string]any{"name": "execute_code", "arguments": map[string]any{"language": "shell", "code": "echo x > f"}})
	}
	send(0, "initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}})
	begun := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() { // what was written before it died is read after it, too
			var m struct {
				ID     *int64
				Result struct{ StructuredContent map[string]any }
			}
			if json.Unmarshal(s.Bytes(), &m) != nil || m.ID == nil {
				continue
			}
			if *m.ID == 0 {
				for range 8 {
					call()
				}
				close(begun)
				continue
			}
			k.answered(m.Result.StructuredContent)
			call()
		}
	}()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	select {
	case <-begun:
		wait, err := rand.Int(rand.Reader, big.NewInt(int64(900*time.Millisecond)))
		if err != nil {
			k.t.Error(err)
		}
		time.Sleep(time.Duration(wait.Int64())) // the kill must come at an arbitrary moment
	case <-late.C:
		k.t.Error("got no sign of a beginning, want a server that begins")
	}
	if err := cmd.Process.Kill(); err != nil {
		k.t.Error(err)
	}
	<-read
	_ = cmd.Wait() // killed
	_ = in.Close()
}

// answered notes what has to be on record from now on.
func (k *killed) answered(body map[string]any) {
	if id, ok := body["request_id"].(string); ok && body["status"] == "completed" {
		k.acked[id] = 3 // intent, outcome, and that its file was signed
	} else if id, ok := body["id"].(string); ok && body["error"] == nil {
		k.acked[id] = 1
	}
}

// check verifies the record and looks for everything that was answered.
func (k *killed) check() {
	k.t.Helper()
	public, err := sign.PublicKey(k.state)
	if err != nil {
		k.t.Fatal(err)
	}
	signer := func() (audit.Signer, error) { return sign.Read(k.state) }
	at := store.Config{Dir: k.state, Postgres: k.url, Notes: store.Makers(audit.Notes(signer), artifact.Notes()), NotesKey: audit.NotesKey(signer)}
	v, err := store.Look(k.t.Context(), at)
	if err != nil || v == nil {
		k.t.Fatalf("got %v and %v for the database, want it open", v, err)
	}
	defer func() {
		if err := v.Close(); err != nil {
			k.t.Error(err)
		}
	}()
	key, err := sign.Read(k.state)
	if err != nil {
		k.t.Fatal(err)
	}
	with := audit.Evidence{
		Signer:   key,
		Open:     func(note string) (string, error) { return sign.OpenNote(public, note) },
		HeadFile: audit.HeadFile(k.state, store.Path(at)), CheckpointFile: k.second,
	}
	rep, err := audit.Verify(k.t.Context(), v.DB(), with)
	if err != nil || !rep.OK {
		k.t.Fatalf("got faults %+v and %v, want a sound record", rep.Faults, err)
	}
	rows, err := v.DB().QueryContext(k.t.Context(), `SELECT request_id || CASE request_id WHEN '' THEN session_id ELSE '' END, count(*) FROM audit GROUP BY 1`)
	if err != nil {
		k.t.Fatal(err)
	}
	defer rows.Close()
	have := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			k.t.Fatal(err)
		}
		have[id] = n
	}
	if err := rows.Err(); err != nil {
		k.t.Fatal(err)
	}
	missing := 0
	for id, want := range k.acked {
		if have[id] < want {
			missing++
		}
	}
	if missing > 0 {
		k.t.Fatalf("%d acts were answered: got %d of them not on record, want none", len(k.acked), missing)
	}
}
