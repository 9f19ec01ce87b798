package host

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Config configures a [Host].
type Config struct {
	Enabled     bool
	AutoApprove bool     // commands need no rule; blocked ones stay blocked
	Allowed     []string // commands that need no approval, by their first words
	Blocked     []string // commands that are always refused
	Roots       []string // directories of the file tools
	Workspace   string   // directory that files are copied into; empty: none
	Changeable  string   // directory that programs in sandboxes can change, without links; empty: none
	Own         []string // files and directories of this program, which are always refused
	Obeyed      []string // files of the operator with proofs, which the file tools refuse; commands may read them
	Started     []string // files, and directories with what this program starts outside of sandboxes or trusts, such as interpreters; the file tools do not write there

	Found func(ctx context.Context) ([]string, error) // further such directories, as they are known when a file is written; nil: none

	Store      *store.Store
	Audit      *audit.Log
	Key        func(purpose string) ([]byte, error) // see [gate.Config]
	Endings    *gate.Endings                        // see [gate.Config]
	Invocation sandboxmcp.Invocation
	Notices    io.Writer
	Now        func() time.Time
	Logger     *slog.Logger
}

// Host executes commands of this machine and reads and writes its files. Its methods may be
// called concurrently. While host access is off, all but [Host.List] and the decisions of
// persons fail with host_access_disabled.
type Host struct {
	cfg   Config
	gate  *gate.Gate[Pattern]
	set   atomic.Pointer[ruleSet]
	pins  pins
	Files *Files
}

// New returns the host. It fails with invalid_argument if a rule of the settings cannot be
// parsed.
func New(c Config) (*Host, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	h := &Host{cfg: c}
	h.gate = gate.New(gate.Config[Pattern]{
		Kind: kind(), Store: c.Store, Audit: c.Audit, Key: c.Key, Endings: c.Endings, Approvals: c.Enabled, Now: c.Now, Notices: c.Notices, Invocation: c.Invocation, Logger: c.Logger,
	})
	h.Files = &Files{host: h}
	for _, all := range []*[]string{&h.cfg.Own, &h.cfg.Obeyed} {
		paths := *all
		*all = nil
		for _, path := range paths {
			abs, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			*all = append(*all, abs, newTree(abs).real) // later, a link may lead elsewhere; this program still uses the key that was there
		}
	}
	for _, started := range c.Started {
		if abs, err := filepath.Abs(started); err == nil {
			h.Files.started = append(h.Files.started, abs, newTree(abs).real)
		}
	}
	h.Files.SetRoots(c.Roots)
	rules, err := h.ParseRules(c.Allowed, c.Blocked)
	if err != nil {
		return nil, err
	}
	h.SetRules(rules)
	if !c.Enabled {
		return h, nil
	}
	if c.AutoApprove {
		c.warn(autoWarning)
	}
	if c.Workspace != "" {
		w := newTree(c.Workspace)
		h.Files.workspace = &w
	}
	return h, nil
}

// Rules are the rules of the settings for commands.
type Rules struct{ set *ruleSet }

// ruleSet has the rules, and their texts. It does not change.
type ruleSet struct {
	allowed      []string
	blockedTexts []string
	rules        []*Rule
	blocked      Blocked
}

// ParseRules parses the rules of host_allowed_commands and host_blocked_commands. It fails with
// invalid_argument.
func (h *Host) ParseRules(allowed, blocked []string) (Rules, error) {
	s := &ruleSet{allowed: allowed, blockedTexts: blocked}
	var err error
	if s.blocked, err = newBlocked(blocked); err != nil {
		return Rules{}, inSetting("host_blocked_commands", err)
	}
	if !h.cfg.Enabled {
		return Rules{s}, nil
	}
	for _, text := range allowed {
		r, err := newRule(text)
		if err != nil {
			return Rules{}, inSetting("host_allowed_commands", err)
		}
		if why := Warning(append([]string{r.Name}, r.Words...)); why != "" {
			h.cfg.warn("a rule of host_allowed_commands is dangerous", "rule", text, "why", why)
		}
		s.rules = append(s.rules, r)
	}
	return Rules{s}, nil
}

