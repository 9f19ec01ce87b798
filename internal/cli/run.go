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
		Long: `Runs a program in a sandbox of its own and gives its output through as it
comes, byte for byte. The program is a file, - for what stands on stdin, or the
text after -c. Its language follows from the file's extension (.py, .js .mjs
.cjs, .sh .bash), else from its #! line, else it is Python; -l decides.

With --session it runs in a session: files and variables are those that the run
before it left, and in Python and Node.js the value of its last expression is
printed. The session is that of the running server that has it; one that nobody
has is made, as "session create" does. With --background it runs on in a server,
and what is printed is its request id, for "sandboxmcp artifacts".

The program starts in /mnt/data, where it may write. Files that it leaves there
are kept: --out copies them into a directory, "sandboxmcp artifacts" shows them
later. Of this machine's files it sees the programs and libraries of the system,
with what those need of /etc, read-only, and no others. It reaches the domains that
"egress" or the settings have opened, and with --allow-domain those that are named
there in place of them; a name without a port means 80 and 443. With --hold a
connection to any other name waits for "egress approve" in another terminal.

The exit status is the program's own, and 128+n when signal n ended it. It is
124 after a timeout, 137 out of memory, 153 over the output limit, 130 when it
was interrupted, 1 when it was not run because its syntax is wrong, and 125
when the sandbox could not be had.

A limit above its ceiling is refused. The defaults and ceilings below hold where
the settings say nothing else; "sandboxmcp config" shows those in force.`,
		Example: `  sandboxmcp run hello.py
  sandboxmcp run -c 'print(6*7)'
  echo 'echo $((6*7))' | sandboxmcp run - -l shell
  sandboxmcp run plot.py --stdin data.csv --out results --timeout 10 --ram 256
  sandboxmcp run --session analysis -c 'x = 5'`,
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.code, "code", "c", "", "the program, in place of a script (`CODE`)")
	f.StringVarP(&o.language, "language", "l", "", "the program's `LANGUAGE`: python, node or shell")
	o.limitFlags(f)
	f.StringArrayVar(&o.env, "env", nil, "set a variable, `K=V`, where V may be secret://KEY of the vault; may be repeated")
	f.StringVar(&o.stdin, "stdin", "", "the program reads `FILE` as its stdin; - is our own")
	f.StringVar(&o.out, "out", "", "copy the files that it leaves into `DIR`")
	f.StringVar(&o.backend, "backend", "", "the `BACKEND` that runs it: process or docker")
	f.StringArrayVar(&o.domains, "allow-domain", nil, "let it reach `DOMAIN`, such as name.example, *.name.example or name.example:8443, and no other; may be repeated")
	f.Float64Var(&o.hold, "hold", 0, "hold a connection to another domain for `SECONDS`, until a person has answered")
	f.StringVar(&o.session, "session", "", "run in the session with this `ID`")
	f.BoolVar(&o.background, "background", false, "print the request id and do not wait")
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
		a.ours = exitOurs // what fails from here on is no wrong command line
		return a.run(ctx, o)
	})
}

const maxHoldSeconds = 3600

// limitFlags adds the flags of the limits, each with its default and its ceiling.
func (o *runOptions) limitFlags(f *pflag.FlagSet) {
	def, top := sandboxmcp.DefaultLimits(), sandboxmcp.DefaultCeilings(1)
	span := func(def, top string) string { return " (default " + def + ", at most " + top + ")" }
	f.Float64Var(&o.timeout, "timeout", 0, "end it after `SECONDS`"+span(shown(def.TimeoutSeconds), shown(top.TimeoutSeconds)))
	f.IntVar(&o.ram, "ram", 0, "`MIB` of memory, files included"+span(shown(def.MaxRAMMB), shown(top.MaxRAMMB)))
	f.Float64Var(&o.cpu, "cpu", 0, "how many `CORES`, fractions allowed"+span(shown(def.MaxCPUCores), "the machine's"))
	f.IntVar(&o.tasks, "processes", 0, "at most `N` processes"+span(shown(def.MaxProcesses), shown(top.MaxProcesses)))
	f.Int64Var(&o.output, "max-output", 0, "keep so many `BYTES` of each stream"+span(shown(def.MaxOutputBytes), shown(top.MaxOutputBytes)))
}

// check refuses a command line that is wrong in itself.
func (o *runOptions) check(args []string, given func(string) bool) error {
	switch {
	case o.inline && len(args) > 0:
		return app.Usage("-c stands in place of a script: " + sandboxmcp.Quote(args[0]) + " is too many")
	case !o.inline && len(args) == 0:
		return app.Usage("a script, - or -c CODE is missing")
	case len(args) > 1:
		return app.Usage(sandboxmcp.Quote(args[1]) + " is one argument too many")
	}
	if !o.inline {
		o.script = args[0]
	}
	if o.script == "-" && o.stdin == "-" {
		return app.Usage("stdin cannot be both the program and what it reads")
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
		return app.Usage("--hold has to be above 0 and at most " + strconv.Itoa(maxHoldSeconds))
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

// checkLimits refuses a limit that is none.
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
			return app.Usage("--" + l.flag + " has to be above 0")
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
		// What is left to do has to be done although the run was interrupted.
		if dir != nil && !a.copyOut(context.WithoutCancel(ctx), e, dir, res) {
			a.status = exitOurs
		}
		return a.answer(a.json, res, func() { a.remark(res) })
	}, req.Language)
}

// ended takes what Execute returned and sets the exit status. It reports whether there is
// a result to show: there is none for a reader that went away.
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

// giveThrough hands a program's output to our own streams while it runs, unless
// a document is asked for.
func (a *call) giveThrough(req *sandboxmcp.Request, cancel context.CancelCauseFunc) {
	if !a.json {
		req.Stdout = &through{a.Stdout, cancel}
		req.Stderr = &through{a.Stderr, cancel}
	}
}

// request makes the engine's request of the flags and the program.
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

// exitOf is the exit status of a run, by what came of it.
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

// remark says what the program's own output does not show. A timeout is said
// by the engine, as part of stderr.
func (a *call) remark(res sandboxmcp.Result) {
	switch res.Status {
	case sandboxmcp.StatusOutOfMemory:
		a.Say("out_of_memory: the memory limit ended the program (raise --ram)")
	case sandboxmcp.StatusOutputLimit:
		a.Say("output_limit: the program wrote far more than --max-output and was ended")
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

// errReaderGone is the cause of a run that was ended because nobody reads it.
var errReaderGone = errors.New("whoever read the output went away")

// through hands a program's bytes to one of our own streams, and ends the run
// when nobody reads it any more.
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
