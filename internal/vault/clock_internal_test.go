package vault

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestLifetimesWhenTheClockIsSetBack: a secret is not used longer because of that. One without a lifetime stays.
func TestLifetimesWhenTheClockIsSetBack(t *testing.T) {
	const life = time.Hour
	for name, c := range map[string]struct {
		kind                string
		first, back, second time.Duration // time that passes, the change of the clock, and time that passes
		want                int
	}{
		"sealed, a little":        {Sealed, 0, time.Minute, 0, 2},
		"sealed, far":             {Sealed, 10 * time.Minute, 24 * time.Hour, 0, 1},
		"sealed, far, and later":  {Sealed, 10 * time.Minute, 24 * time.Hour, 23 * time.Hour, 1},
		"sealed, it has expired":  {Sealed, 10 * time.Minute, 5 * time.Minute, life, 1},
		"memory, a little":        {Memory, 0, time.Minute, 0, 2},
		"memory, still alive":     {Memory, 10 * time.Minute, 24 * time.Hour, 49 * time.Minute, 2},
		"memory, it has expired":  {Memory, 10 * time.Minute, 24 * time.Hour, 50 * time.Minute, 1},
		"memory, the clock alone": {Memory, 0, -life, 0, 1}, // such as a machine that slept
	} {
		t.Run(name, func(t *testing.T) {
			s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: filepath.Join(t.TempDir(), "state")}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			record, err := audit.Open(t.Context(), s, audit.Config{})
			if err != nil {
				t.Fatal(err)
			}
			now, passed := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC), 7*time.Hour
			v, err := Open(Config{Kind: c.kind, Store: s, Audit: record, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			v.elapsed = func() time.Duration { return passed }
			for key, ttl := range map[string]time.Duration{"GOES": life, "STAYS": 0} {
				if err = v.Add(t.Context(), sandboxmcp.Caller{Namespace: "ns"}, sandboxmcp.SecretSpec{Key: key, Value: sandboxmcp.NewSecret("Kit-0123456789/+"), TTL: ttl}); err != nil {
					t.Fatal(err)
				}
			}
			if set, err := v.Current(t.Context(), "ns"); err != nil || len(set.Items) != 2 {
				t.Fatalf("at first: got %+v and %v, want both secrets", set, err)
			}
			now, passed = now.Add(c.first-c.back+c.second), passed+c.first+c.second
			set, err := v.Current(t.Context(), "ns")
			if err != nil || len(set.Items) != c.want || set.Items[len(set.Items)-1].Key != "STAYS" {
				t.Errorf("got %+v and %v, want %d secrets, the last without a lifetime", set, err, c.want)
			}
		})
	}
}