// SetRules replaces the rules, for commands that are not executed yet.
func (h *Host) SetRules(r Rules) { h.set.Store(r.set) }

func (c *Config) warn(text string, more ...any) {
	if c.Logger != nil {
		c.Logger.Warn(text, more...) //nolint:sloglint // callers pass constants
	}
}

func inSetting(name string, err error) error {
	e := *sandboxmcp.AsError(err)
	e.Message = name + ": " + e.Message
	return &e
}

// autoWarning is in every result while commands need no approval.
const autoWarning = "host_auto_approve is on: host commands are executed without asking a person"

// Limits of a command's time.
const (
	defaultTime = 120 * time.Second
	maxTime     = time.Hour
)

// Exec executes a command. A command that fails is no error. It fails with invalid_argument,
// host_access_denied, host_access_blocked or host_path_denied before anything is executed.
func (h *Host) Exec(ctx context.Context, c sandboxmcp.Caller, cmd sandboxmcp.HostCommand, masks gate.Masks) (sandboxmcp.HostOutput, error) {
	if !h.cfg.Enabled {
		return sandboxmcp.HostOutput{}, disabled()
	}
	words, err := wordsOf(cmd)
	if err != nil {
		return sandboxmcp.HostOutput{}, h.refused(ctx, c, "host_exec", "a command that cannot be read", err)
	}
	if err = masks.Plain("the command", Line(words)); err != nil {
		return sandboxmcp.HostOutput{}, h.refused(ctx, c, "host_exec", "a command with a secret", err)
	}
	id := sandboxmcp.RequestID(uuid.NewString())
	act := entry{c: c, action: "host_exec", detail: cut(Line(words)), request: id}
	more := map[string]any{}
	if line := Line(words); act.detail != line {
		more["command"] = line // the detail is cut, and the rest of the command may be what it does
	}
	if cmd.Timeout == 0 {
		cmd.Timeout = defaultTime
	}
	j, err := looked(ctx, max(cmd.Timeout, time.Second), func(ctx context.Context) (job, error) { return h.prepare(ctx, c, cmd, words, id) })
	if err != nil {
		return sandboxmcp.HostOutput{}, h.outcome(ctx, entry{c: c, action: act.action, detail: act.detail}, more, err, false)
	}
	defer func() { _ = j.file.Close() }()
	maps.Copy(more, map[string]any{"rule": j.rule, "program": j.path, "cwd": masks.Text(j.dir), "timeout_seconds": j.timeout.Seconds()})
	if err = h.intent(ctx, act, more); err != nil {
		return sandboxmcp.HostOutput{}, err
	}
	began := h.cfg.Now()
	e, err := execute(ctx, j)
	out := h.output(e, masks, j.timeout)
	out.Rule = j.rule
	if err == nil { // else the command has not begun
		act.exit = &out.ExitCode
	}
	switch {
	case errors.Is(err, errReplaced), errors.Is(err, errForeign), errors.Is(err, errUnwalled), errors.Is(err, errLarge):
		err = notExecuted(words[0], err)
	case errors.As(err, new(*sandboxmcp.Error)): // the files that it may use were not opened in time
	case err != nil:
		err = sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s could not be started", sandboxmcp.Quote(j.path)).WithHint("see the server's log").WithCause(err)
		h.cfg.warn("a host command could not be started", "program", j.path, "error", sandboxmcp.AsError(err).Unwrap())
	}
	if err == nil && e.why == stoppedCaller {
		err = sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled, and the command was ended")
	}
	act.took = h.cfg.Now().Sub(began)
	return out, h.outcome(ctx, act, map[string]any{"stdout_bytes": e.total[0], "stderr_bytes": e.total[1], "stopped": e.why, "walls": e.walls}, err, out.Success)
}

// wordsOf returns the words of a command.
func wordsOf(cmd sandboxmcp.HostCommand) ([]string, error) {
	if cmd.Timeout < 0 || cmd.Timeout > maxTime {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "timeout is %g s; it has to be at most %g", cmd.Timeout.Seconds(), maxTime.Seconds())
	}
	if len(cmd.Argv) > 0 {
		return cmd.Argv, CheckWords(cmd.Argv)
	}
	return Words(cmd.Command)
}

