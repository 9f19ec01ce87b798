package guard_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

var caller = sandboxmcp.Caller{Namespace: "ns", Actor: "tester"}

// kit is a guard over a vault in memory that has secrets A and B.
type kit struct {
	*guard.Guard

	vault *vault.Vault
	audit *audit.Log
}

const valueA, valueB = "Kit-0123456789/a", "Kit-9876543210/b"

func open(t *testing.T, c guard.Config) *kit {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(context.WithoutCancel(t.Context()), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log.Close(context.WithoutCancel(t.Context()))
		_ = s.Close()
	})
	k := &kit{audit: log}
	if k.vault, err = vault.Open(vault.Config{Kind: vault.Memory, Store: s, Audit: log, Check: guard.CheckSecret}); err != nil {
		t.Fatal(err)
	}
	c.Vault = k.vault
	k.Guard = guard.New(c)
	k.add(t, "A", valueA)
	k.add(t, "B", valueB)
	return k
}

func (k *kit) add(t *testing.T, key, value string) {
	t.Helper()
	if err := k.vault.Add(t.Context(), caller, sandboxmcp.SecretSpec{Key: key, Value: sandboxmcp.NewSecret(value)}); err != nil {
		t.Fatal(err)
	}
}

// run takes a run as far as its environment.
func (k *kit) run(t *testing.T, env map[string]string, none bool, had *guard.Had) (*guard.Run, map[string]string, error) {
	t.Helper()
	r := k.NewRun(guard.Request{Env: env, None: none, Like: sandboxmcp.AuditEntry{RequestID: "r1", Namespace: "ns", Actor: "tester"}})
	e, err := r.Use(t.Context())
	if err == nil && e != nil {
		_, err = k.audit.Append(t.Context(), *e)
	}
	if err != nil {
		return r, nil, err
	}
	r.Open(t.Context())
	got, err := r.Inject(t.Context(), had)
	return r, got, err
}

func TestWhichSecretsAProgramGets(t *testing.T) {
	for name, c := range map[string]struct {
		inject string
		env    map[string]string
		none   bool
		want   map[string]string
		used   []string
		code   sandboxmcp.Code
	}{
		"All":       {guard.InjectAll, map[string]string{"X": "1"}, false, map[string]string{"A": valueA, "B": valueB, "X": "1"}, []string{"A", "B"}, ""},
		"Shadowed":  {guard.InjectAll, map[string]string{"A": "mine"}, false, map[string]string{"A": "mine", "B": valueB}, []string{"B"}, ""},
		"Named":     {"named", map[string]string{"X": sandboxmcp.SecretRef + "A"}, false, map[string]string{"X": valueA}, []string{"A"}, ""},
		"NotNamed":  {"named", map[string]string{"X": "1"}, false, nil, []string{}, ""},
		"None":      {guard.InjectNone, nil, false, nil, []string{}, ""},
		"NoneNamed": {guard.InjectNone, map[string]string{"X": sandboxmcp.SecretRef + "A"}, false, nil, nil, sandboxmcp.CodeAccessDenied},
		"Refused":   {guard.InjectAll, nil, true, nil, []string{}, ""},
		"Unknown":   {guard.InjectAll, map[string]string{"X": sandboxmcp.SecretRef + "C"}, false, nil, nil, sandboxmcp.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			k := open(t, guard.Config{Inject: c.inject})
			r, got, err := k.run(t, c.env, c.none, nil)
			if sandboxmcp.CodeOf(err) != c.code && err != nil || (err != nil) != (c.code != "") {
				t.Fatalf("got %v, want %q", err, c.code)
			}
			if err != nil {
				return
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("the environment (-want +got):\n%s", d)
			}
			if !slices.Equal(r.Used(), c.used) {
				t.Errorf("got %v used, want %v", r.Used(), c.used)
			}
			if text := r.Masker().Text(valueA + valueB); text != redact.Mask {
				t.Errorf("got %q, want both secrets masked, also those that the program has not", text)
			}
		})
	}
}

func TestASessionMasksSecretsThatItsProgramsHaveHad(t *testing.T) {
	k, had := open(t, guard.Config{Inject: guard.InjectAll}), &guard.Had{}
	if _, _, err := k.run(t, nil, false, had); err != nil {
		t.Fatal(err)
	}
	if err := k.vault.Delete(t.Context(), caller, "A"); err != nil {
		t.Fatal(err)
	}
	k.add(t, "B", "Kit-5555555555/c")
	text := strings.Join([]string{valueA, valueB, "Kit-5555555555/c"}, " ")
	r, _, err := k.run(t, nil, true, had)
	if err != nil {
		t.Fatal(err)
	}
	current, err := k.Secrets("ns", had).Masks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*redact.Masker{"the run": r.Masker(), "the session": current} {
		if got := m.Text(text); strings.Contains(got, "Kit-") {
			t.Errorf("%s: got %q, want all of it masked", name, got)
		}
	}
	other, err := k.Secrets("ns", &guard.Had{}).Masks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := other.Text(text); !strings.Contains(got, valueA) || strings.Contains(got, "Kit-5") {
		t.Errorf("another session: got %q, want only the secrets of now masked", got)
	}
}

