package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// Request is what a run says about its secrets.
type Request struct {
	Env  map[string]string     // variables of the caller; a value may name a secret
	None bool                  // the run gets no secrets
	Like sandboxmcp.AuditEntry // an entry of the run, with its namespace
}

// Run holds the secrets that are injected into a run, and the masker that removes all
// secrets of the namespace from its output. Its methods may not be called concurrently.
type Run struct {
	guard *Guard
	req   Request

	masker *redact.Masker    // nil: nothing is masked
	given  map[string]string // environment variable to secret key
	back   bool              // a file was left out because it holds a secret
	keys   []string          // of the namespace
	beaten []string          // keys not injected because the caller set a variable of that name
	opened func() (*vault.Set, error)
	set    *vault.Set // all secrets of the namespace
	err    error      // why the secrets could not be opened
	files  []string   // names of artifacts that contain a secret
	halves []string   // keys of secrets of which a part was handed out unmasked
}

// NewRun returns the secrets of a run. It has none before Use and Open.
func (g *Guard) NewRun(r Request) *Run { return &Run{guard: g, req: r} }

// Use chooses the run's secrets. It returns the audit entry that lists them, to be recorded with the
// run's intent, or nil if there are none. If the request names a secret that it cannot get, the
// error is access_denied or invalid_argument.
func (r *Run) Use(ctx context.Context) (entry *sandboxmcp.AuditEntry, err error) {
	entry, open, err := r.guard.cfg.Vault.Use(ctx, r.req.Like.Namespace, r.choose)
	r.opened = open
	return entry, err
}

// choose selects the secrets that a run gets. It returns the audit entry that lists them, or nil if
// there are none. keys are the keys of the namespace.
func (r *Run) choose(keys []string) (*sandboxmcp.AuditEntry, error) {
	r.keys, r.given, r.beaten = keys, map[string]string{}, nil
	inject := r.guard.cfg.Inject
	all := inject == InjectAll && !r.req.None
	for _, key := range keys {
		if value, set := r.req.Env[key]; all && set && !strings.HasPrefix(value, sandboxmcp.SecretRef) {
			r.beaten = append(r.beaten, key)
		} else if all && !set {
			r.given[key] = key
		}
	}
	for name, value := range r.req.Env {
		key, is := strings.CutPrefix(value, sandboxmcp.SecretRef)
		switch {
		case !is:
		case inject == InjectNone || r.req.None:
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "env %s asks for a secret, but programs get none", sandboxmcp.Quote(name)).
				WithHint("an operator allows it with vault_inject")
		case !slices.Contains(keys, key):
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env %s asks for the secret %s, which the namespace does not have", sandboxmcp.Quote(name), sandboxmcp.Quote(key)).
				WithHint("a person adds it with `sandboxmcp vault add`")
		default:
			r.given[name] = key
		}
	}
	if len(r.given) == 0 {
		return nil, nil //nolint:nilnil // no secrets, so no entry
	}
	used, entry := r.Used(), r.req.Like
	entry.Action, entry.Phase = vault.Action, sandboxmcp.PhaseIntent
	entry.Detail, entry.Metadata = vault.Detail("use", used), map[string]any{"keys": used, "vault": r.guard.cfg.Vault.Kind()}
	return &entry, nil
}

// Open opens the namespace's secrets and makes the masker, which may have to wait. The caller has committed the
// transaction of Use. Inject returns the error of Open.
func (r *Run) Open(ctx context.Context) {
	if r.set, r.err = r.opened(); r.err == nil {
		r.masker, r.err = r.guard.maskers.of(ctx, r.req.Like.Namespace, r.set, r.guard.cfg.PII)
	}
}

// Inject returns the program's environment including its secrets, or nil if it gets none. Variables
// that the caller set keep their values. had belongs to the live session; nil: a single run. If the
// secrets could not be opened, Inject fails. It fails with access_denied if had has no room for more secrets, and with
// queue_full if the secrets change too often.
func (r *Run) Inject(ctx context.Context, had *Had) (map[string]string, error) {
	if r.err != nil {
		return nil, r.err
	}
	if had != nil {
		masker, err := r.guard.Secrets(r.req.Like.Namespace, had).andFormer(ctx, r.set, r.masker)
		if err != nil {
			return nil, err
		}
		r.masker = masker
		given := slices.Collect(maps.Values(r.given))
		if len(given) > 0 && had.full(r.set) {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "programs of the session have had %d secrets, or %d KiB of them, that were replaced or deleted since, and get no more", maxFormer, maxFormerBytes>>10).
				WithHint("make a new session")
		}
		had.give(r.set, given)
	}
	if len(r.given) == 0 {
		return nil, nil //nolint:nilnil // the program gets no secrets
	}
	values := map[string]string{}
	for _, i := range r.set.Items {
		values[i.Key] = i.Value.Reveal()
	}
	env := maps.Clone(r.req.Env) // the map is the caller's
	if env == nil {
		env = map[string]string{}
	}
	for name, key := range r.given {
		env[name] = values[key]
	}
	return env, nil
}

