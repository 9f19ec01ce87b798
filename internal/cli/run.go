package cli

import (
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
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

	domains []string
	hold    float64

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
byte. The program is a file, - for stdin, or the text after -c. Its language is
that of -l, else of the file's extension (.py, .js .mjs .cjs, .sh .bash), else of
its #! line, else Python.

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
waits for "egress approve" in another terminal.

The exit status is the program's own, or 128+n if signal n ended it. It is 124
after a timeout, 137 out of memory, 153 over the output limit, 130 when
interrupted, 1 if the program was not run because its syntax is wrong, and 125 if
the sandbox could not be built.

A limit above its ceiling is refused. Settings may change the defaults and
ceilings below; "sandboxmcp config" shows those in force.`,
		Example: `  sandboxmcp run hello.py
  sandboxmcp run -c 'print(6*7)'
  echo 'echo $((6*7))' | sandboxmcp run - -l shell
  sandboxmcp run plot.py --stdin data.csv --out results --timeout 10 --ram 256
  sandboxmcp run --session analysis -c 'x = 5'`,
		Args: cobra.ArbitraryArgs,
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
	f.StringVar(&o.session, "session", "", "run in the session `ID`")
	f.BoolVar(&o.background, "background", false, "run it in the background and print the request id")
	withStart(cmd, &o.place)
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
	cfg, err := a.Load()
	if err != nil {
		return err
	}
	req, err := a.request(ctx, o, cfg)
	if err != nil {
		return err
	}
	if o.elsewhere() {
		return a.runElsewhere(ctx, o, cfg, req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.giveThrough(&req, cancel)
	dir, err := openOut(o.out)
	if err != nil {
		return err
	}
	defer dir.close()
	return a.WithEngine(ctx, cfg, func(e app.Engine) error {
		res, err := e.Execute(ctx, app.Me(cfg), req)
		ok, err := a.ended(ctx, res, err)
		if !ok {
			return err
		}
		// Copy the files even if the run was interrupted.
		if dir != nil && !a.copyOut(context.WithoutCancel(ctx), e, dir, res) {
			a.status = exitOurs
		}
		return a.answer(a.json, res, func() { a.remark(res) })
	}, req.Language)
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
// --json.
func (a *call) giveThrough(req *sandboxmcp.Request, cancel context.CancelCauseFunc) {
	if !a.json {
		req.Stdout = &through{a.Stdout, cancel}
		req.Stderr = &through{a.Stderr, cancel}
	}
}

// request builds the engine's request from the flags and the program.
func (a *call) request(ctx context.Context, o *runOptions, cfg *config.Config) (sandboxmcp.Request, error) {
	req := sandboxmcp.Request{
		Env:    o.vars,
		Limits: o.limits, Strict: true, Backend: o.backend, Display: sandboxmcp.DisplayNone,
		AllowedDomains: o.domains, GrantDomains: o.domains != nil, Hold: time.Duration(o.hold * float64(time.Second)),
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

// remark prints messages about facts that the output does not show, such as exceeded
// limits. For a timeout the engine has added a line to stderr.
func (a *call) remark(res sandboxmcp.Result) {
	switch res.Status {
	case sandboxmcp.StatusOutOfMemory:
		a.Say("out_of_memory: the memory limit ended the program (raise --ram)")
	case sandboxmcp.StatusOutputLimit:
		a.Say("output_limit: the program was ended because it wrote far more than --max-output")
	case sandboxmcp.StatusCompleted, sandboxmcp.StatusFailed, sandboxmcp.StatusTimedOut, sandboxmcp.StatusSignalled,
		sandboxmcp.StatusCancelled, sandboxmcp.StatusRejected, sandboxmcp.StatusRunning:
	}
	if res.StdoutTruncated {
		a.Say("stdout was cut (raise --max-output)")
	}
	if res.StderrTruncated {
		a.Say("stderr was cut (raise --max-output)")
	}
}

// errReaderGone cancels a run whose output is no longer read.
var errReaderGone = errors.New("the reader of the output has gone")

// through passes a program's output to a stream of this process. It cancels the run if
// that stream is closed.
type through struct {
	w    io.Writer
	stop context.CancelCauseFunc
}

// Write writes to the stream.
func (t *through) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		t.stop(errReaderGone)
	}
	return n, err
}
