package app

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// signing is a server that says how it signs the record.
type signing struct {
	sandboxmcp.Service
	record *sandboxmcp.AuditSigning
}

func (s signing) Stats(context.Context) (sandboxmcp.Stats, error) {
	return sandboxmcp.Stats{Record: s.record}, nil
}

// doctorOf returns an App over a state directory whose trials of the machine find nothing.
func doctorOf(t *testing.T, stateDir string) (*App, *config.Config) {
	t.Helper()
	a := New([]string{"HOME=" + t.TempDir(), "SANDBOXMCP_STATE_DIR=" + stateDir}, nil, io.Discard, io.Discard)
	a.Diagnose = func(context.Context, Options) []sandboxmcp.Check { return nil }
	cfg, err := config.Load(config.Sources{Env: a.Env})
	if err != nil {
		t.Fatal(err)
	}
	return a, cfg
}

func checkOf(t *testing.T, a *App, cfg *config.Config) sandboxmcp.Check {
	t.Helper()
	checks, err := a.Doctor(t.Context(), cfg)
	if err != nil || len(checks) != 1 {
		t.Fatalf("got %+v and %v, want one check", checks, err)
	}
	return checks[0]
}

// TestDoctorTellsOfServersThatDoNotSign: one server of several is enough.
func TestDoctorTellsOfServersThatDoNotSign(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	a, cfg := doctorOf(t, dir)
	serve := func(record *sandboxmcp.AuditSigning) {
		s, err := api.Listen(t.Context(), api.Config{StateDir: dir, Service: signing{record: record}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	if c := checkOf(t, a, cfg); !c.OK || c.Needed {
		t.Errorf("without a server and a record: got %+v, want no fault", c)
	}
	serve(&sandboxmcp.AuditSigning{Signed: true})
	serve(nil) // of another release
	if c := checkOf(t, a, cfg); !c.OK {
		t.Errorf("a server that signs: got %+v, want no fault", c)
	}
	since := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	serve(&sandboxmcp.AuditSigning{Reason: "row 7 is odd", Since: &since})
	c := checkOf(t, a, cfg)
	if c.OK || c.Needed || c.Fix == "" || !strings.Contains(c.Detail, "row 7 is odd") || !strings.Contains(c.Detail, "2031-02-03T04:05:06Z") {
		t.Errorf("a server that does not sign: got %+v, want its reason and since when", c)
	}
	st, err := a.Stats(t.Context(), cfg)
	if err != nil || st.Servers != 3 || st.Record == nil || st.Record.Signed || st.Record.Reason != "row 7 is odd" {
		t.Errorf("got %+v of %d servers and %v, want the one that does not sign", st.Record, st.Servers, err)
	}
}

// TestDoctorFindsOldUnsignedEntries: no server has to run for that.
func TestDoctorFindsOldUnsignedEntries(t *testing.T) {
	for name, c := range map[string]struct {
		age  time.Duration
		want bool
	}{"new": {0, true}, "old": {time.Hour, false}} {
		dir := filepath.Join(t.TempDir(), "state")
		a, cfg := doctorOf(t, dir)
		s, err := store.Open(t.Context(), storeOf(cfg))
		if err != nil {
			t.Fatal(err)
		}
		l, err := audit.Open(t.Context(), s, audit.Config{Now: func() time.Time { return time.Now().Add(-c.age) }})
		if err == nil {
			_, err = l.Append(t.Context(), sandboxmcp.AuditEntry{Namespace: "default", Action: "execute", Phase: sandboxmcp.PhaseOutcome})
		}
		if err != nil {
			t.Fatal(err)
		}
		if err = s.Close(); err != nil {
			t.Fatal(err)
		}
		got := checkOf(t, a, cfg)
		if got.OK != c.want || got.Needed || !c.want && !strings.Contains(got.Detail, " have no checkpoint: 1.") {
			t.Errorf("%s: got %+v, want OK to be %v", name, got, c.want)
		}
	}
}

// TestDoctorTellsWhatAnEndedServerHasFound: the statement in the state directory is enough.
func TestDoctorTellsWhatAnEndedServerHasFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	a, cfg := doctorOf(t, dir)
	s, err := store.Open(t.Context(), storeOf(cfg))
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), s, audit.Config{Signer: key, HeadFile: audit.HeadFile(dir, s.Path())})
	if err == nil {
		_, err = l.Append(t.Context(), sandboxmcp.AuditEntry{Namespace: "default", Action: "execute", Phase: sandboxmcp.PhaseOutcome})
	}
	if err != nil {
		t.Fatal(err)
	}
	storetest.Tamper(t, dir, `DELETE FROM audit`)
	l.Close(t.Context())
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if c := checkOf(t, a, cfg); c.OK || c.Needed || !strings.Contains(c.Detail, "row 1, which a server has appended, is missing") {
		t.Errorf("got %+v, want what the server has found", c)
	}
	public, err := sign.PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := (&App{}).verifyHere(t.Context(), cfg, func() (ed25519.PublicKey, error) { return public, nil })
	if err != nil || rep.OK || len(rep.Faults) == 0 || rep.Faults[0].Kind != "found" || rep.Faults[0].Row != 1 {
		t.Errorf("got %+v and %v, want what the server has found", rep.Faults, err)
	}
}

// TestDoctorTellsThatTheDiskIsFull: doctor reports a disk with so little space that each run would fail.
func TestDoctorTellsThatTheDiskIsFull(t *testing.T) {
	_, cfg := doctorOf(t, t.TempDir())
	with := storeOf(cfg)
	for free, want := range map[uint64]bool{100 << 20: false, 10 << 30: true} {
		with.Free = func(string) (uint64, uint64, error) { return free, 20 << 30, nil }
		c := checkStore(t.Context(), cfg.StateDir, with)
		if c.OK != want || !want && (!strings.Contains(c.Detail, "has 100 MiB free") || c.Fix == "") {
			t.Errorf("%d MiB free: got %+v, want ok %v", free>>20, c, want)
		}
	}
}

// TestVerifyNamesForgedSecrets: without a server, too.
func TestVerifyNamesForgedSecrets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	a, cfg := doctorOf(t, dir)
	s, err := store.Open(t.Context(), storeOf(cfg))
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), s, audit.Config{Signer: key, HeadFile: audit.HeadFile(dir, s.Path())})
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(vault.Config{Store: s, Audit: l})
	if err == nil {
		err = v.Add(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.SecretSpec{Key: "TOKEN", Value: sandboxmcp.NewSecret("hunter22hunter")})
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close(t.Context())
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	l.Publish()
	storetest.Run(t, dir, `INSERT INTO secrets (namespace, key, sealed, created_at, expires_at, mac) SELECT namespace, 'OTHER', sealed, created_at, expires_at, mac FROM secrets`)
	rep, err := a.verifyHere(t.Context(), cfg, func() (ed25519.PublicKey, error) { return key.Public(), nil })
	if err != nil || rep.OK || len(rep.Faults) != 1 || rep.Faults[0].Kind != "forged" || !strings.Contains(rep.Faults[0].Reason, `secret "OTHER"`) {
		t.Errorf("got %+v and %v, want the forged secret", rep.Faults, err)
	}
}
