package engine_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// locked is a buffer for several writers.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A text that a model writes has no secret in it wherever it is shown or kept: on the
// terminal, in the log, in events, in questions, in the record, anywhere in the state
// directory. A name that cannot be masked is refused.
func TestTextsOfTheModelAreMaskedWhereverTheyGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var notices, log locked
	for _, terminal := range []bool{true, false} {
		f := &fake{files: map[string]string{}}
		e := open(t, f, at(dir), func(c *engine.Config) {
			c.Operator, c.Network = []sandboxmcp.Domain{{Host: "example.com", Wild: true}}, true
			if c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})); terminal {
				c.Notices = &notices
			}
		})
		if terminal {
			addSecret(t, e, "TOKEN", secret)
		}
		events, stop := e.Subscribe(everyone())
		coded := base64.StdEncoding.EncodeToString([]byte(secret))
		got, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: fmt.Sprintf("a-%t.example.org", terminal), Reason: "because " + secret + " and " + coded + " is why"})
		if err != nil || got.Status != sandboxmcp.ApprovalPending {
			t.Fatalf("got %+v and %v, want it to wait", got, err)
		}
		asked, err := e.FindApproval(t.Context(), sandboxmcp.Caller{}, got.ApprovalID)
		if err != nil || !strings.Contains(asked.Reason, "because "+mask+" and "+mask) {
			t.Errorf("got the reason %s and %v, want it masked", asked.Reason, err)
		}
		list, err := e.Egress(t.Context(), sandboxmcp.Caller{})
		if err != nil || len(list.Pending) == 0 {
			t.Fatalf("got %+v and %v, want what waits", list, err)
		}
		shown := fmt.Sprintf("%+v", list)

		low := strings.ToLower(secret)
		_, err = e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: low + ".example.org"})
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		req := shell("x")
		req.AllowedDomains = []string{low + ".example.com"}
		_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, req)
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		req = shell("x")
		req.ID = sandboxmcp.RequestID(secret)
		_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, req)
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		req = shell("x")
		req.SessionID = sandboxmcp.SessionID("s-" + secret)
		_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, req)
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		_, err = e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: sandboxmcp.SessionID(secret)})
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
		if _, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "of-" + secret + ".txt", Content: []byte("x")}); err != nil {
			t.Error(err)
		}
		stop()
		for ev := range events {
			shown += fmt.Sprintf("%+v", ev)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		holdsNone(t, "what is shown", shown, secret, coded, low)
	}
	holdsNone(t, "the terminal", notices.String(), secret)
	holdsNone(t, "the log", log.String(), secret)
	if !strings.Contains(notices.String(), mask) || !strings.Contains(log.String(), mask) {
		t.Errorf("got the notices %q and the log %q, want masks in both", notices.String(), log.String())
	}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		holdsNone(t, p, string(data), secret)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func holdsNone(t *testing.T, where, text string, secrets ...string) {
	t.Helper()
	for _, s := range secrets {
		if i := strings.Index(text, s); i >= 0 {
			t.Errorf("%s: got %q in it, want no secret", where, text[max(0, i-60):min(len(text), i+60)])
		}
	}
}