// prepare decides whether a command may be executed. If ctx ends first, it fails. The caller closes the job's file.
func (h *Host) prepare(ctx context.Context, c sandboxmcp.Caller, cmd sandboxmcp.HostCommand, words []string, id sandboxmcp.RequestID) (job, error) {
	j := job{timeout: cmd.Timeout}
	if rule := h.set.Load().blocked.rule(words, ""); rule != "" {
		return j, blockedError(words, rule)
	}
	r, named, err := h.ruleFor(ctx, c, words, id)
	if err != nil {
		return j, err
	}
	j.rule = named
	if rule := h.set.Load().blocked.rule(words, r.program.path); rule != "" {
		return j, blockedError(words, rule)
	}
	look := newBudget(lateIn(ctx), maxLooked)
	j.reads = closedPlaces(look, h.cfg.Own) // as they are now
	closed := newPlaces(j.reads)
	closed.own = h.cfg.Own
	if j.dir, err = h.dir(look, cmd.Dir, closed); err != nil {
		return j, err
	}
	if r.approved() && cmd.Dir != "" && !h.Files.holds(j.dir) {
		return j, pathDenied(cmd.Dir, "a person has allowed this command without a directory, and would not expect it there").
			WithHint("name a directory below host_roots, or none")
	}
	paths, err := arguments(j.dir, words[1:], closed, h.awayFrom(look, r))
	if err != nil {
		return j, err
	}
	s, err := h.only(look, r, words, j.dir, paths)
	if err != nil {
		return j, err
	}
	j.reads = append(j.reads, s.closed...)
	j.only, j.lists, j.known = s.reads, s.lists, r.usual
	env := settingsOfNpm(look, r.program.path)
	if r.Exact != nil {
		j.writes, j.unwritten = h.Files.namedIn(ctx, words[1:])
	}
	if err = look.over(); err != nil {
		return j, err
	}
	if j.file, err = r.program.open(); err != nil {
		return j, notExecuted(words[0], err)
	}
	j.pinned = r.program.pinned
	j.path, j.words, j.env = r.program.path, r.words(words), slices.Concat(environment(), env, s.env)
	if !r.Any {
		j.execs, j.after, j.last = r.program.execs, r.program.after, !r.program.again
	}
	return j, nil
}

// notExecuted is the error for a program that is not there, or not as it was.
func notExecuted(name string, err error) error {
	why := errNotThere
	for _, known := range []error{errReplaced, errForeign, errUnwalled, errLarge} {
		if errors.Is(err, known) {
			why = known
		}
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeHostAccessDenied, "%s is not executed: %s", sandboxmcp.Quote(name), why.Error()).
		WithHint("a person checks the program and restarts the server").With("success", false).With("denied", true)
}

// ruleFor returns the rule that allows a command, and its name.
func (h *Host) ruleFor(ctx context.Context, c sandboxmcp.Caller, words []string, id sandboxmcp.RequestID) (*Rule, string, error) {
	for _, r := range h.set.Load().rules {
		if r.fits(words) {
			return r, "host_allowed_commands: " + r.Text, nil
		}
	}
	prog, unknown := find(words[0])
	if unknown == nil {
		if err := h.unchangeable(words[0], prog); err != nil {
			return nil, "", err
		}
	}
	replaced := false
	p, ok, err := h.gate.AllowsSince(ctx, gate.Who{Namespace: c.Namespace, RequestID: id}, func(p Pattern, made time.Time) bool {
		if !p.matches(words) || unknown != nil {
			return false
		}
		changed := prog.changedSince(made, h.system)
		replaced = replaced || changed
		return !changed
	})
	if err != nil {
		return nil, "", err
	}
	named := "approved: " + p.String()
	if !ok && !h.cfg.AutoApprove {
		if replaced {
			return nil, "", changedProgram(words)
		}
		return nil, "", denied(words)
	}
	if unknown != nil {
		return nil, "", unknown
	}
	if !ok {
		named = "host_auto_approve"
	}
	r := &Rule{Text: named, Name: words[0], Words: words[1:], Exact: &p, Any: runs(words[0], words[1:]), program: prog}
	if h.pins.changed(r.program) {
		return nil, "", denied(words).WithHint("the program file was replaced after its rule was made; a person checks it and restarts the server")
	}
	return r, named, nil
}

