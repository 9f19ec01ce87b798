package cli

import (
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
)

// runOptions are the flags of run.
type runOptions struct {
	code     string
	inline   bool // -c was given
	language string
	backend  string
	timeout  float64
	ram      int
	cpu      float64
	tasks    int
	output   int64
	env      []string
	stdin    string
	out      string
	limits   sandboxmcp.Limits
	vars     map[string]string
	script   string

	domains  []string
	hold     float64
	packages []string

	session    string
	background bool
	place      app.Place
}

func (a *call) runCommand() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run SCRIPT | - | -c CODE",
		Short: "Run a program in a sandbox",
		Long: `Runs a program in its own sandbox and passes on its output as it comes, byte for
byte. On a terminal only text and colors pass, unless --raw is given. The program is a file, - for stdin, or the text after -c. Its language is
that of -l, else of the file's extension (.py, .js .mjs .cjs, .sh .bash), else of
its #! line, else Python. A Python program that uses a well-known module such as
json and never imports it gets it; its text stays as it is.

With --session it runs in a session: it finds the files and variables of earlier
runs, and in Python and Node.js the value of its last expression is printed. The
running server that has the session runs it. A session that does not exist is
created, as by "session create". With --background a server runs it, and its
request id is printed at once, for "sandboxmcp artifacts".

The program starts in /mnt/data, where it may write. Files that it leaves there
are stored: --out copies them into a directory, where they replace files of the
same names, and "sandboxmcp artifacts" shows them later.

Of this machine's files it sees, read-only, the system's programs and libraries
and the parts of /etc that they need. It can reach the domains opened by "egress"
or the settings. With --allow-domain it can reach only the domains named there;
one without a port means 80 and 443. With --hold a connection to any other domain
waits for "egress approve" in another terminal. With --package it can import that
package, which is installed as by "install"; in a session later runs can, too.

If a server of yours runs with the same settings and environment, and has room at
once, it runs the program, which is faster. The setting run_server turns that off, or
starts such a server.

The exit status is the program's own, or 128+n if signal n ended it. It is 124
after a timeout, 137 out of memory, 153 over the output limit, 130 when
interrupted, 1 if the program was not run because its syntax is wrong, 2 if a flag
or its value is refused, and 125 for any other failure: a file that cannot be read,
output that cannot be written, or a sandbox that cannot be built.

A limit above its ceiling is refused. Settings may change the defaults and
ceilings below; "sandboxmcp config" shows those in force.`,
		Example: `  sandboxmcp run hello.py
  sandboxmcp run -c 'print(6*7)'
  echo 'echo $((6*7))' | sandboxmcp run - -l shell
  sandboxmcp run plot.py --stdin data.csv --out results --timeout 10 --ram 256
  sandboxmcp run --package requests fetch.py --allow-domain api.example.com
  sandboxmcp run --session analysis -c 'x = 5'`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{catches: "yes"},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.code, "code", "c", "", "run the program text `CODE`")
	f.StringVarP(&o.language, "language", "l", "", "`LANGUAGE` of the program: python, node or shell")
	o.limitFlags(f)
	f.StringArrayVar(&o.env, "env", nil, "set an environment variable `K=V`; V may be secret://KEY for a secret of the vault; may be repeated")
	f.StringVar(&o.stdin, "stdin", "", "stdin of the program: `FILE`, or - for the stdin of this command")
	f.StringVar(&o.out, "out", "", "copy the files that the program leaves into `DIR`")
	f.StringVar(&o.backend, "backend", "", "run it with `BACKEND`: process or docker")
	f.StringArrayVar(&o.domains, "allow-domain", nil, "let it reach only `DOMAIN`, such as name.example, *.name.example or name.example:8443; may be repeated")
	f.Float64Var(&o.hold, "hold", 0, "hold a connection to any other domain up to `SECONDS` for a person to approve it")
	f.StringArrayVar(&o.packages, "package", nil, "install `PACKAGE` for it first, such as requests or 'pandas>=2'; may be repeated")
	f.StringVar(&o.session, "session", "", "run in the session `ID`")
	f.BoolVar(&o.background, "background", false, "run it in the background and print the request id")
	f.BoolVar(&a.raw, "raw", false, "pass its output on byte for byte on a terminal, too")
	withStart(cmd, &o.place)
	f.Lookup("no-server").Usage = "run it in this process; with --session or --background, fail rather than start a server"
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		o.inline = f.Changed("code")
		if err := o.check(args, f.Changed); err != nil {
			return err
		}
		if err := o.checkPlace(f.Changed); err != nil {
			return err
		}
		a.ours = exitOurs // from here on a failure is not a usage error
		return a.run(ctx, o)
	})
}

const maxHoldSeconds = 3600

