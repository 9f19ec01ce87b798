package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// otherProgram names a program that is tested in place of this one, with all settings of the environment, such
// as sandboxmcp-kube with a cluster. If there is an S3 server for tests, its servers share their files there.
// scripts/kube-test.sh -kills sets it.
const otherProgram = "SANDBOXMCP_TEST_PROGRAM"

// replica is one of several servers over HTTP that share a database and their keys.
type replica struct {
	killed

	port  int
	env   []string
	files bool // each server reads the files of the others

	mu     sync.Mutex // guards the fields below
	cmd    *exec.Cmd
	exited chan struct{}
}

// startReplicas starts servers that end with the test.
func startReplicas(t *testing.T, n int) []*replica {
	t.Helper()
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	testkit.Sandbox(t, canRun(), "this machine cannot build a sandbox")
	dir := t.TempDir()
	program := filepath.Join(dir, "sandboxmcp")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(cmp.Or(os.Getenv(otherProgram), self), program)
	}
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	files := false
	if os.Getenv(otherProgram) != "" {
		if files = os.Getenv(testkit.S3Env) != ""; files {
			bucket, _ := testkit.S3(t)
			t.Setenv("SANDBOXMCP_BLOB_URL", bucket)
		}
		env = os.Environ()
	}
	all := make([]*replica, n)
	for i := range all {
		home := filepath.Join(dir, fmt.Sprint(i))
		r := &replica{port: freePort(t), files: files, killed: killed{t: t, program: program, state: filepath.Join(home, "state"), second: filepath.Join(home, "second"), url: storetest.URL(dir), acked: map[string]int{}}}
		r.env = append(slices.Clone(env), fmt.Sprintf("SANDBOXMCP_PEER_ADDRESS=127.0.0.1:%d", freePort(t)), "SANDBOX_MAX_SESSIONS=100", "SANDBOXMCP_MAX_CONCURRENT=16")
		if i > 0 {
			r.env = append(r.env, "SANDBOXMCP_KEYS_FROM="+all[0].state)
		}
		all[i] = r
		t.Cleanup(func() {
			if r.cmd != nil {
				r.kill()
			}
		})
		r.start()
	}
	return all
}

