package store_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

func open(tb testing.TB, cfg store.Config) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), storetest.On(cfg))
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

func addServer(id string) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO servers (id, pid, boot_id, started_at, heartbeat) VALUES (?, 1, 'b', 't', 't')`, id)
		return err
	}
}

func BenchmarkOpenWarm(b *testing.B) {
	dir := b.TempDir()
	s, err := store.Open(b.Context(), store.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	var opening, closing time.Duration
	for b.Loop() {
		t := time.Now()
		s, err := store.Open(b.Context(), store.Config{Dir: dir})
		opening += time.Since(t)
		if err != nil {
			b.Fatal(err)
		}
		for range 2 { // as a command that runs something does
			if err := s.Update(b.Context(), addServer(rand.Text())); err != nil {
				b.Fatal(err)
			}
		}
		t = time.Now()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		closing += time.Since(t)
	}
	b.ReportMetric(float64(opening.Microseconds())/float64(b.N), "µs/open")
	b.ReportMetric(float64(closing.Microseconds())/float64(b.N), "µs/close")
}

func BenchmarkOpenCold(b *testing.B) {
	for b.Loop() {
		s, err := store.Open(b.Context(), store.Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, mode := range []string{store.SynchronousNormal, store.SynchronousFull} {
		b.Run(mode, func(b *testing.B) {
			s := open(b, store.Config{Dir: b.TempDir(), Synchronous: mode})
			op := func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO servers (id, pid, boot_id, started_at, heartbeat) VALUES ('x', 1, 'b', 't', 't') ON CONFLICT DO UPDATE SET pid = pid + 1`)
				return err
			}
			all := []time.Duration{}
			for b.Loop() {
				t := time.Now()
				if err := s.Update(b.Context(), op); err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(t))
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1000, "µs/p50")
			b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1000, "µs/p99")
		})
	}
}

func BenchmarkUpdateTogether(b *testing.B) {
	s := open(b, store.Config{Dir: b.TempDir()})
	op := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO servers (id, pid, boot_id, started_at, heartbeat) VALUES ('x', 1, 'b', 't', 't') ON CONFLICT DO UPDATE SET pid = pid + 1`)
		return err
	}
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Update(b.Context(), op); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
