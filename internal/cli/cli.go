// Package cli is the command line: it reads the settings, builds the parts,
// joins them and speaks to a person or a script. It is the only room that knows
// both the engine and the doors.
//
// Its promise: stdout carries what was asked for and nothing else; everything
// that is said about it goes to stderr. `run` gives the program's bytes and its
// exit status through; a failure of ours there is 125. Every other failure has
// the exit status of its code. What is not built is not there: an unknown
// command or flag is refused with status 2.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

//go:generate go run ../../cmd/sandboxmcp docs ../../docs

// Exit statuses that are not those of a code.
const (
	exitUsage       = 2
	exitTimedOut    = 124
	exitOurs        = 125 // of run, when it could not run
	exitCancelled   = 130
	exitOutOfMemory = 137
	exitBrokenPipe  = 141 // whoever read our output went away
	exitOutputLimit = 153
)

// app is one call of the command line.
type app struct {
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // stdout is one
	colour         bool

	open     func(ctx context.Context, o engine.Options) (runner, error)
	diagnose func(ctx context.Context, o engine.Options) []sandboxmcp.Check
	expired  func(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error
	spawn    func(ctx context.Context, args, env []string, log *os.File) (pid int, exited <-chan error, err error)
	exit     func(status int)
	leave    func() error  // before a server in the background begins; nil: nothing
	linger   time.Duration // how long one stays without anything to keep

	argv     []string          // without the program's name
	started  bool              // a command took over: a failure is no longer one of usage
	ours     int               // exit status of a failure of ours; 0: that of its code
	status   int               // exit status of a command that did what it should
	json     bool              // --json was given
	settings string            // file named by --config
	logFile  bool              // the log goes to the default file where nobody named one
	flags    map[string]string // settings that flags stand for, by their keys
}

// Process is what a program is given when it is started.
type Process struct {
	Args           []string // the program's name first
	Env            []string // KEY=value
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Own is what this process was given.
func Own() Process {
	return Process{Args: os.Args, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

// Main carries out a command line and returns the exit status. It takes over
// SIGINT, SIGTERM, SIGHUP and SIGPIPE while it runs: the first of the former
// cancels what goes on, a second one ends the process at once.
func Main(ctx context.Context, p Process) int {
	a := &app{
		env: p.Env, stdin: p.Stdin, stdout: p.Stdout, stderr: p.Stderr,
		exit: os.Exit, //nolint:forbidigo // for a server that does not end; see stopLimit
		open: openEngine, diagnose: engine.Doctor, spawn: spawn, leave: leaveDirectory, linger: lingerFor,
	}
	a.expired = a.expiredHere
	return a.main(ctx, p.Args)
}

func (a *app) main(ctx context.Context, argv []string) int {
	if f, ok := a.stdout.(*os.File); ok {
		a.terminal = term.IsTerminal(int(f.Fd()))
	}
	a.colour = a.terminal && a.variable("NO_COLOR") == "" && a.variable("TERM") != "dumb"
	ctx, stop := catch(ctx)
	defer stop()
	root := a.root() //nolint:contextcheck // cobra hands the context to the commands
	five := isFive(argv)
	if len(argv) > 0 {
		argv = argv[1:]
	}
	if five {
		if err := a.five(ctx, argv); err != nil {
			return a.report(root, err)
		}
		return a.status
	}
	root.SetArgs(argv)
	a.argv = argv
	if cmd, word := stray(root, argv); word != "" {
		return a.report(cmd, usage(unknown(cmd, word)))
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		return a.report(cmd, err)
	}
	return a.status
}

// stray finds the word that stands where a command should and is none. It is
// looked for before the flags are, which belong to nobody then: --help after it
// would explain another command.
func stray(root *cobra.Command, argv []string) (*cobra.Command, string) {
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(argv)
	if err != nil || !cmd.HasSubCommands() || cmd.Annotations[takesWord] != "" || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return nil, ""
	}
	return cmd, rest[0]
}

// wantsJSON reports whether --json is on a command line that may be wrong and
// that no command may have read.
func wantsJSON(argv []string) bool {
	want := false
	for _, word := range argv {
		if word == "--" {
			break
		}
		if word == "--json" {
			want = true
		} else if v, ok := strings.CutPrefix(word, "--json="); ok {
			on, err := strconv.ParseBool(v)
			want = on || err != nil
		}
	}
	return want
}

// catch cancels the returned context on the signals that ask a program to end.
// One that was ignored when the program was started stays so. SIGPIPE is taken
// note of so that a write to a closed pipe fails instead of killing the
// process; it is not ignored, because programs that we start would inherit that.
func catch(ctx context.Context) (context.Context, func()) {
	var ends []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			ends = append(ends, s)
		}
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	stop := func() {}
	if len(ends) > 0 {
		ctx, stop = signal.NotifyContext(ctx, ends...)
		context.AfterFunc(ctx, stop) // a second signal has its usual effect
	}
	return ctx, func() {
		stop()
		signal.Stop(pipe)
	}
}

// variable reads an environment variable; empty when it is not there.
func (a *app) variable(name string) string {
	for _, kv := range a.env {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v
		}
	}
	return ""
}

// load reads the settings.
func (a *app) load() (*config.Config, error) {
	return config.Load(config.Sources{Env: a.env, File: a.settings, Flags: a.flags})
}

// errUsage marks a command line that is wrong in itself.
type errUsage struct{ text string }

func (e *errUsage) Error() string { return e.text }

func usage(text string) error { return &errUsage{text} }

// report says what failed and returns the exit status.
func (a *app) report(cmd *cobra.Command, err error) int {
	var wrong *errUsage
	if errors.As(err, &wrong) || !a.started {
		e := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s", oneLine(err.Error())).
			WithHint("see `" + cmd.CommandPath() + " --help`")
		if a.json || !a.started && wantsJSON(a.argv) {
			a.printJSON(e.Body())
		}
		a.failure(e)
		return exitUsage
	}
	e := sandboxmcp.AsError(err)
	if e.Code == sandboxmcp.CodeInternal && errors.Is(err, context.Canceled) {
		e = sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "it was interrupted")
	}
	if a.json {
		a.printJSON(e.Body())
	}
	a.failure(e)
	switch {
	case e.Code == sandboxmcp.CodeCancelled:
		return exitCancelled
	case a.ours != 0:
		return a.ours
	}
	return e.Code.Row().Exit
}