// limitFlags adds the flags of limits, each with its default and ceiling.
func (o *runOptions) limitFlags(f *pflag.FlagSet) {
	def, top := sandboxmcp.DefaultLimits(), sandboxmcp.DefaultCeilings(1)
	span := func(def, top string) string { return " (default " + def + ", at most " + top + ")" }
	f.Float64Var(&o.timeout, "timeout", 0, "time limit of a run in `SECONDS`"+span(shown(def.TimeoutSeconds), shown(top.TimeoutSeconds)))
	f.IntVar(&o.ram, "ram", 0, "memory in `MIB`, files included"+span(shown(def.MaxRAMMB), shown(top.MaxRAMMB)))
	f.Float64Var(&o.cpu, "cpu", 0, "number of `CORES`, fractions allowed"+span(shown(def.MaxCPUCores), "the machine's"))
	f.IntVar(&o.tasks, "processes", 0, "at most `N` processes"+span(shown(def.MaxProcesses), shown(top.MaxProcesses)))
	f.Int64Var(&o.output, "max-output", 0, "return at most `BYTES` of stdout and of stderr"+span(shown(def.MaxOutputBytes), shown(top.MaxOutputBytes)))
}

// check refuses a combination of flags and arguments that is contradictory.
func (o *runOptions) check(args []string, given func(string) bool) error {
	switch {
	case o.inline && len(args) > 0:
		return app.Usage("-c replaces the script: remove " + sandboxmcp.Quote(args[0]))
	case !o.inline && len(args) == 0:
		return app.Usage("a script, - or -c CODE is missing")
	case len(args) > 1:
		return app.Usage(sandboxmcp.Quote(args[1]) + " is one argument too many")
	}
	if !o.inline {
		o.script = args[0]
	}
	if o.script == "-" && o.stdin == "-" {
		return app.Usage("stdin cannot be both the program and its input")
	}
	if err := o.checkLimits(given); err != nil {
		return err
	}
	if o.language != "" {
		if _, err := sandboxmcp.ParseLanguage(o.language); err != nil {
			return err
		}
	}
	if given("hold") && (!(o.hold > 0) || o.hold > maxHoldSeconds) {
		return app.Usage("--hold must be above 0 and at most " + strconv.Itoa(maxHoldSeconds))
	}
	for _, d := range o.domains {
		if _, err := sandboxmcp.ParseDomain(d); err != nil {
			return err
		}
	}
	o.vars = map[string]string{}
	for _, kv := range o.env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return app.Usage("--env " + sandboxmcp.Quote(kv) + " is not of the form K=V")
		}
		o.vars[k] = v
	}
	return nil
}

// checkLimits refuses limits that are not above 0.
func (o *runOptions) checkLimits(given func(string) bool) error {
	for _, l := range []struct {
		flag  string
		value float64
	}{
		{"timeout", o.timeout},
		{"ram", float64(o.ram)},
		{"cpu", o.cpu},
		{"processes", float64(o.tasks)},
		{"max-output", float64(o.output)},
	} {
		if given(l.flag) && (!(l.value > 0) || math.IsInf(l.value, 0)) {
			return app.Usage("--" + l.flag + " must be above 0")
		}
	}
	o.limits = sandboxmcp.Limits{MaxRAMMB: o.ram, MaxCPUCores: o.cpu, TimeoutSeconds: o.timeout, MaxProcesses: o.tasks, MaxOutputBytes: o.output}
	return nil
}

