package sign_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

func newKey(tb testing.TB) *sign.Key {
	tb.Helper()
	k, err := sign.Open(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func predicate() sandboxmcp.ReceiptPredicate {
	session := sandboxmcp.SessionID("s1")
	return sandboxmcp.ReceiptPredicate{
		Version: 1, Product: "0.1.0", RequestID: "r1", SessionID: &session, Namespace: "default", Language: sandboxmcp.Python,
		CodeSHA256: sum("code"), Status: sandboxmcp.StatusFailed, ExitCode: 3,
		StartedAt: time.Date(2031, 1, 2, 3, 4, 5, 6000, time.UTC), EndedAt: time.Date(2031, 1, 2, 3, 4, 6, 0, time.UTC),
		StdoutSHA256: sum("out <&>"), StderrSHA256: sum(""), StderrTruncated: true,
		Artifacts: []sandboxmcp.ReceiptArtifact{
			{Path: "/mnt/data/a <&>\u2028.txt", SizeBytes: 3, SHA256: sum("a")},
			{Path: "/mnt/data/b", SizeBytes: 0, SHA256: sum("")},
		},
		Limits:    sandboxmcp.DefaultLimits(),
		Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL3, Walls: []string{"seccomp"}, Weak: []string{}},
		Network:   &sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}},
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	a, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.ID() != b.ID() || len(a.ID()) != 64 {
		t.Errorf("ids: got %s and %s", a.ID(), b.ID())
	}
	if got, want := a.ID(), sum(string(a.Public())); got != want {
		t.Errorf("id: got %s, want %s", got, want)
	}
	public, err := sign.PublicKey(dir)
	if err != nil || !public.Equal(a.Public()) {
		t.Errorf("PublicKey: got %x, %v", public, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]fs.FileMode{}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = fi.Mode()
	}
	if diff := cmp.Diff(map[string]fs.FileMode{"signing.key": 0o600, "signing.pub": 0o644}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestOpenAtOnce(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		ids := make([]string, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				k, err := sign.Open(dir)
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = k.ID()
			})
		}
		wg.Wait()
		k, err := sign.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if id != k.ID() {
				t.Errorf("a key of its own: %s, want %s", id, k.ID())
			}
		}
		if public, err := sign.PublicKey(dir); err != nil || !public.Equal(k.Public()) {
			t.Errorf("the public file: got another key or %v, want the public half", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("the directory: got %v, %v; want the two key files", entries, err)
		}
	}
}

// The public half is made again; a private one never.
func TestOpenMendsPublicFile(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"gone":    os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, []byte("x"), 0o644) },
		"another": func(path string) error {
			other := t.TempDir()
			if _, err := sign.Open(other); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, sign.PublicFile), path)
		},
	} {
		dir := t.TempDir()
		k, err := sign.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(dir, sign.PublicFile)); err != nil {
			t.Fatal(err)
		}
		if _, err := sign.Open(dir); err != nil {
			t.Errorf("%s: got %v, want the key opened", name, err)
		}
		if public, err := sign.PublicKey(dir); err != nil || !public.Equal(k.Public()) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	rsa := "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	for name, spoil := range map[string]func(path string) error{
		"empty":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"no key":     func(path string) error { return os.WriteFile(path, []byte(rsa), 0o600) },
		"too large":  func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"for others": func(path string) error { return os.Chmod(path, 0o640) },
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
	} {
		dir := t.TempDir()
		if _, err := sign.Open(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, sign.PrivateFile)
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		_, err := sign.Open(dir)
		if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, path) {
			t.Errorf("%s: got %v, want backend_unavailable naming the file", name, err)
		}
		if after, _ := os.ReadFile(path); string(before) != string(after) {
			t.Errorf("%s: got a changed file, want it as it was", name)
		}
	}
	if _, err := sign.Open(filepath.Join(t.TempDir(), "missing")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("no directory: got %v", err)
	}
	if _, err := sign.PublicKey(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no public key: got %v", err)
	}
}

