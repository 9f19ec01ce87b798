package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// guard holds the secrets that are injected into a run, and the masker that removes all
// secrets of the namespace from its output.
type guard struct {
	masker *redact.Masker    // nil: nothing is masked
	given  map[string]string // environment variable to secret key
	beaten []string          // keys not injected because the caller set a variable of that name
	set    *vault.Set        // all secrets of the namespace
	err    error             // why the secrets could not be opened
	files  []string          // names of artifacts that contain a secret
}

// used returns the sorted keys of the injected secrets. It is never nil.
func (g *guard) used() []string {
	return append([]string{}, slices.Compact(slices.Sorted(maps.Values(g.given)))...)
}

// failure returns err with secrets masked in its message and hint.
func (g *guard) failure(err *sandboxmcp.Error) *sandboxmcp.Error {
	if err == nil || g.masker == nil {
		return err
	}
	masked := *err
	masked.Message, masked.Hint, masked.Err = g.masker.Text(err.Message), g.masker.Text(err.Hint), maskCause(g.masker, err.Err)
	return &masked
}

// maskedError is a cause with no secret in its text, which goes to the log. Programs choose
// names of files, and causes name files.
type maskedError struct {
	text  string
	cause error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.cause }

// maskCause keeps secrets out of the text of a cause.
func maskCause(m *redact.Masker, err error) error {
	if err == nil || m == nil {
		return err
	}
	if text := m.Text(err.Error()); text != err.Error() {
		return &maskedError{text, err}
	}
	return err
}

// choose selects the secrets that a run gets, and returns the audit entry that lists
// them; nil if there are none. keys are those of the namespace. It runs inside the
// transaction that records the intent.
func (e *Engine) choose(x *execution, keys []string) (*sandboxmcp.AuditEntry, error) {
	g := &x.guard
	g.given, g.beaten = map[string]string{}, nil
	all := e.cfg.VaultInject == injectAll && !x.req.NoSecrets
	for _, key := range keys {
		if value, set := x.req.Env[key]; all && set && !strings.HasPrefix(value, sandboxmcp.SecretRef) {
			g.beaten = append(g.beaten, key)
		} else if all && !set {
			g.given[key] = key
		}
	}
	for name, value := range x.req.Env {
		key, is := strings.CutPrefix(value, sandboxmcp.SecretRef)
		switch {
		case !is:
		case e.cfg.VaultInject == injectNone || x.req.NoSecrets:
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "env %s asks for a secret, but programs get none", sandboxmcp.Quote(name)).
				WithHint("an operator allows it with vault_inject")
		case !slices.Contains(keys, key):
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env %s asks for the secret %s, which the namespace does not have", sandboxmcp.Quote(name), sandboxmcp.Quote(key)).
				WithHint("a person adds it with `sandboxmcp vault add`")
		default:
			g.given[name] = key
		}
	}
	if len(g.given) == 0 {
		return nil, nil //nolint:nilnil // no secrets, so no entry
	}
	used := g.used()
	return &sandboxmcp.AuditEntry{
		Action: vault.Action, Phase: sandboxmcp.PhaseIntent, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
		Detail: vault.Detail("use", used), Metadata: map[string]any{"keys": used, "vault": e.vault.Kind()},
	}, nil
}

// Values of Config.VaultInject.
const (
	injectAll  = "all"
	injectNone = "none"
)

// openSecrets opens the namespace's secrets and makes the masker while the sandbox is being
// built. inject returns its error.
func (e *Engine) openSecrets(x *execution, opened func() (*vault.Set, error)) {
	g := &x.guard
	if g.set, g.err = opened(); g.err == nil {
		g.masker = e.maskers.of(x.who.Namespace, g.set, e.cfg.RedactPII)
	}
}

