package agent_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
)

const pod = "7b0c4c1e-6d6c-4a0e-9c3e-0d7c7e9b1f10"

// now is the time of the statements.
var now = time.Unix(1_800_000_000, 0)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func sign(t *testing.T, key ed25519.PrivateKey, change func(*agent.Statement)) string {
	t.Helper()
	s := agent.NewStatement(pod, agent.PurposeRelay, now)
	if change != nil {
		change(&s)
	}
	text, err := s.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// served is an agent that waits on loopback.
type served struct {
	at   string
	conn chan *net.TCPConn
	err  chan error
}

func serve(t *testing.T, key ed25519.PrivateKey) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{at: l.Addr().String(), conn: make(chan *net.TCPConn, 1), err: make(chan error, 1)}
	a := &agent.Agent{Keys: []ed25519.PublicKey{public(key)}, Pod: pod, Now: func() time.Time { return now }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := a.Serve(ctx, l)
		s.conn <- conn
		s.err <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// send sends a request and returns the connection and the status of the answer.
func (s *served) send(t *testing.T, request string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	c, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err = io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if err = c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return c, r, 0
	}
	return c, r, res.StatusCode
}

func request(header, value string) string {
	return "POST " + agent.Path + " HTTP/1.1\r\nHost: pod\r\nConnection: Upgrade\r\nUpgrade: " + agent.Upgrade + "\r\n" + header + ": " + value + "\r\n\r\n"
}

// TestOnlyAValidStatementIsTaken: every other request is refused, and the agent still waits afterwards.
func TestOnlyAValidStatementIsTaken(t *testing.T) {
	key, other := newKey(t), newKey(t)
	s := serve(t, key)
	good := sign(t, key, nil)
	left, right, _ := strings.Cut(good, ".")
	for name, c := range map[string]struct {
		request string
		want    int
	}{
		"no statement":      {"POST " + agent.Path + " HTTP/1.1\r\nHost: pod\r\nUpgrade: " + agent.Upgrade + "\r\nConnection: Upgrade\r\n\r\n", 401},
		"no bearer":         {request("Authorization", good), 401},
		"nonsense":          {request("Authorization", "Bearer nonsense"), 403},
		"another key":       {request("Authorization", "Bearer "+sign(t, other, nil)), 403},
		"no signature":      {request("Authorization", "Bearer "+left+"."), 403},
		"another signature": {request("Authorization", "Bearer "+left+"."+strings.ToUpper(right)), 403},
		"expired":           {request("Authorization", "Bearer "+sign(t, key, func(s *agent.Statement) { s.Expires = now.Add(-time.Minute).Unix() })), 403},
		"long-lived":        {request("Authorization", "Bearer "+sign(t, key, func(s *agent.Statement) { s.Expires = now.Add(time.Hour).Unix() })), 403},
		"without a nonce":   {request("Authorization", "Bearer "+sign(t, key, func(s *agent.Statement) { s.Nonce = "" })), 403},
		"another pod":       {request("Authorization", "Bearer "+sign(t, key, func(s *agent.Statement) { s.Pod = strings.Repeat("0", 36) })), 403},
		"no pod":            {request("Authorization", "Bearer "+sign(t, key, func(s *agent.Statement) { s.Pod = "" })), 403},
		"another purpose":   {request("Authorization", "Bearer "+sign(t, key, func(s *agent.Statement) { s.Purpose = "files" })), 403},
		"too long":          {request("Authorization", "Bearer "+strings.Repeat("a", 3000)), 403},
		"another path":      {strings.Replace(request("Authorization", "Bearer "+good), agent.Path, "/", 1), 404},
		"GET":               {strings.Replace(request("Authorization", "Bearer "+good), "POST", "GET", 1), 405},
		"a body":            {strings.Replace(request("Authorization", "Bearer "+good), "Host:", "Content-Length: 3\r\nHost:", 1) + "abc", 413},
		"chunks":            {strings.Replace(request("Authorization", "Bearer "+good), "Host:", "Transfer-Encoding: chunked\r\nHost:", 1) + "0\r\n\r\n", 413},
		"no upgrade":        {"POST " + agent.Path + " HTTP/1.1\r\nHost: pod\r\nAuthorization: Bearer " + good + "\r\n\r\n", 426},
		"huge headers":      {request("X", strings.Repeat("a", 20_000)), 431},
	} {
		if _, _, got := s.send(t, c.request); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
	if _, _, got := s.send(t, request("Authorization", "Bearer "+good)); got != 101 {
		t.Errorf("a valid statement: got %d, want 101", got)
	}
	if conn := <-s.conn; conn == nil {
		t.Errorf("got no connection: %v", <-s.err)
	}
}

// TestAPodIsUsedOnce: after the first valid request the agent listens no more, and its connection carries
// bytes both ways.
func TestAPodIsUsedOnce(t *testing.T) {
	key := newKey(t)
	s := serve(t, key)
	good := sign(t, key, nil)
	idle, err := net.Dial("tcp", s.at) // a connection that waits
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	c, r, status := s.send(t, request(agent.HeaderProof, "Bearer "+good))
	if status != 101 {
		t.Fatalf("got %d, want 101", status)
	}
	conn := <-s.conn
	if err := <-s.err; err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if again, err := net.Dial("tcp", s.at); err == nil {
		_ = again.Close()
		t.Error("the agent still listens")
	}
	_ = idle.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := idle.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the other connection: got %d bytes and %v, want that it is closed", n, err)
	}
	if _, err = io.WriteString(conn, "R\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadString('\n'); got != "R\n" || err != nil {
		t.Errorf("got %q %v, want R", got, err)
	}
	if _, err = io.WriteString(c, "Y\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if _, err = io.ReadFull(conn, b); err != nil || string(b) != "Y\n" {
		t.Errorf("got %q %v, want Y", b, err)
	}
}

// TestTwoAtOnce: of two valid requests at a time one gets the pod.
func TestTwoAtOnce(t *testing.T) {
	key := newKey(t)
	s := serve(t, key)
	const many = 8
	status := make(chan int, many)
	for range many {
		go func() {
			c, err := net.Dial("tcp", s.at)
			if err != nil {
				status <- 0
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, request("Authorization", "Bearer "+sign(t, key, nil)))
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			res, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // as before
			if err != nil {
				status <- 0
				return
			}
			status <- res.StatusCode
		}()
	}
	taken := 0
	for range many {
		if got := <-status; got == 101 {
			taken++
		} else if got != 0 && got != 409 {
			t.Errorf("got status %d", got)
		}
	}
	if conn := <-s.conn; taken != 1 || conn == nil {
		t.Errorf("%d requests got the pod, want 1", taken)
	}
}

// TestBytesBeforeTheAnswerAreRefused: bytes directly behind a request could be a packet of another sender.
func TestBytesBeforeTheAnswerAreRefused(t *testing.T) {
	key := newKey(t)
	s := serve(t, key)
	if _, _, got := s.send(t, request("Authorization", "Bearer "+sign(t, key, nil))+"more"); got == 101 {
		t.Error("got 101, want that the connection is closed")
	}
	if conn := <-s.conn; conn != nil {
		t.Error("got a connection")
	}
}

// TestSlowHeadersEnd: a client that does not send its request is cut off, and others are served meanwhile.
func TestSlowHeadersEnd(t *testing.T) {
	key := newKey(t)
	s := serve(t, key)
	slow, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	if _, err = io.WriteString(slow, "POST "+agent.Path+" HTTP/1.1\r\nHost: p"); err != nil {
		t.Fatal(err)
	}
	if _, _, got := s.send(t, request("Authorization", "Bearer x")); got != 403 {
		t.Errorf("beside it: got %d, want 403", got)
	}
	_ = slow.SetReadDeadline(time.Now().Add(30 * time.Second))
	if text, err := io.ReadAll(slow); err != nil {
		t.Errorf("got %q %v, want the end of the connection", text, err)
	}
}

// TestAgentWaitsForALimitedTime: it ends if no server comes.
func TestAgentWaitsForALimitedTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &agent.Agent{Keys: []ed25519.PublicKey{public(newKey(t))}, Pod: pod}
	if _, err = a.Serve(ctx, l); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

// TestAgentNeedsKeysAndAPod: an agent that could not refuse anybody does not begin.
func TestAgentNeedsKeysAndAPod(t *testing.T) {
	for name, a := range map[string]*agent.Agent{"no keys": {Pod: pod}, "no pod": {Keys: []ed25519.PublicKey{public(newKey(t))}}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = a.Serve(t.Context(), l); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestKeys: keys are read as they are written, and anything else is refused.
func TestKeys(t *testing.T) {
	a, b := public(newKey(t)), public(newKey(t))
	got, err := agent.ParseKeys(fmt.Sprintf("%s, %s\n", agent.FormatKey(a), agent.FormatKey(b)))
	if err != nil || len(got) != 2 || !got[0].Equal(a) || !got[1].Equal(b) {
		t.Errorf("got %v %v, want both keys", got, err)
	}
	for _, bad := range []string{"", " ,", "AAAA", agent.FormatKey(a) + " x"} {
		if k, err := agent.ParseKeys(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, k)
		}
	}
}