func TestReceipt(t *testing.T) {
	k := newKey(t)
	bare := predicate()
	bare.Artifacts, bare.SessionID = []sandboxmcp.ReceiptArtifact{}, nil
	for _, tt := range []struct {
		name     string
		want     sandboxmcp.ReceiptPredicate
		subjects map[string]string
	}{
		{"with artifacts", predicate(), map[string]string{"/mnt/data/a <&>\u2028.txt": sum("a"), "/mnt/data/b": sum("")}},
		{"without", bare, map[string]string{"code": sum("code")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := k.Receipt(sign.Statement{Predicate: tt.want})
			if err != nil {
				t.Fatal(err)
			}
			got, err := sign.Verify(r, k.Public())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("predicate (-want +got):\n%s", diff)
			}
			raw, err := base64.StdEncoding.DecodeString(r.Payload)
			if err != nil {
				t.Fatal(err)
			}
			var s struct {
				Type          string `json:"_type"`
				PredicateType string
				Subject       []struct {
					Name   string
					Digest map[string]string
				}
			}
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			subjects := map[string]string{}
			for _, x := range s.Subject {
				subjects[x.Name] = x.Digest["sha256"]
			}
			if diff := cmp.Diff(tt.subjects, subjects); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
			if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != sandboxmcp.ReceiptPredicateType {
				t.Errorf("types: got %q, %q", s.Type, s.PredicateType)
			}
			// Checked once more by hand, as any other program would.
			sig, err := base64.StdEncoding.DecodeString(r.Signatures[0].Sig)
			if err != nil {
				t.Fatal(err)
			}
			pae := []byte("DSSEv1 28 application/vnd.in-toto+json " + itoa(len(raw)) + " ")
			if !ed25519.Verify(k.Public(), append(pae, raw...), sig) {
				t.Error("the signature: got one that DSSE's encoding does not verify, want DSSE")
			}
		})
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestReceiptRefuses(t *testing.T) {
	k := newKey(t)
	for name, change := range map[string]func(*sandboxmcp.ReceiptPredicate){
		"version":       func(p *sandboxmcp.ReceiptPredicate) { p.Version = 2 },
		"artifact hash": func(p *sandboxmcp.ReceiptPredicate) { p.Artifacts[0].SHA256 = "abc" },
		"upper case":    func(p *sandboxmcp.ReceiptPredicate) { p.Artifacts[0].SHA256 = strings.ToUpper(sum("a")) },
		"path":          func(p *sandboxmcp.ReceiptPredicate) { p.Artifacts[0].Path = "/mnt/data/\xff" },
		"code hash":     func(p *sandboxmcp.ReceiptPredicate) { p.Artifacts, p.CodeSHA256 = nil, "" },
	} {
		p := predicate()
		change(&p)
		if _, err := k.Receipt(sign.Statement{Predicate: p}); err == nil {
			t.Errorf("%s: got a receipt, want a refusal", name)
		}
	}
}

// Not one byte of a receipt can be another, nor spelled otherwise.
func TestReceiptMalleability(t *testing.T) {
	k := newKey(t)
	r, err := k.Receipt(sign.Statement{Predicate: predicate()})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, r sandboxmcp.Receipt) {
		t.Helper()
		if p, err := sign.Verify(r, k.Public()); err == nil {
			t.Errorf("%s: got a verified receipt, want an error", what)
		} else if diff := cmp.Diff(sandboxmcp.ReceiptPredicate{}, p); diff != "" {
			t.Errorf("%s: got a predicate beside the error, want none", what)
		}
	}
	edit := func(change func(r *sandboxmcp.Receipt)) sandboxmcp.Receipt {
		c := r
		c.Signatures = append([]sandboxmcp.ReceiptSignature(nil), r.Signatures...)
		change(&c)
		return c
	}
	text := func(s string, i int, flip byte) string {
		b := []byte(s)
		b[i] ^= flip
		return string(b)
	}
	for i := range len(r.Payload) {
		refused("character of the payload", edit(func(r *sandboxmcp.Receipt) { r.Payload = text(r.Payload, i, 1) }))
	}
	for i := range len(r.Signatures[0].Sig) {
		for _, flip := range []byte{1, 2, 4, 32} {
			refused("character of the signature", edit(func(r *sandboxmcp.Receipt) { r.Signatures[0].Sig = text(r.Signatures[0].Sig, i, flip) }))
		}
	}
	raw, _ := base64.StdEncoding.DecodeString(r.Payload)
	for i := range raw {
		b := append([]byte(nil), raw...)
		b[i] ^= 1
		refused("byte of the payload", edit(func(r *sandboxmcp.Receipt) { r.Payload = base64.StdEncoding.EncodeToString(b) }))
	}
	sig, _ := base64.StdEncoding.DecodeString(r.Signatures[0].Sig)
	for i := range sig {
		b := append([]byte(nil), sig...)
		b[i] ^= 1
		refused("byte of the signature", edit(func(r *sandboxmcp.Receipt) { r.Signatures[0].Sig = base64.StdEncoding.EncodeToString(b) }))
	}
	refused("line end in the payload", edit(func(r *sandboxmcp.Receipt) { r.Payload += "\n" }))
	refused("line end in the signature", edit(func(r *sandboxmcp.Receipt) {
		r.Signatures[0].Sig = r.Signatures[0].Sig[:4] + "\n" + r.Signatures[0].Sig[4:]
	}))
	refused("payload type", edit(func(r *sandboxmcp.Receipt) { r.PayloadType = "application/json" }))
	refused("key id", edit(func(r *sandboxmcp.Receipt) { r.Signatures[0].KeyID = sum("x") }))
	refused("no signature", edit(func(r *sandboxmcp.Receipt) { r.Signatures = nil }))
	refused("two signatures", edit(func(r *sandboxmcp.Receipt) { r.Signatures = append(r.Signatures, r.Signatures[0]) }))
	refused("nothing", sandboxmcp.Receipt{})

	other := newKey(t)
	if _, err := sign.Verify(r, other.Public()); err == nil {
		t.Error("Verify with another key: got no error, want one")
	}
	if _, err := sign.Verify(r, nil); err == nil {
		t.Error("Verify without a key: got no error, want one")
	}
	if _, err := sign.Verify(r, k.Public()); err != nil {
		t.Errorf("the untouched receipt: got %v, want nil", err)
	}
}