func (a *call) run(ctx context.Context, o *runOptions) error {
	if !o.elsewhere() && !o.place.Alone {
		a.PrepareAlike()
	}
	cfg, err := a.Load()
	if err != nil {
		return err
	}
	req, err := a.request(ctx, o, cfg)
	if err != nil {
		return err
	}
	if a.caught != nil {
		<-a.caught
	}
	if o.elsewhere() {
		return a.runElsewhere(ctx, o, cfg, req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	endOutput := a.giveThrough(&req, cancel)
	dir, err := openOut(o.out)
	if err != nil {
		return err
	}
	defer dir.close()
	show := func(e app.Engine, res sandboxmcp.Result, err error) error {
		ok, err := a.ended(ctx, res, err)
		if !ok {
			return err
		}
		// Copy the files even if the run was interrupted.
		if dir != nil && !a.copyOut(context.WithoutCancel(ctx), e, dir, res) {
			a.status = exitOurs
		}
		if a.json {
			res.Note = a.Paste(res.Note)
		}
		return a.answer(a.json, res, func() {
			a.remark(res)
			a.sayKept(res, dir != nil)
		})
	}
	if s := a.Alike(ctx, cfg, o.place, req); s != nil {
		a.asked = o.wrote(req)
		res, err := s.ExecuteAlike(ctx, app.Me(cfg), req, s.Digest)
		if !api.Declined(err) {
			endOutput()
			if err != nil || api.Complete(res) || dir == nil && !a.json {
				return show(nil, res, err)
			}
			return a.WithEngine(context.WithoutCancel(ctx), cfg, func(e app.Engine) error { // the content of large files is only in the state directory
				return show(e, a.filled(context.WithoutCancel(ctx), e, res), nil)
			})
		}
	}
	return a.WithEngineFor(ctx, cfg, req, func(e app.Engine) error {
		a.asked = o.wrote(req)
		res, err := e.Execute(ctx, app.Me(cfg), req)
		endOutput()
		return show(e, res, err)
	})
}

// wrote reports whether a refused value of the request comes from the command line. A file or stdin
// without code does not.
func (o *runOptions) wrote(req sandboxmcp.Request) bool {
	return o.inline || strings.TrimSpace(req.Code) != ""
}

// ended sets the exit status after Execute. It reports whether there is a result to show.
// If the reader of the output has closed it, there is nothing to show.
func (a *call) ended(ctx context.Context, res sandboxmcp.Result, err error) (bool, error) {
	switch {
	case errors.Is(context.Cause(ctx), errReaderGone):
		a.status = exitBrokenPipe
		return false, nil
	case err != nil:
		return false, err
	}
	a.status = exitOf(res)
	return true, nil
}

// giveThrough passes the program's output to stdout and stderr while it runs, except with
// --json. The function that it returns ends the output.
func (a *call) giveThrough(req *sandboxmcp.Request, cancel context.CancelCauseFunc) func() {
	if a.json {
		return func() {}
	}
	out := newThrough(a.Stdout, a.terminal && !a.raw, cancel)
	stderr := &output{Writer: a.Stderr, name: "the program's stderr"}
	a.outputs = append(a.outputs, stderr)
	errs := newThrough(stderr, a.Watched && !a.raw, cancel)
	req.Stdout, req.Stderr = out, errs
	return func() {
		out.end()
		errs.end()
	}
}

// request builds the engine's request from the flags and the program.
func (a *call) request(ctx context.Context, o *runOptions, cfg *config.Config) (sandboxmcp.Request, error) {
	req := sandboxmcp.Request{
		Env:    o.vars,
		Limits: o.limits, Strict: true, Backend: o.backend, Display: sandboxmcp.DisplayNone, Reader: sandboxmcp.ReaderTerminal,
		Packages:       o.packages,
		AllowedDomains: o.domains, GrantDomains: o.domains != nil, Hold: time.Duration(o.hold * float64(time.Second)),
	}
	if len(o.packages) > 0 {
		req.Note = a.Progress
	}
	switch {
	case o.inline:
		req.Code = o.code
	case o.script == "-":
		data, err := readAll(ctx, a.Stdin, cfg.MaxCodeBytes)
		if err != nil {
			return req, readFailure("the code on stdin", sandboxmcp.CodeCodeTooLarge, err)
		}
		req.Code = string(data)
	default:
		data, err := readFile(ctx, o.script, cfg.MaxCodeBytes)
		if err != nil {
			return req, readFailure("script "+sandboxmcp.Quote(o.script), sandboxmcp.CodeCodeTooLarge, err)
		}
		req.Code = string(data)
		req.FileName = fileName(o.script)
	}
	req.Language = sandboxmcp.Language(o.language)
	if o.language == "" {
		req.Language = sandboxmcp.LanguageOf(baseName(o.script), req.Code)
	}
	var err error
	switch o.stdin {
	case "":
	case "-":
		if req.Stdin, err = readAll(ctx, a.Stdin, maxStdin); err != nil {
			return req, readFailure("stdin", sandboxmcp.CodeFileTooLarge, err)
		}
	default:
		if req.Stdin, err = readFile(ctx, o.stdin, maxStdin); err != nil {
			return req, readFailure("--stdin "+sandboxmcp.Quote(o.stdin), sandboxmcp.CodeFileTooLarge, err)
		}
	}
	return req, nil
}

// exitOf returns the exit status for a result.
func exitOf(res sandboxmcp.Result) int {
	switch res.Status {
	case sandboxmcp.StatusTimedOut:
		return exitTimedOut
	case sandboxmcp.StatusOutOfMemory:
		return exitOutOfMemory
	case sandboxmcp.StatusOutputLimit:
		return exitOutputLimit
	case sandboxmcp.StatusCancelled:
		return exitCancelled
	case sandboxmcp.StatusRejected:
		return 1
	case sandboxmcp.StatusCompleted, sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled:
		return res.ExitCode
	case sandboxmcp.StatusRunning:
	}
	return exitOurs
}

// remark prints the note of a result: what its end means, and which flag helps.
func (a *call) remark(res sandboxmcp.Result) {
	if res.Note != "" {
		a.Say(res.Note)
	}
}

// errReaderGone cancels a run whose output is no longer read.
var errReaderGone = errors.New("the reader of the output has gone")

// through passes a program's output to a stream of this process. It cancels the run if
// that stream is closed.
type through struct {
	mu     sync.Mutex // the run does not wait for its writers, so end may be called during Write
	w      io.Writer
	filter *terminal.Filter // nil: bytes pass as they are
	stop   context.CancelCauseFunc
}

func newThrough(w io.Writer, filtered bool, stop context.CancelCauseFunc) *through {
	t := &through{w: w, stop: stop}
	if filtered {
		t.filter = terminal.NewFilter(w)
		t.w = t.filter
	}
	return t
}

// end completes what the filter holds back.
func (t *through) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.filter != nil {
		_ = t.filter.Close()
	}
}

// Write writes to the stream.
func (t *through) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		t.stop(errReaderGone)
	}
	return n, err
}
