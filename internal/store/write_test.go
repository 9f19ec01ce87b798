package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// hold occupies the writer with an Update until release is called.
func hold(t *testing.T, s *store.Store) (release func()) {
	t.Helper()
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- s.Update(t.Context(), func(context.Context, *sql.Tx) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	return func() {
		close(leave)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// untilWaiting waits until n Updates wait for the writer, which hold occupies.
func untilWaiting(t *testing.T, s *store.Store, n int) {
	t.Helper()
	testkit.UntilEqual(t, "updates that wait", n, func() int { return store.Waiting(s) })
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	want := errors.New("no")
	err := s.Update(t.Context(), addServer("a"), func(context.Context, *sql.Tx) error { return want })
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if got := countServers(t, s); got != 0 {
		t.Errorf("rows: got %d, want 0", got)
	}
}

func TestUpdatesShareATransaction(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	if err := s.Update(t.Context(), addServer("taken")); err != nil {
		t.Fatal(err)
	}
	release := hold(t, s)
	const n = 20
	var mu sync.Mutex
	seen := map[*sql.Tx]int{}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		id := fmt.Sprint(i)
		if i%5 == 0 {
			id = "taken" // breaks the primary key
		}
		wg.Go(func() {
			errs[i] = s.Update(t.Context(), addServer("before "+fmt.Sprint(i)), func(_ context.Context, tx *sql.Tx) error {
				mu.Lock()
				defer mu.Unlock()
				seen[tx]++
				return nil
			}, addServer(id))
		})
	}
	untilWaiting(t, s, n)
	release()
	wg.Wait()
	if len(seen) != 1 {
		t.Errorf("transactions: got %d, want 1", len(seen))
	}
	for i, err := range errs {
		if got, want := err != nil, i%5 == 0; got != want {
			t.Errorf("update %d: got %v, want failure %v", i, err, want)
		}
	}
	if got, want := countServers(t, s), 1+2*(n-n/5); got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

// An Op that goes on after a failed statement fails alone, also where every later statement of
// the transaction fails, too.
func TestUpdateFailsAloneAfterASecondFailure(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	if err := s.Update(t.Context(), addServer("taken")); err != nil {
		t.Fatal(err)
	}
	release := hold(t, s)
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			if i != 1 {
				errs[i] = s.Update(t.Context(), addServer(fmt.Sprint(i)))
				return
			}
			errs[i] = s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_ = addServer("taken")(ctx, tx)
				return addServer("taken")(ctx, tx)
			})
		})
	}
	untilWaiting(t, s, len(errs))
	release()
	wg.Wait()
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("got %v, want only the second to fail", errs)
	}
}

// Callers may send any bytes in a text. PostgreSQL refuses some of them.
func TestUpdateStoresTextsOfAnyBytes(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	for _, id := range []string{"a\x00b", "\xff\xfe", "c\xed\xa0\x80"} {
		if err := s.Update(t.Context(), addServer(id)); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		var n int
		if err := s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM servers WHERE id = ?`, sandboxmcp.Namespace(id)).Scan(&n); err != nil || n != 1 {
			t.Errorf("%q: got %d rows, %v; want 1", id, n, err)
		}
	}
}

func TestUpdateWithdrawnWhileWaiting(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Update(ctx, addServer("late")) }()
	untilWaiting(t, s, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	release()
	if err := s.Update(t.Context(), addServer("next")); err != nil {
		t.Fatal(err)
	}
	if got := countServers(t, s); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

func TestUpdateOnceTakenIsFinished(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Update(ctx, func(opCtx context.Context, _ *sql.Tx) error {
		cancel()
		return opCtx.Err()
	}, addServer("a"))
	if err != nil {
		t.Fatal(err)
	}
	if got := countServers(t, s); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

func TestUpdateBusy(t *testing.T) {
	dir := t.TempDir()
	other := open(t, store.Config{Dir: dir})
	s := open(t, store.Config{Dir: dir, BusyTimeout: 60 * time.Millisecond})
	release := hold(t, other)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a store that waits for ever
	defer cancel()
	err := s.Update(ctx, addServer("a"))
	if got, want := sandboxmcp.CodeOf(err), sandboxmcp.CodeBackendUnavailable; got != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("gave up after %s, want at least 50ms", took)
	}
	release()
	if err := s.Update(t.Context(), addServer("a")); err != nil {
		t.Error(err)
	}
	if got := countServers(t, s); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

// On a full disk every Update of the transaction returns the error and leaves no row.
// Updates succeed again once there is space.
func TestUpdateFull(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	limit := func(pages int) store.Op {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))
			return err
		}
	}
	if err := s.Update(t.Context(), limit(1)); err != nil { // SQLite raises it to the present size
		t.Fatal(err)
	}
	release := hold(t, s)
	errs := make(chan error)
	for i := range 2 {
		go func() { errs <- s.Update(t.Context(), addServer(strings.Repeat("x", 100_000)+fmt.Sprint(i))) }()
	}
	untilWaiting(t, s, 2)
	release()
	for range 2 {
		err := <-errs
		if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, "no space") {
			t.Errorf("got %v, want backend_unavailable", err)
		}
	}
	if err := s.Update(t.Context(), limit(1<<20), addServer("a")); err != nil {
		t.Error(err)
	}
	if got := countServers(t, s); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

func TestUpdatePanic(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	err := s.Update(t.Context(), addServer("a"), func(context.Context, *sql.Tx) error { panic("oh") })
	if err == nil || !strings.Contains(err.Error(), "oh") {
		t.Errorf("got %v, want the panic", err)
	}
	if err := s.Update(t.Context(), addServer("b")); err != nil {
		t.Error(err)
	}
	if got := countServers(t, s); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

func TestCloseFinishesWaitingUpdates(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	release := hold(t, s)
	done := make(chan error)
	go func() { done <- s.Update(t.Context(), addServer("a")) }()
	untilWaiting(t, s, 1)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	testkit.Until(t, "Close begins", func() bool { return store.Closing(s) })
	release()
	if err := errors.Join(<-done, <-closed); err != nil {
		t.Fatal(err)
	}
	if got := countServers(t, open(t, store.Config{Dir: dir})); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

// The writer keeps its statements. The same one inside itself, and more of them
// than are kept, work all the same.
func TestUpdateStatements(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	var pairs int
	many := func(ctx context.Context, tx *sql.Tx) error {
		for i := range 200 {
			var n int
			if err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT %d`, i)).Scan(&n); err != nil || n != i {
				return fmt.Errorf("got %d, %w", n, err)
			}
		}
		return nil
	}
	nested := func(ctx context.Context, tx *sql.Tx) error {
		each := func(f func() error) error {
			rows, err := tx.QueryContext(ctx, `SELECT id FROM servers WHERE pid = ?`, 1)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				if err := f(); err != nil {
					return err
				}
			}
			return rows.Err()
		}
		return each(func() error { return each(func() error { pairs++; return nil }) })
	}
	if err := s.Update(t.Context(), addServer("a"), addServer("b"), addServer("c"), nested, many, nested); err != nil {
		t.Fatal(err)
	}
	if pairs != 2*9 {
		t.Errorf("pairs: got %d, want %d", pairs, 2*9)
	}
}