func artifact() sign.ArtifactStatement {
	session := sandboxmcp.SessionID("s1")
	return sign.ArtifactStatement{
		Namespace: "default", RequestID: "r1", SessionID: &session, Path: "/mnt/data/a <&>.txt", SizeBytes: 3,
		SHA256: sum("a"), CodeSHA256: sum("code"), CreatedAt: time.Date(2031, 1, 2, 3, 4, 5, 6007, time.UTC),
	}
}

func TestArtifact(t *testing.T) {
	k := newKey(t)
	sig, err := k.Artifact(artifact())
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := base64.StdEncoding.DecodeString(sig); err != nil || len(raw) != ed25519.SignatureSize {
		t.Errorf("signature: got %d bytes, %v", len(raw), err)
	}
	// The same moment in another zone, as a database may give it back.
	back := artifact()
	back.CreatedAt = back.CreatedAt.In(time.FixedZone("x", 7200))
	if err := sign.VerifyArtifact(back, sig, k.Public()); err != nil {
		t.Error(err)
	}
	another := sandboxmcp.SessionID("s2")
	for name, change := range map[string]func(*sign.ArtifactStatement){
		"namespace": func(a *sign.ArtifactStatement) { a.Namespace = "other" },
		"request":   func(a *sign.ArtifactStatement) { a.RequestID = "r2" },
		"session":   func(a *sign.ArtifactStatement) { a.SessionID = &another },
		"nosession": func(a *sign.ArtifactStatement) { a.SessionID = nil },
		"path":      func(a *sign.ArtifactStatement) { a.Path = "/mnt/data/b" },
		"badpath":   func(a *sign.ArtifactStatement) { a.Path = "/mnt/data/\xff" },
		"size":      func(a *sign.ArtifactStatement) { a.SizeBytes++ },
		"sha256":    func(a *sign.ArtifactStatement) { a.SHA256 = sum("b") },
		"code":      func(a *sign.ArtifactStatement) { a.CodeSHA256 = sum("b") },
		"time":      func(a *sign.ArtifactStatement) { a.CreatedAt = a.CreatedAt.Add(1) },
	} {
		a := artifact()
		change(&a)
		if err := sign.VerifyArtifact(a, sig, k.Public()); err == nil {
			t.Errorf("%s: got a verified artifact, want an error", name)
		}
	}
	for i := range len(sig) {
		b := []byte(sig)
		b[i] ^= 1
		if err := sign.VerifyArtifact(artifact(), string(b), k.Public()); err == nil {
			t.Errorf("character %d of the signature changed: got no error, want one", i)
		}
	}
	if err := sign.VerifyArtifact(artifact(), sig, newKey(t).Public()); err == nil {
		t.Error("VerifyArtifact with another key: got no error, want one")
	}
}