// TestAttackASessionRemembersABoundedNumberOfSecrets: a caller replaces its secrets before each run of a session.
// The session has to mask all that its programs have had, which takes the server's memory and time.
func TestAttackASessionRemembersABoundedNumberOfSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		most  int
		value func(i int) string
	}{
		"Count": {101, func(i int) string { return fmt.Sprintf("Kit-replaced-%03d", i) }},
		"Bytes": {3, func(i int) string { return fmt.Sprintf("Kit-replaced-%03d", i) + strings.Repeat("x", 64<<10-16) }},
	} {
		t.Run(name, func(t *testing.T) {
			k, had := open(t, guard.Config{Inject: guard.InjectAll}), &guard.Had{}
			if err := k.vault.Delete(t.Context(), caller, "B"); err != nil {
				t.Fatal(err)
			}
			runs := 0
			var err error
			for ; runs < 2*c.most && err == nil; runs++ {
				k.add(t, "A", c.value(runs))
				_, _, err = k.run(t, nil, false, had)
			}
			if sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied || runs != c.most {
				t.Fatalf("run %d: got %v, want access_denied in run %d", runs, err, c.most)
			}
			r, env, err := k.run(t, nil, true, had)
			if err != nil || env != nil {
				t.Fatalf("without secrets: got %v, %v, want a run", env, err)
			}
			for i := range runs { // the last one was not given, and is current
				if got := r.Masker().Text(c.value(i)); got != redact.Mask {
					t.Errorf("value %d: got %.40q, want it masked", i, got)
				}
			}
			if _, _, err = k.run(t, nil, false, &guard.Had{}); err != nil {
				t.Errorf("another session: got %v, want a run", err)
			}
		})
	}
}

// TestAValueThatIsPutAgainCountsOnce: a session gets two values by turns, more often than it may remember values.
func TestAValueThatIsPutAgainCountsOnce(t *testing.T) {
	k, had := open(t, guard.Config{Inject: guard.InjectAll}), &guard.Had{}
	for i := range 220 {
		k.add(t, "A", fmt.Sprintf("Kit-hourly-%03d", i%2))
		if _, _, err := k.run(t, nil, false, had); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

func TestReportsAndFilesHaveNoSecrets(t *testing.T) {
	k := open(t, guard.Config{Inject: guard.InjectAll})
	r, _, err := k.run(t, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	report := kernel.Report{
		Results: []sandboxmcp.RichResult{{"text/plain": valueA, "image/png": valueA, "is_main_result": true}},
		Error:   &sandboxmcp.ProgramError{Name: valueA, Value: valueB, Traceback: []string{"line", valueA}},
		Syntax:  &kernel.SyntaxError{Name: "SyntaxError", Message: valueB},
	}
	r.Report(&report)
	if d := cmp.Diff(kernel.Report{
		Results: []sandboxmcp.RichResult{{"text/plain": redact.Mask, "is_main_result": true}},
		Error:   &sandboxmcp.ProgramError{Name: redact.Mask, Value: redact.Mask, Traceback: []string{"line", redact.Mask}},
		Syntax:  &kernel.SyntaxError{Name: "SyntaxError", Message: redact.Mask},
	}, report); d != "" {
		t.Errorf("the report (-want +got):\n%s", d)
	}
	for allow, want := range map[bool]string{false: "it holds the secret A", true: ""} {
		k = open(t, guard.Config{Inject: guard.InjectAll, AllowFiles: allow})
		if r, _, err = k.run(t, nil, false, nil); err != nil {
			t.Fatal(err)
		}
		src := artifact.Source{}
		r.Files(&src)
		if got := src.Refuse(valueB, []byte("x"+valueA)); got != want {
			t.Errorf("allowed %v: got %q, want %q", allow, got, want)
		}
		if got := src.Rename(valueB + ".txt"); got != redact.Mask+".txt" {
			t.Errorf("got the name %q, want it masked", got)
		}
		metadata := map[string]any{}
		r.Describe(metadata)
		got, _ := metadata["secret_artifacts"].([]string)
		if allow && !slices.Equal(got, []string{redact.Mask}) || !allow && got != nil {
			t.Errorf("allowed %v: got %q let out", allow, got)
		}
	}
}