// inject puts the secrets into the program's environment. Variables that the caller set
// keep their value.
func (e *Engine) inject(x *execution) error {
	g := &x.guard
	if g.err != nil {
		return g.err
	}
	if x.live != nil {
		g.masker = x.live.remember(g, e.cfg.RedactPII)
	}
	if len(g.given) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, i := range g.set.Items {
		values[i.Key] = i.Value.Reveal()
	}
	env := maps.Clone(x.req.Env)
	if env == nil {
		env = map[string]string{}
	}
	for name, key := range g.given {
		env[name] = values[key]
	}
	x.req.Env = env // a copy: the map is the caller's
	e.emitSecrets(x.who.Namespace, "use", g.used(), x.names())
	return nil
}

// remember adds the secrets of a run to those that the session's programs have had. It
// returns a masker for all of them: a program may still hold a secret that was deleted or
// replaced.
func (r *liveSession) remember(g *guard, pii bool) *redact.Masker {
	r.had.mu.Lock()
	defer r.had.mu.Unlock()
	now := map[int64]bool{}
	given := slices.Collect(maps.Values(g.given))
	for _, i := range g.set.Items {
		now[i.Version] = true
		if slices.Contains(given, i.Key) {
			if r.had.all == nil {
				r.had.all = map[int64]redact.Secret{}
			}
			r.had.all[i.Version] = redact.Secret{Name: i.Key, Value: i.Value.Reveal()}
		}
	}
	var old []redact.Secret
	for version, s := range r.had.all {
		if !now[version] {
			old = append(old, s)
		}
	}
	if len(old) == 0 {
		return g.masker
	}
	slices.SortFunc(old, func(a, b redact.Secret) int { return strings.Compare(a.Name+"\x00"+a.Value, b.Name+"\x00"+b.Value) })
	if r.had.masker == nil || r.had.set != g.set || !slices.Equal(r.had.old, old) {
		r.had.set, r.had.old, r.had.masker = g.set, old, redact.New(append(secretsOf(g.set), old...), pii)
	}
	return r.had.masker
}

// hadSecrets holds the secrets that programs of a session have had, by version. It caches
// the masker until the current or the former secrets change.
type hadSecrets struct {
	mu     sync.Mutex
	all    map[int64]redact.Secret
	set    *vault.Set
	old    []redact.Secret
	masker *redact.Masker
}

func secretsOf(set *vault.Set) []redact.Secret {
	all := make([]redact.Secret, 0, len(set.Items))
	for _, i := range set.Items {
		all = append(all, redact.Secret{Name: i.Key, Value: i.Value.Reveal()})
	}
	return all
}

// maskers caches a masker for each namespace until its secrets change.
type maskers struct {
	mu  sync.Mutex
	all map[sandboxmcp.Namespace]maskerOf
	pii *redact.Masker // for namespaces without secrets
}

type maskerOf struct {
	set    *vault.Set
	masker *redact.Masker
}

func (m *maskers) of(ns sandboxmcp.Namespace, set *vault.Set, pii bool) *redact.Masker {
	if len(set.Items) == 0 && !pii {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(set.Items) == 0 {
		if m.pii == nil {
			m.pii = redact.New(nil, true)
		}
		return m.pii
	}
	have := m.all[ns]
	if have.set != set {
		if m.all == nil {
			m.all = map[sandboxmcp.Namespace]maskerOf{}
		}
		have = maskerOf{set, redact.New(secretsOf(set), pii)}
		m.all[ns] = have
	}
	return have.masker
}

// keepSecrets masks secrets in the driver's report. It lists in the metadata which
// secrets the program had, which were shadowed by the caller's variables, and of which a
// part was seen.
func (x *execution) keepSecrets(o *run.Outcome) {
	g := &x.guard
	if len(g.given) > 0 {
		x.metadata["secrets_exposed"] = slices.Sorted(maps.Keys(g.given))
	}
	if len(g.beaten) > 0 {
		x.metadata["secrets_shadowed"] = g.beaten
	}
	m := g.masker
	if m == nil {
		return
	}
	partial := x.run.Partial()
	if slices.Sort(partial); len(partial) > 0 {
		x.metadata["secrets_partial"] = slices.Compact(partial)
	}
	for i, r := range o.Report.Results {
		o.Report.Results[i] = maskResult(m, r)
	}
	if p := o.Report.Error; p != nil {
		p.Name, p.Value = m.Text(p.Name), m.Text(p.Value)
		whole := strings.Join(p.Traceback, "\n") // a secret may span lines
		if text := m.Text(whole); text != whole {
			p.Traceback = strings.Split(text, "\n")
		}
	}
	if s := o.Report.Syntax; s != nil {
		s.Name, s.Message = m.Text(s.Name), m.Text(s.Message)
	}
}

// maskResult masks secrets in every form of a displayed value. A picture that contains a
// secret is removed, because it cannot be masked.
func maskResult(m *redact.Masker, r sandboxmcp.RichResult) sandboxmcp.RichResult {
	if m == nil {
		return r
	}
	for form, v := range r {
		switch v := v.(type) {
		case json.RawMessage:
			r[form] = m.JSON(v)
		case string:
			if text := m.Text(v); text != v && !isPicture(form) {
				r[form] = text
			} else if text != v || isPicture(form) && m.Find(pictureBytes(v)) != "" {
				delete(r, form)
			}
		}
	}
	if len(r) <= 1 { // only is_main_result is left
		r["text/plain"] = redact.Mask
	}
	return r
}

func isPicture(form string) bool { return form == "image/png" || form == "image/jpeg" }

func pictureBytes(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil
	}
	return data
}