// What is signed for an artifact stays the same text from release to release,
// or old signatures would not verify any more.
func TestArtifactStatementIsFrozen(t *testing.T) {
	k := newKey(t)
	sig, err := k.Artifact(artifact())
	if err != nil {
		t.Fatal(err)
	}
	payload := `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"/mnt/data/a <&>.txt","digest":{"sha256":"` + sum("a") + `"}}],` +
		`"predicateType":"https://github.com/sandboxmcp/sandboxmcp/artifact/v1","predicate":{"version":1,"namespace":"default","request_id":"r1",` +
		`"session_id":"s1","size_bytes":3,"code_sha256":"` + sum("code") + `","created_at":"2031-01-02T03:04:05.000006007Z"}}`
	raw, _ := base64.StdEncoding.DecodeString(sig)
	if !ed25519.Verify(k.Public(), []byte("DSSEv1 28 application/vnd.in-toto+json "+itoa(len(payload))+" "+payload), raw) {
		t.Error("the statement: got another text, want the one of the specification")
	}
	// And it is no receipt, also in an envelope.
	r := sandboxmcp.Receipt{
		PayloadType: "application/vnd.in-toto+json", Payload: base64.StdEncoding.EncodeToString([]byte(payload)),
		Signatures: []sandboxmcp.ReceiptSignature{{KeyID: k.ID(), Sig: sig}},
	}
	if _, err := sign.Verify(r, k.Public()); err == nil || !strings.Contains(err.Error(), "no receipt") {
		t.Errorf("got %v, want that it is no receipt", err)
	}
}

func BenchmarkReceipt(b *testing.B) {
	k := newKey(b)
	s := sign.Statement{Predicate: predicate()}
	for b.Loop() {
		if _, err := k.Receipt(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkArtifact(b *testing.B) {
	k := newKey(b)
	a := artifact()
	for b.Loop() {
		if _, err := k.Artifact(a); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if _, err := sign.Open(dir); err != nil {
			b.Fatal(err)
		}
	}
}

// Read finds the key that Open has made, and makes none.
func TestReadMakesNoKey(t *testing.T) {
	dir := t.TempDir()
	if _, err := sign.Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a key: got %v, want that it does not exist", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("got %v and %v in the directory, want nothing", entries, err)
	}
	made, err := sign.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, sign.PublicFile)); err != nil {
		t.Fatal(err)
	}
	if got, err := sign.Read(dir); err != nil || got.ID() != made.ID() {
		t.Errorf("got %v, want the key", err)
	}
	if _, err := os.Stat(filepath.Join(dir, sign.PublicFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the public file: got %v, want that it is not made", err)
	}
}

// A secret depends on the key and on its purpose alone.
func TestDerive(t *testing.T) {
	derive := func(dir, purpose string) string {
		t.Helper()
		k, err := sign.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := k.Derive(purpose)
		if err != nil || len(secret) != 32 {
			t.Fatalf("got %d bytes and %v, want 32", len(secret), err)
		}
		return string(secret)
	}
	dir := t.TempDir()
	a := derive(dir, "a")
	if derive(dir, "a") != a {
		t.Error("the same purpose: got another secret, want the same one")
	}
	if derive(dir, "b") == a {
		t.Error("another purpose: got the same secret, want another one")
	}
	if derive(t.TempDir(), "a") == a {
		t.Error("another key: got the same secret, want another one")
	}
}

// TestResultsAreRead: a receipt is read from each result, whatever fields it has, and every field is either compared or
// listed as not signed.
func TestResultsAreRead(t *testing.T) {
	receipt, err := newKey(t).Receipt(sign.Statement{Predicate: predicate()})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(sandboxmcp.Result{
		Status: sandboxmcp.StatusFailed, Signal: "SIGKILL", SessionCreated: true, StateLost: true, StateLostIn: []sandboxmcp.Language{sandboxmcp.Python},
		Artifacts: []sandboxmcp.Artifact{{Name: "a", MIMEType: "text/plain"}}, ElapsedSeconds: 1, TimeoutSeconds: 1, Note: "n", Receipt: &receipt,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, doc, err := sign.ReadReceipt("the result", data)
	if err != nil {
		t.Fatalf("a whole result: got %v, want it to be read", err)
	}
	want := []string{"artifacts.created_at", "artifacts.mime_type", "duration_ms", "elapsed_seconds", "note", "resource_usage", "session_created", "signal", "state_lost", "state_lost_in", "timeout_seconds"}
	if d := cmp.Diff(want, doc.Unsigned()); d != "" {
		t.Errorf("not signed: %s", d)
	}
}
