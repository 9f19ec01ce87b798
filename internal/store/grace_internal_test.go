package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"
)

// answering is a database that can be down. It answers every question with true.
type answering struct {
	driver.Conn

	down *bool
}

func (a answering) Connect(context.Context) (driver.Conn, error) {
	if *a.down {
		return nil, errors.New("it is down")
	}
	return a, nil
}

func (a answering) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if *a.down {
		return nil, errors.New("it is down")
	}
	return new(oneTrue), nil
}

func (answering) Driver() driver.Driver { return nil }
func (answering) Close() error          { return nil }

type oneTrue struct{ read bool }

func (*oneTrue) Columns() []string { return []string{"yes"} }
func (*oneTrue) Close() error      { return nil }
func (r *oneTrue) Next(row []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, row[0] = true, true
	return nil
}

// Others can take their leases again only when the server answers, however long it was down.
func TestTheGraceBeginsWhenTheServerAnswersAgain(t *testing.T) {
	for _, asked := range []bool{true, false} { // while it was down
		down := false
		l := &postgresLeases{open: func() *sql.DB { return sql.OpenDB(answering{down: &down}) }, log: slog.New(slog.DiscardHandler)}
		t.Cleanup(func() { _ = l.close() })
		long := time.Now().Add(-time.Hour)
		if l.leased(t.Context(), "other") {
			t.Fatal("before: got the lease of another held, want it free")
		}
		down = true
		if !l.leased(t.Context(), "other") {
			t.Fatal("down: got the lease of another free, want it held")
		}
		l.lost = long
		if asked && !l.leased(t.Context(), "other") {
			t.Fatal("down for long: got the lease of another free, want it held")
		}
		l.lost, down = long, false
		if !l.leased(t.Context(), "other") {
			t.Errorf("asked while down %v: got the lease of another free at the first answer, want it held for a while", asked)
		}
		if l.lost = long; l.leased(t.Context(), "other") {
			t.Errorf("asked while down %v: got the lease of another held for ever, want it free after a while", asked)
		}
	}
	down := true
	l := &postgresLeases{open: func() *sql.DB { return sql.OpenDB(answering{down: &down}) }, log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { _ = l.close() })
	if _, err := l.ask(t.Context(), selectTrue); err == nil {
		t.Fatal("got an answer, want none")
	}
	if down = false; !l.leased(t.Context(), "other") {
		t.Error("a process that began meanwhile: got the lease of another free at the first answer, want it held for a while")
	}
}
