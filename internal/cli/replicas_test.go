package cli_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestReplicasKilledUnderLoad: three servers share a PostgreSQL database, and each is killed with
// -9 and started again, in the middle of its work. The record verifies, and nothing that any of
// them answered is missing in it.
func TestReplicasKilledUnderLoad(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("a test of PostgreSQL")
	}
	testkit.Sandbox(t, canRun(), "this machine cannot build a sandbox")
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sandboxmcp")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	all := make([]*killed, 3)
	for i := range all {
		home := filepath.Join(dir, fmt.Sprint(i))
		all[i] = &killed{t: t, program: program, state: filepath.Join(home, "state"), second: filepath.Join(home, "second"), url: storetest.URL(dir), acked: map[string]int{}}
		if err := os.MkdirAll(all[i].state, 0o700); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if out, err := all[0].command(t.Context(), "run", "-c", "print('on')").Output(); err != nil || string(out) != "on\n" {
				t.Fatalf("got %q and %v, want on", out, err)
			}
			continue
		}
		key, err := os.ReadFile(filepath.Join(all[0].state, "signing.key"))
		if err == nil {
			err = os.WriteFile(filepath.Join(all[i].state, "signing.key"), key, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	long := 5 * time.Minute
	if testing.Short() {
		long = 10 * time.Second
	}
	start := time.Now()
	var kills [3]int
	var wg sync.WaitGroup
	for i, k := range all {
		wg.Go(func() {
			for time.Since(start) < long && !t.Failed() {
				k.round()
				kills[i]++
			}
		})
	}
	wg.Wait()
	whole := *all[0]
	whole.acked = map[string]int{}
	for _, k := range all {
		maps.Copy(whole.acked, k.acked)
	}
	t.Logf("killed %v times in %v, %d acts were answered", kills, time.Since(start).Round(time.Second), len(whole.acked))
	if len(whole.acked) < 6 {
		t.Errorf("got %d answered acts, want more", len(whole.acked))
	}
	for _, k := range all { // each has a head and a second file of its own
		k.acked = whole.acked
		k.check()
	}
}
