// Package cli is the command line: the commands, their flags, and how they print what
// internal/app returns.
//
// stdout carries only the requested result; messages go to stderr. `run` passes on the
// program's output and its exit status. If `run` itself fails, it exits with 125. Every
// other command that fails exits with the status of its error code. An unknown command or
// flag exits with 2.
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

// Exit statuses that do not belong to an error code.
const (
	exitUsage       = 2
	exitTimedOut    = 124
	exitOurs        = 125 // run itself failed
	exitCancelled   = 130
	exitOutOfMemory = 137
	exitBrokenPipe  = 141 // the reader of the output has closed it
	exitOutputLimit = 153
)

// call is one execution of the command line.
type call struct {
	*app.App

	terminal bool // stdout is a terminal
	colour   bool

	argv    []string // without the program's name
	started bool     // a command has begun its work, so later failures are not usage errors
	ours    int      // exit status if the command itself fails; 0: that of the error code
	status  int      // exit status if the command succeeds
	json    bool     // --json was given
}

// Process is the arguments, environment and streams of a program.
type Process struct {
	Args           []string // the program's name first
	Env            []string // KEY=value
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Own returns the arguments, environment and streams of this process.
func Own() Process {
	return Process{Args: os.Args, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

// Main runs a command line and returns the exit status. Meanwhile it handles SIGINT,
// SIGTERM, SIGHUP and SIGPIPE. The first of SIGINT, SIGTERM and SIGHUP cancels the command;
// a second one ends the process at once.
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

// stray finds a word at the place of a subcommand that is not a subcommand. It must run
// before flags are parsed: --help after such a word would print the help of the parent
// command.
func stray(root *cobra.Command, argv []string) (*cobra.Command, string) {
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(argv)
	if err != nil || !cmd.HasSubCommands() || cmd.Annotations[takesWord] != "" || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return nil, ""
	}
	return cmd, rest[0]
}

// wantsJSON reports whether --json is given. It also works for a command line that could
// not be parsed.
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

// catch returns a context that SIGINT, SIGTERM and SIGHUP cancel. A signal that was ignored
// at start stays ignored. SIGPIPE is caught, so that a write to a closed pipe fails and
// does not end the process. It is caught and not ignored, because child processes would
// inherit an ignored signal.
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
		context.AfterFunc(ctx, stop) // then a second signal has its default effect
	}
	return ctx, func() {
		stop()
		signal.Stop(pipe)
	}
}

// report prints an error and returns the exit status.
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
		e = sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "interrupted")
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
