package audit_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// BenchmarkAnswered holds what an entry costs that is chained, in canonical form
// and under signed checkpoints, with the head and a second place, against the
// insert and commit of the very same row alone: in turns, in one run, each in a
// database of its own. ratio is that of the means over all rounds, and
// ratio-p50 the median of the ratios of the rounds.
//
//	go test ./internal/audit -run '^$' -bench Answered -benchtime 20000x
func BenchmarkAnswered(b *testing.B) {
	for _, mode := range []string{store.SynchronousNormal, store.SynchronousFull} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", mode, clients), func(b *testing.B) { benchAnswered(b, mode, clients) })
		}
	}
}

func benchAnswered(b *testing.B, mode string, clients int) {
	b.Helper()
	openIn := func(dir string) *store.Store {
		s, err := store.Open(b.Context(), storetest.On(store.Config{Dir: dir, Synchronous: mode}))
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	bareDir, fullDir := b.TempDir(), b.TempDir()
	bare, full := openIn(bareDir), openIn(fullDir)
	l, err := audit.Open(b.Context(), full, audit.Config{Signer: signer(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))), HeadFile: audit.HeadFile(fullDir, full.Path()), CheckpointFile: filepath.Join(fullDir, "second")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		l.Close(context.WithoutCancel(b.Context()))
		if err := errors.Join(bare.Close(), full.Close()); err != nil {
			b.Error(err)
		}
	}()
	row := rowOf(b, full, l)
	var seq atomic.Int64
	insert := func(ctx context.Context, tx *sql.Tx) error {
		row := slices.Clone(row)
		row[2] = seq.Add(1)
		_, err := tx.ExecContext(ctx, `INSERT INTO audit (`+columns+`, mac) VALUES (`+strings.Repeat("?,", 18)+`'')`, row...)
		return err
	}
	e := entry("default", 1)
	work := map[bool]func() error{
		false: func() error { return bare.Update(b.Context(), insert) },
		true:  func() error { _, err := l.Append(b.Context(), e); return err },
	}
	var took [2]time.Duration
	var ratios []float64
	const round = 200 // appends of each kind, in turns
	done := 0
	for b.Loop() {
		done++
	}
	b.ResetTimer()
	rounds := max(1, done/round)
	for i := range rounds {
		var t [2]time.Duration
		for k := range 2 {
			sealed := (i+k)%2 == 1
			n := 0
			if sealed {
				n = 1
			}
			t[n] = together(b, clients, round, work[sealed])
			took[n] += t[n]
		}
		ratios = append(ratios, float64(t[1])/float64(t[0]))
	}
	slices.Sort(ratios)
	each := float64(rounds*round) * 1000
	b.ReportMetric(float64(took[0].Nanoseconds())/each, "µs/bare")
	b.ReportMetric(float64(took[1].Nanoseconds())/each, "µs/sealed")
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
	b.ReportMetric(ratios[len(ratios)/2], "ratio-p50")
	b.ReportMetric(0, "ns/op")
}

// signer signs as the key of a state directory does, and at its cost.
type signer ed25519.PrivateKey

func (s signer) Note(text string) (string, error) {
	return text + "\n— bench " + base64.StdEncoding.EncodeToString(ed25519.Sign(ed25519.PrivateKey(s), []byte(text))) + "\n", nil
}

func (s signer) OpenNote(signed string) (string, error) {
	text, _, _ := strings.Cut(signed, "\n\n")
	if again, err := s.Note(text + "\n"); err != nil || again != signed {
		return "", errors.New("its signature does not fit")
	}
	return text + "\n", nil
}

func (s signer) Derive(purpose string) ([]byte, error) {
	sum := sha256.Sum256(append([]byte(purpose), s...))
	return sum[:], nil
}

// together does work n times in all, from so many sides.
func together(b *testing.B, clients, n int, work func() error) time.Duration {
	b.Helper()
	start := time.Now()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range n / clients {
				if err := work(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// rowOf appends an entry and returns it as it is kept.
func rowOf(b *testing.B, s *store.Store, l *audit.Log) []any {
	b.Helper()
	if _, err := l.Append(b.Context(), entry("default", 1)); err != nil {
		b.Fatal(err)
	}
	row := make([]any, 18)
	to := make([]any, 18)
	for i := range row {
		to[i] = &row[i]
	}
	if err := s.DB().QueryRowContext(b.Context(), `SELECT `+columns+` FROM audit`).Scan(to...); err != nil {
		b.Fatal(err)
	}
	return row
}