// changedProgram is the error for a command that a person has allowed before a file of its program was changed.
func changedProgram(words []string) *sandboxmcp.Error {
	return denied(words).WithHint("a file of the program was changed after a person allowed it; a person checks it, and allows it again after host access revoke")
}

// unchangeable refuses a program that programs in sandboxes can change, also between its check and its start, and by files beside
// it, such as modules of a script. If nothing is there yet, or there is too much to look at, the path itself counts: a program in a sandbox can
// change that after a person was asked.
func (h *Host) unchangeable(name string, p *program) error {
	ways := p.ways
	if len(ways) == 0 && filepath.IsAbs(name) {
		ways = []string{name}
	}
	if h.cfg.Changeable == "" {
		return nil
	}
	mounts, err := mountsNow()
	if err != nil || !slices.ContainsFunc(ways, func(way string) bool { return mounts.LeadsInto(h.cfg.Changeable, way) }) {
		return err
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeHostAccessDenied, "%s is not executed: programs in sandboxes can change it, because it is in workspace_path, or is reached through it",
		sandboxmcp.Quote(name)).WithHint("a person copies it to another directory, and allows that").With("success", false).With("denied", true)
}

// system reports whether a file belongs to the system: only its administrator changes it, and the file tools and programs in
// sandboxes cannot.
func (h *Host) system(path string) bool {
	in := func(path string) bool {
		return slices.ContainsFunc(neverWritten, func(dir string) bool { return under(path, dir) })
	}
	if !onlyRoot(path) || !in(path) && filepath.Dir(path) != "/" {
		return false
	}
	opened := slices.Clone(*h.Files.trees.Load())
	if h.Files.workspace != nil {
		opened = append(opened, *h.Files.workspace)
	}
	return !slices.ContainsFunc(opened, func(t tree) bool { return in(t.real) && under(path, t.real) })
}

// dir returns the directory of a command, which may not be in a closed place.
func (h *Host) dir(look *budget, asked string, closed places) (string, error) {
	if asked == "" {
		for _, t := range *h.Files.trees.Load() {
			if info, err := os.Stat(t.real); err == nil && info.IsDir() {
				return t.real, nil
			}
		}
		return "/", nil
	}
	if !filepath.IsAbs(asked) || strings.IndexFunc(asked, control) >= 0 {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "cwd is no absolute path")
	}
	real, err := look.follow(asked)
	if err != nil && look.over() != nil {
		return "", look.over()
	}
	if err != nil {
		return "", readError(asked, err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "cwd is no directory")
	}
	return real, readable(look, asked, real, closed)
}

// late returns an error if the time for a command is over before it begins, or its caller has gone. Links and directories that others
// have made can take long to follow.
func late(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the files that are named were not all looked at in time").
			WithHint("name fewer files, or none on a file system that does not answer")
	default:
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled")
	}
}

// arguments returns the files and directories that words name, as paths without links. It refuses the same words as argument.
func arguments(dir string, words []string, closed places, away changeable) ([]string, error) {
	var all []string
	for _, w := range words {
		there, err := argument(dir, w, closed, away)
		if err != nil {
			return nil, err
		}
		all = append(all, there...)
	}
	return all, nil
}

// argument returns the files and directories that a word names, as paths without links. It refuses a word if the content of the
// named file may be secret, also if the word is the path of a link to that file. It is a second wall: what a program reads unasked, Landlock refuses.
//
// A word that leads into away is refused, too.
func argument(dir, word string, closed places, away changeable) (there []string, err error) {
	for _, path := range pathsIn(word) {
		if !filepath.IsAbs(path) {
			path = strings.TrimSuffix(dir, "/") + "/" + path // filepath.Join would remove the ".." behind a link
		}
		real, err := away.look.follow(path)
		if failed := away.look.over(); failed != nil {
			return nil, failed
		}
		if err != nil { // not there, or no path at all
			if _, failed := os.Stat(path); failed == nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, pathDenied(path, "it leads through too many links and directories")
			}
			if !strings.Contains(word, "/") {
				continue
			}
			real = path
		} else {
			there = append(there, real)
		}
		if err := errors.Join(readable(away.look, path, real, closed), away.refuseWay(path)); err != nil {
			return nil, err
		}
		if info, err := os.Stat(real); err == nil && info.Mode()&os.ModeDevice != 0 && !kernels(real) {
			return nil, pathDenied(path, "it is a device")
		}
	}
	return there, nil
}