// Used returns the sorted keys of the injected secrets. It is never nil.
func (r *Run) Used() []string {
	return append([]string{}, slices.Compact(slices.Sorted(maps.Values(r.given)))...)
}

// Withheld returns the keys of the namespace that the run did not get.
func (r *Run) Withheld() []string {
	used := r.Used()
	return slices.DeleteFunc(slices.Clone(r.keys), func(key string) bool { return slices.Contains(used, key) })
}

// Lacks reports that no secret of the namespace has the key, and that no variable of that name was
// given to the run.
func (r *Run) Lacks(key string) bool {
	_, given := r.given[key]
	return !given && !slices.Contains(r.keys, key)
}

// Masker returns the masker of the run; nil if nothing is masked, as for a nil Run.
func (r *Run) Masker() *redact.Masker {
	if r == nil {
		return nil
	}
	return r.masker
}

// KeptBack reports whether a file was left out because it holds a secret.
func (r *Run) KeptBack() bool { return r.back }

// Describe adds to a result's metadata which secrets the program had and which were shadowed by the
// caller's variables. It also adds the secrets of which a part was handed out, and the artifacts
// that contain a secret. It may be called again after more was handed out.
func (r *Run) Describe(metadata map[string]any) {
	if len(r.given) > 0 {
		metadata["secrets_available"] = slices.Sorted(maps.Keys(r.given))
	}
	if len(r.beaten) > 0 {
		metadata["secrets_shadowed"] = r.beaten
	}
	if slices.Sort(r.halves); len(r.halves) > 0 {
		metadata["secrets_partial"] = slices.Compact(slices.Clone(r.halves))
	}
	if len(r.files) > 0 {
		metadata["secret_artifacts"] = r.files
	}
}

// Report masks secrets in the driver's report. It records the secrets of which a part is in the
// report or in output. output has ended.
func (r *Run) Report(report *kernel.Report, output ...*redact.Stream) {
	m := r.masker
	if m == nil {
		return
	}
	for _, s := range output {
		r.halves = append(r.halves, s.Partial()...)
	}
	for i, v := range report.Results {
		r.halves = append(r.halves, partsShown(m, v)...)
		report.Results[i] = Result(m, v)
	}
	if p := report.Error; p != nil {
		r.halves = append(r.halves, m.Partial([]byte(p.Value))...)
		p.Name, p.Value = m.Text(p.Name), m.Text(p.Value)
		whole := strings.Join(p.Traceback, "\n") // a secret may span lines
		if text := m.Text(whole); text != whole {
			p.Traceback = strings.Split(text, "\n")
		}
	}
	if s := report.Syntax; s != nil {
		s.Name, s.Message = m.Text(s.Name), m.Text(s.Message)
	}
}

// partsShown returns the secrets of which a displayed value contains a part.
func partsShown(m *redact.Masker, r sandboxmcp.RichResult) (keys []string) {
	for form, v := range r {
		switch v := v.(type) {
		case json.RawMessage:
			keys = append(keys, m.Partial(v)...)
		case string:
			if !isPicture(form) {
				keys = append(keys, m.Partial([]byte(v))...)
			}
		}
	}
	return keys
}

// halvesIn bounds the bytes of a run's files that are searched for parts of secrets, because the
// search takes the server's time.
const halvesIn = 8 << 20

// Files makes src refuse files that contain a secret and mask secrets in file names. It records the
// secrets of which a file or a name contains a part.
func (r *Run) Files(src *artifact.Source) {
	m := r.masker
	if m == nil {
		return
	}
	left := halvesIn
	src.Rename = func(name string) string {
		r.halves = append(r.halves, m.Partial([]byte(name))...)
		return m.Text(name)
	}
	src.Refuse = func(name string, data []byte) string {
		key := m.Find(data)
		if key == "" {
			n := min(len(data), left)
			left -= n
			r.halves = append(r.halves, m.Partial(data[:n])...)
			return ""
		}
		if r.guard.cfg.AllowFiles {
			r.files = append(r.files, m.Text(name))
			return ""
		}
		r.back = true
		return fmt.Sprintf("it holds the secret %s", key)
	}
}
