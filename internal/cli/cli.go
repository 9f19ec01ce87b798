// Package cli is the command line: commands and their flags, and how what
// internal/app returns is shown to a person or a script.
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

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

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

// call is one call of the command line.
type call struct {
	*app.App

	terminal bool // stdout is one
	colour   bool

	argv    []string // without the program's name
	started bool     // a command took over: a failure is no longer one of usage
	ours    int      // exit status of a failure of ours; 0: that of its code
	status  int      // exit status of a command that did what it should
	json    bool     // --json was given
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
	a := &call{App: app.New(p.Env, p.Stdin, p.Stdout, p.Stderr)}
	return a.main(ctx, p.Args)
}

func (a *call) main(ctx context.Context, argv []string) int {
	if f, ok := a.Stdout.(*os.File); ok {
		a.terminal = term.IsTerminal(int(f.Fd()))
	}
	a.colour = a.terminal && a.Variable("NO_COLOR") == "" && a.Variable("TERM") != "dumb"
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
		return a.report(cmd, app.Usage(unknown(cmd, word)))
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

// report says what failed and returns the exit status.
func (a *call) report(cmd *cobra.Command, err error) int {
	var wrong *app.UsageError
	if errors.As(err, &wrong) || !a.started {
		e := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s", app.OneLine(err.Error())).
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
