// Package cli is the command line: the commands, their flags, and how they print what
// internal/app returns.
//
// stdout carries only the requested result; messages go to stderr. `run` passes on the
// program's output and its exit status. If `run` itself fails, it exits with 125. Every
// other command that fails exits with the status of its error code. An unknown command or
// flag exits with 2, and so does a value of a flag that is refused, also by `run`.
package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
	"github.com/sandboxmcp/sandboxmcp/internal/tuning"
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

	screen   io.Writer // stdout itself, to ask for its width
	outputs  []*output // streams with output of the command or of its program
	terminal bool      // stdout is a terminal
	color    bool
	raw      bool // --raw was given

	caught  <-chan struct{} // closed when signals are caught; nil: they are not
	exits   bool            // the process exits after main
	argv    []string        // without the program's name
	started bool            // a command has begun its work, so later failures are not usage errors
	ours    int             // exit status if the command itself fails; 0: that of the error code
	asked   bool            // the files of the command line were read, so a value that is refused is a flag's
	status  int             // exit status if the command succeeds
	json    bool            // --json was given
}

// Process is the arguments, environment and streams of a program.
type Process struct {
	Args           []string // the program's name first
	Env            []string // KEY=value
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Backends       []app.AddBackend // of other modules
	Objects        app.OpenObjects  // of another module; nil: none
	Exits          bool             // the process exits after Main, which leaves its signals caught
}

// Own returns the arguments, environment and streams of this process, which must exit after Main.
func Own() Process {
	return Process{Args: os.Args, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Exits: true}
}

// Main runs a command line and returns the exit status. Meanwhile it handles SIGINT,
// SIGTERM, SIGHUP and SIGPIPE. The first of SIGINT, SIGTERM and SIGHUP cancels the command;
// a second one ends the process at once. A server instead reads its settings again on SIGHUP, even if
// SIGHUP was ignored when it started.
func Main(ctx context.Context, p Process) int {
	a := &call{App: app.New(p.Env, p.Stdin, p.Stdout, p.Stderr)}
	a.Backends, a.Objects, a.exits = p.Backends, p.Objects, p.Exits
	return a.main(ctx, p.Args)
}

func (a *call) main(ctx context.Context, argv []string) int {
	tuning.Command()                                 // a server sets its own values
	a.terminal = a.terminal || terminal.Is(a.Stdout) // tests set it
	a.Watched = terminal.Is(a.Stderr)
	a.screen = a.Stdout
	out := &output{Writer: a.Stdout, name: "stdout"}
	a.Stdout, a.outputs = out, append(a.outputs, out)
	a.color = a.terminal && a.Variable("NO_COLOR") == "" && a.Variable("TERM") != "dumb"
	root := a.program(argv) //nolint:contextcheck // cobra hands the context to the commands
	whole := argv
	if len(argv) > 0 {
		argv = argv[1:]
	}
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	found, _, err := root.Find(argv)
	if err == nil && found.Annotations[reloads] != "" { // also if SIGHUP was ignored at start: nohup ignores it so that a hangup does not end the server
		if a.exits {
			tuning.Restart(whole, a.Env)
		}
		ends = ends[:2]
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
		a.Reloads = hangups
	}
	ctx, caught, stop := catch(ctx, ends)
	if a.caught = caught; err != nil || found.Annotations[catches] == "" {
		<-caught
	}
	if !a.exits { // else it would only take time
		defer stop()
	}
	root.SetArgs(argv)
	a.argv = argv
	if cmd, word := stray(root, argv); word != "" {
		return a.report(cmd, app.Usage(unknown(cmd, word)))
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		return a.whole(a.report(cmd, err))
	}
	return a.whole(a.status)
}

// program returns the command that the program's name stands for.
func (a *call) program(argv []string) *cobra.Command {
	switch {
	case calledAs(argv, fiveName):
		return a.fiveCommand()
	case calledAs(argv, apiName):
		return a.apiCommand()
	case len(argv) > 1:
		return a.root(argv[1])
	}
	return a.root("")
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

// reloads marks a command that reads its settings again on SIGHUP.
const reloads = "reloads on SIGHUP"

// catches marks a command that waits for call.caught itself.
const catches = "waits until signals are caught"

// catch returns a context that the signals cancel. A signal that was ignored at start stays
// ignored. SIGPIPE is caught, so that a write to a closed pipe fails and
// does not end the process. It is caught and not ignored, because child processes would
// inherit an ignored signal.
//
// Go needs about 0.4 ms to catch signals, so catch does not wait for that. It closes caught when it is done.
func catch(ctx context.Context, ends []os.Signal) (_ context.Context, caught <-chan struct{}, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	ends = slices.DeleteFunc(ends, signal.Ignored)
	pipe := make(chan os.Signal, 1)
	release := func() {}
	done := make(chan struct{})
	go func() {
		defer close(done)
		signal.Notify(pipe, syscall.SIGPIPE)
		if len(ends) > 0 {
			var one context.Context
			one, release = signal.NotifyContext(ctx, ends...)
			context.AfterFunc(one, func() {
				release() // then a second signal has its default effect
				end(context.Cause(one))
			})
		}
	}()
	return ctx, done, func() {
		<-done
		release()
		signal.Stop(pipe)
		end(nil)
	}
}

// pasted returns an error whose commands a person can paste.
func (a *call) pasted(e *sandboxmcp.Error) *sandboxmcp.Error {
	c := *e
	c.Message, c.Hint = a.Paste(e.Message), a.Paste(cmp.Or(e.Hint, e.Code.Row().Hint))
	return &c
}

// commandNames replaces the names of MCP tools, which hints for models contain, by commands.
var commandNames = strings.NewReplacer("fetch_webpage", "`sandboxmcp web fetch`", "request_host_access", "`sandboxmcp host access request`")

// inCommands returns an error whose hint names commands, not tools.
func inCommands(e *sandboxmcp.Error) *sandboxmcp.Error {
	c := *e
	c.Hint = commandNames.Replace(e.Hint)
	return &c
}

// refusesValue reports whether a code says that a value of the request is not valid. validation_failed has
// the same exit status, and is about the program.
func refusesValue(c sandboxmcp.Code) bool {
	return c.Row().Exit == exitUsage && c != sandboxmcp.CodeValidationFailed
}

// report prints an error and returns the exit status.
func (a *call) report(cmd *cobra.Command, err error) int {
	var wrong *app.UsageError
	if errors.As(err, &wrong) || !a.started {
		e := sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s", app.OneLine(err.Error())).
			WithHint("see `" + cmd.CommandPath() + " --help`")
		if a.json || !a.started && wantsJSON(a.argv) {
			a.printJSON(a.pasted(e).Body())
		}
		a.failure(e)
		return exitUsage
	}
	e := inCommands(sandboxmcp.AsError(err))
	if e.Code == sandboxmcp.CodeInternal && errors.Is(err, context.Canceled) {
		e = sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "interrupted")
	}
	if a.json {
		a.printJSON(a.pasted(e).Body())
	}
	a.failure(e)
	switch {
	case e.Code == sandboxmcp.CodeCancelled:
		return exitCancelled
	case a.ours != 0 && !(a.asked && refusesValue(e.Code)):
		return a.ours
	}
	return e.Code.Row().Exit
}