// guardFiles makes src refuse files that contain a secret, and mask secrets in file
// names.
func (e *Engine) guardFiles(x *execution, src *artifact.Source) {
	m := x.guard.masker
	if m == nil {
		return
	}
	src.Rename = m.Text
	src.Refuse = func(name string, data []byte) string {
		key := m.Find(data)
		if key == "" {
			return ""
		}
		if e.cfg.AllowSecretArtifacts {
			x.guard.files = append(x.guard.files, m.Text(name))
			return ""
		}
		return fmt.Sprintf("it holds the secret %s (allow_secret_artifacts hands such files out)", key)
	}
}

func secretFileError(name, key string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "%s holds the secret %s, and is not handed out", sandboxmcp.Quote(name), key).
		WithHint("leave the secret out of the file; an operator lets such files out with allow_secret_artifacts")
}

// masksOf returns the masker for texts of a live session: it masks the secrets of its
// namespace and those that its programs have had.
func (e *Engine) masksOf(ctx context.Context, ns sandboxmcp.Namespace, r *liveSession) (*redact.Masker, error) {
	set, err := e.vault.Current(ctx, ns)
	if err != nil {
		return nil, err
	}
	return r.remember(&guard{set: set, masker: e.maskers.of(ns, set, e.cfg.RedactPII)}, e.cfg.RedactPII), nil
}

// masks returns the masker for texts of a namespace, or of one of its live sessions. The
// masker may be nil, which masks nothing.
func (e *Engine) masks(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (*redact.Masker, error) {
	if id != "" {
		if s, err := e.sessions.Find(ctx, ns, id); err == nil {
			if r, ok := s.Room().(*liveSession); ok {
				return e.masksOf(ctx, ns, r)
			}
		}
	}
	set, err := e.vault.Current(ctx, ns)
	if err != nil {
		return nil, err
	}
	return e.maskers.of(ns, set, e.cfg.RedactPII), nil
}

// plainName refuses a name of the caller's choice that contains a secret, because the
// audit log, events and logs show names unmasked. what is the kind of name, for the
// error.
func (e *Engine) plainName(ctx context.Context, ns sandboxmcp.Namespace, what, name string) error {
	masks, err := e.masks(ctx, ns, "")
	if err != nil {
		return err
	}
	if key := masks.Find([]byte(name)); key != "" {
		return holdsSecret(what, key)
	}
	return nil
}

func holdsSecret(what, key string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds the secret %s", what, key).WithHint("choose a name without it")
}

// maskBridge masks secrets in values that leave a session. It drops values whose key
// contains a secret.
func maskBridge(m *redact.Masker, data map[string]json.RawMessage) {
	if m == nil {
		return
	}
	for k, v := range data {
		if m.Find([]byte(k)) != "" {
			delete(data, k)
			continue
		}
		data[k] = m.JSON(v)
	}
}