// pathsIn returns what may be a path in a word: the word, and what follows its flag.
func pathsIn(word string) []string {
	all := []string{word}
	if _, value, ok := strings.Cut(word, "="); ok {
		all = append(all, value)
	}
	if len(word) > 2 && word[0] == '-' && word[1] != '-' {
		all = append(all, word[2:])
	}
	if _, path, ok := strings.Cut(word, ":"); ok { // as in git's REVISION:PATH
		all = append(all, path)
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// readable refuses a path whose content may be secret.
func readable(look *budget, path, real string, closed places) error {
	clean := filepath.Clean(path)
	if underAny(clean, closed.paths) || closed.hold(look, real) {
		if err := look.over(); err != nil {
			return err
		}
		if home := closed.crowded(real); home != "" {
			return pathDenied(path, "there is too much in "+sandboxmcp.Quote(home)+" to look for keys there, so commands use nothing of this home").
				WithHint("a person moves files from the home, or from .config, .cache or .local/share in it, to other directories")
		}
		return pathDenied(path, "it belongs to this program or to the system")
	}
	for _, p := range []string{clean, real} {
		if inProc(p) {
			return pathDenied(path, "it shows other processes or the kernel's memory")
		}
		if why := secret(p); why != "" {
			return pathDenied(path, why)
		}
	}
	return nil
}

// inProc reports whether a path is one of another process, or of the kernel's memory. To root, the kernel shows addresses and what others
// do in its directories for debugging as well.
func inProc(path string) bool {
	if under(path, "/sys/kernel/debug") || under(path, "/sys/kernel/tracing") {
		return true
	}
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return false
	}
	name, below, _ := strings.Cut(rest, "/")
	if _, err := strconv.Atoi(name); err == nil || name == "self" || name == "thread-self" {
		return strings.Contains(below, "root") || strings.Contains(below, "fd") || strings.Contains(below, "cwd") || err == nil
	}
	return slices.Contains([]string{"kcore", "kmsg", "kallsyms", "keys", "key-users", "sysrq-trigger", "vmcore"}, name)
}

// output returns the result of a command. Streams are masked, then cut, then repaired.
func (h *Host) output(e ended, masks gate.Masks, timeout time.Duration) sandboxmcp.HostOutput {
	shown := func(b []byte, total int64) (string, bool) {
		text := masks.Text(string(b))
		if total > int64(len(b)) { // a secret at the end may be cut off, and then it is not masked
			text = alike(text, masks.Text(string(b[:max(0, len(b)-spare)])))
		}
		if len(text) > maxShown {
			text = text[:maxShown]
		}
		return strings.ToValidUTF8(text, "\uFFFD"), total > int64(len(b)) || len(b) > maxShown
	}
	out := sandboxmcp.HostOutput{ExitCode: e.exit, Success: e.exit == 0, Walls: e.walls, Weak: e.weak}
	out.Stdout, out.StdoutTruncated = shown(e.stdout, e.total[0])
	out.Stderr, out.StderrTruncated = shown(e.stderr, e.total[1])
	line := ""
	switch e.why {
	case stoppedTime:
		line = "Execution timed out after " + strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64) + "s"
	case stoppedOutput:
		line = "Stopped at " + strconv.Itoa(maxFlood) + " bytes of output"
	}
	if line != "" {
		if out.Stderr != "" && !strings.HasSuffix(out.Stderr, "\n") {
			out.Stderr += "\n"
		}
		out.Stderr += line + "\n"
	}
	if h.cfg.AutoApprove {
		out.Warning = autoWarning
	}
	return out
}

// alike returns what two texts begin with.
func alike(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return a[:i]
}

// cut bounds a text for the record.
func cut(s string) string {
	if len(s) > 500 {
		return strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}
