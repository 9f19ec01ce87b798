package store_test

import (
	"context"
	"database/sql"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestAServerThatStops: if the server accepts connections and answers nothing, reads, writes and the question whether it
// answers fail with backend_unavailable although their callers wait, also where many do.
func TestAServerThatStops(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	dir := t.TempDir()
	c, err := pgx.ParseConfig(storetest.URL(dir))
	if err != nil {
		t.Fatal(err)
	}
	network, to := pgconn.NetworkAddress(c.Host, c.Port)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var stopped atomic.Bool
	go func() {
		for {
			client, failed := l.Accept()
			if failed != nil {
				return
			}
			server, failed := net.Dial(network, to)
			if failed != nil {
				_ = client.Close()
				continue
			}
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
			go func() { _, _ = io.Copy(server, client) }()
			go func() {
				b := make([]byte, 32<<10)
				for {
					n, failed := server.Read(b)
					if failed != nil || stopped.Load() { // what a stopped server would not have sent
						return
					}
					if _, failed = client.Write(b[:n]); failed != nil {
						return
					}
				}
			}()
		}
	}()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	url := "postgres://" + c.User + "@" + host + ":" + port + "/" + c.Database + "?sslmode=disable&connect_timeout=2"
	if path := c.RuntimeParams["search_path"]; path != "" {
		url += "&search_path=" + path
	}
	s, err := store.Open(t.Context(), store.Config{Dir: dir, Postgres: url, BusyTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	read := func() error {
		var one int
		return s.ReadError(s.DB().QueryRowContext(context.WithoutCancel(t.Context()), "SELECT 1").Scan(&one))
	}
	write := func() error {
		return s.Update(context.WithoutCancel(t.Context()), func(ctx context.Context, tx *sql.Tx) error {
			_, failed := tx.ExecContext(ctx, "SELECT 1")
			return failed
		})
	}
	asked := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return s.Answers(ctx)
	}
	for name, do := range map[string]func() error{"read": read, "write": write, "asked": asked} {
		if err = do(); err != nil {
			t.Fatalf("%s before: %v", name, err)
		}
	}
	stopped.Store(true)
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, 100)
	n := 0
	for name, do := range map[string]func() error{"read": read, "write": write, "asked": asked} {
		for range 12 {
			n++
			go func() { answers <- answer{name, do()} }()
		}
	}
	late := time.NewTimer(time.Minute) // without a bound they would never come
	defer late.Stop()
	for range n {
		select {
		case a := <-answers:
			if e := sandboxmcp.AsError(a.err); e == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, "PostgreSQL") {
				t.Errorf("%s: got %v, want backend_unavailable", a.name, a.err)
			}
		case <-late.C:
			t.Fatal("calls have not returned")
		}
	}
	_ = s.Close()
}