// start starts the server and waits until it answers.
func (r *replica) start() {
	if err := os.MkdirAll(r.state, 0o700); err != nil {
		r.t.Error(err)
		return
	}
	cmd := r.command(context.WithoutCancel(r.t.Context()), "serve", "--transport", "http", "--no-auth", "--port", fmt.Sprint(r.port))
	cmd.Env = append(r.env, cmd.Env...)
	log, err := os.OpenFile(filepath.Join(filepath.Dir(r.state), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		cmd.Stderr = log
		err = cmd.Start()
		_ = log.Close()
	}
	if err != nil {
		r.t.Error(err)
		return
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	r.mu.Lock()
	r.cmd, r.exited = cmd, exited
	r.mu.Unlock()
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !ended(exited); time.Sleep(20 * time.Millisecond) {
		if a := r.ask(r.t.Context(), "GET", "/healthz", nil); a.status == http.StatusOK {
			return
		}
	}
	text, _ := os.ReadFile(log.Name())
	r.t.Errorf("got no answer of a server, want one; its log ends with\n%s", text[max(0, len(text)-2000):])
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// kill kills the server, unless it has ended.
func (r *replica) kill() {
	r.mu.Lock()
	cmd, exited := r.cmd, r.exited
	r.mu.Unlock()
	_ = cmd.Process.Kill()
	<-exited
}

// restart kills the server and starts it again.
func (r *replica) restart() {
	r.kill()
	r.start()
}

// answer is what a server answered. status is 0 if there is no whole answer.
type answer struct {
	status int
	body   map[string]any
	unsent bool // the server was not reached
}

func (a answer) code() string { s, _ := a.body["error"].(string); return s }

func (a answer) text(name string) string { s, _ := a.body[name].(string); return s }

func (r *replica) ask(ctx context.Context, method, path string, body any) answer {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Error(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", r.port, path), bytes.NewReader(text))
	if err != nil {
		r.t.Error(err)
		return answer{}
	}
	if body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := direct.Do(req)
	if err != nil {
		dial, ok := errors.AsType[*net.OpError](err)
		return answer{unsent: ok && dial.Op == "dial"}
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}
	}
	a := answer{status: res.StatusCode}
	_ = json.Unmarshal(data, &a.body) // some answers are no objects
	return a
}

// direct has a connection for each request, as clients behind a balancer have.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (r *replica) run(session, code string) answer {
	return r.ask(r.t.Context(), "POST", "/execute", map[string]any{"language": "python", "session_id": session, "code": code})
}

// TestReplicasShareSessions: a session of one server is used through the others, and is lost with its server.
func TestReplicasShareSessions(t *testing.T) {
	all := startReplicas(t, 3)
	if t.Failed() {
		t.FailNow()
	}
	made := all[0].ask(t.Context(), "POST", "/sessions", map[string]any{"language": "python"})
	id := made.text("session_id") + made.text("id")
	if made.status != http.StatusOK || id == "" {
		t.Fatalf("create: got %+v, want a session", made)
	}
	for i, r := range []*replica{all[0], all[1], all[2], all[1]} {
		if a := r.run(id, "n = globals().get('n', 0) + 1; print(n)"); strings.TrimSpace(a.text("stdout")) != fmt.Sprint(i+1) {
			t.Errorf("run %d: got %+v, want %d", i, a, i+1)
		}
	}
	named := all[1].run("shared", "x = 7")
	if again := all[2].run("shared", "print(x)"); strings.TrimSpace(again.text("stdout")) != "7" {
		t.Errorf("a session of a name: got %+v and then %+v, want one session", named, again)
	}
	if l := all[2].ask(t.Context(), "GET", "/sessions", nil); !strings.Contains(fmt.Sprint(l.body), id) || !strings.Contains(fmt.Sprint(l.body), "shared") {
		t.Errorf("list: got %+v, want both sessions", l)
	}
	job := all[0].ask(t.Context(), "POST", "/execute/async", map[string]any{"language": "python", "code": "import time; time.sleep(60)"})
	if s := all[1].ask(t.Context(), "GET", "/execute/"+job.text("job_id")+"/status", nil); s.text("status") != "running" && s.text("status") != "queued" && s.text("status") != "pending" {
		t.Errorf("job on another server: got %+v, want it running", s)
	}
	if s := all[2].ask(t.Context(), "DELETE", "/jobs/"+job.text("job_id"), nil); s.status != http.StatusOK {
		t.Errorf("cancel on another server: got %+v", s)
	}
	all[0].restart()
	if a := all[1].run(id, "print(n)"); a.code() != "session_expired" {
		t.Errorf("after the end of its server: got %+v, want session_expired", a)
	}
	if s := all[0].ask(t.Context(), "DELETE", "/sessions/shared", nil); s.status != http.StatusOK {
		t.Errorf("terminate on another server: got %+v", s)
	}
	if a := all[1].run("shared", "print('x' in globals())"); strings.TrimSpace(a.text("stdout")) != "False" {
		t.Errorf("after its end: got %+v, want a new session", a)
	}
}

// TestReplicasWithSessionsAreKilled: three servers have the sessions of eight callers, who use any server, and one
// is killed every ten seconds. Each answer of a session shows its state, or says that it is lost. The record
// verifies, and nothing that was answered is missing in it. If the servers share files, every server has those of
// all answers. SANDBOXMCP_TEST_KILLS says how long it takes, such as 5m.
func TestReplicasWithSessionsAreKilled(t *testing.T) {
	all := startReplicas(t, 3)
	long, every := 5*time.Minute, 10*time.Second
	if testing.Short() {
		long, every = 25*time.Second, 5*time.Second
	}
	if text := os.Getenv("SANDBOXMCP_TEST_KILLS"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	var work sync.WaitGroup
	callers := make([]*caller, 8)
	for i := range callers {
		c := &caller{t: t, all: all, acked: map[string]int{}, files: map[string]string{}, codes: map[string]int{}}
		callers[i] = c
		work.Go(func() { c.work(ctx, i) })
	}
	kills := 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil && !t.Failed() {
		select {
		case <-ctx.Done():
		case <-tick.C:
			all[kills%len(all)].restart()
			kills++
		}
	}
	stop()
	work.Wait()
	answered, lost, codes := 0, 0, map[string]int{}
	for _, c := range callers {
		c.readFiles()
		answered, lost = answered+len(c.acked), lost+c.lost
		for code, n := range c.codes {
			codes[code] += n
		}
		for _, r := range all {
			maps.Copy(r.acked, c.acked)
		}
	}
	t.Logf("%d kills, %d runs answered, %d sessions told lost, other answers %v", kills, answered, lost, codes)
	if kills < 2 || answered < 20 || lost == 0 {
		t.Errorf("got %d kills, %d answers and %d lost sessions, want more", kills, answered, lost)
	}
	for _, r := range all {
		r.check()
	}
}

// caller uses one session after another, through any server.
type caller struct {
	t     *testing.T
	all   []*replica
	acked map[string]int
	files map[string]string // content of the file of an answered run
	lost  int
	turn  int            // calls so far; each goes to another server
	codes map[string]int // of errors that say to ask again
}

func (c *caller) work(ctx context.Context, number int) {
	for i := 0; ctx.Err() == nil && !c.t.Failed(); i++ {
		c.session(ctx, fmt.Sprintf("caller-%d-%d", number, i))
	}
}

// session uses a session until it is lost. A run that was not answered may have counted.
func (c *caller) session(ctx context.Context, id string) {
	atLeast, atMost := 0, 0
	code, entries := "n = globals().get('n', 0) + 1; print(n)", 2
	if c.all[0].files { // the signature of its file is one more entry
		code, entries = code+fmt.Sprintf("; open('count', 'w').write(f'%s {n}')", id), 3
	}
	for ctx.Err() == nil && !c.t.Failed() {
		r := c.all[c.turn%len(c.all)]
		c.turn++
		a := r.run(id, code) //nolint:contextcheck // a request that was sent is waited for
		n := 0
		switch {
		case a.unsent:
			time.Sleep(50 * time.Millisecond) // it is being started again
		case a.status == http.StatusOK && a.text("status") == "completed":
			if _, err := fmt.Sscan(a.text("stdout"), &n); err != nil || n <= atLeast || n > atMost+1 {
				c.t.Errorf("session %s: got %q, want a number from %d to %d", id, a.text("stdout"), atLeast+1, atMost+1)
			}
			atLeast, atMost = n, n
			c.acked[a.text("request_id")] = entries
			if r.files {
				c.files[a.text("request_id")] = fmt.Sprintf("%s %d", id, n)
			}
		case a.code() == "session_expired":
			c.lost++
			return
		case a.status == 0:
			atMost++
			c.codes["none"]++
		default: // it may have run
			atMost++
			c.codes[cmp.Or(a.code(), a.text("status"))]++
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// readFiles reads the file of each answered run, each from another server.
func (c *caller) readFiles() {
	for id, want := range c.files {
		r := c.all[c.turn%len(c.all)]
		c.turn++
		a := r.ask(c.t.Context(), "GET", "/execute/"+id+"/status", nil)
		text, err := json.Marshal(a.body)
		var status struct {
			Result struct {
				Artifacts []struct {
					Name       string
					ContentB64 []byte `json:"content_b64"`
				}
			}
		}
		if err == nil {
			err = json.Unmarshal(text, &status)
		}
		if files := status.Result.Artifacts; err != nil || len(files) != 1 || string(files[0].ContentB64) != want {
			c.t.Errorf("file of %s: got %d %.500s, want %q", id, a.status, text, want)
		}
	}
}
