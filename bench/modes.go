//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// Names of rows that other code refers to.
const (
	rowBareFile         = "bare python hello.py"
	rowCLI              = "command line, `sandboxmcp run hello.py`"
	rowCLIServer        = "command line with a live server, `sandboxmcp run hello.py`"
	rowFirst            = "first request of a process, known state directory"
	rowServe            = "MCP over stdio, `execute_code`"
	rowTimed            = "MCP over stdio, a clock around the engine"
	rowAdded            = "… of which stdio adds"
	rowNsjail           = "nsjail, python"
	rowHTTP             = "MCP over HTTP, `execute_code`"
	rowHTTPSession      = "MCP over HTTP, a session's run"
	rowHTTPAdded        = "… of which HTTP adds"
	rowHTTPSessionAdded = "… of which HTTP adds to a session's run"
	rowS1MCP            = "sandboxmcp (Python), MCP over stdio, warm server"
	rowS1CLI            = "sandboxmcp (Python), command line"
	factCLI             = "command line, above the bare run of the same file"
	factStdio           = "MCP over stdio, above the engine in process"
)

func inProcess(i interpreter) string { return "in process, " + i.Label }
func inPooled(i interpreter) string {
	return "in process, ready sandbox, " + i.Label
}
func inDemand(i interpreter) string { return "in process, none of its shape ready, " + i.Label }
func inUnseen(i interpreter) string { return "in process, a new memory limit, " + i.Label }
func inTimed(i interpreter) string  { return "in process, a new timeout, " + i.Label }
func inNumbered(i interpreter) string {
	return "in process, a new number of processes, " + i.Label
}
func inSession(i interpreter) string { return "in process, a session's run, " + i.Label }
func inBwrap(i interpreter) string   { return "bwrap, " + i.Label }

// modes returns everything that is measured in rounds.
func (b *bed) modes(ctx context.Context) []mode {
	var bare, rest []mode
	for _, i := range b.interpreters {
		bare = append(bare, b.one(i.bare(), "", func(ctx context.Context) (time.Duration, error) {
			return b.command(ctx, program{env: plainEnv(), argv: i.argv()})
		}))
		if i.Lang == sandboxmcp.Python {
			bare = append(bare, b.one("bare "+i.Label+" -S -c", i.bare(), func(ctx context.Context) (time.Duration, error) {
				return b.command(ctx, program{env: plainEnv(), argv: []string{i.Path, "-S", "-c", i.hello()}})
			}))
		}
		rest = append(rest, b.engineModes(i)...)
		rest = append(rest, b.bwrap(i))
	}
	if len(b.interpreters) > 0 && b.interpreters[0].Lang == sandboxmcp.Python {
		python := b.interpreters[0]
		rest = append(rest, b.firstModes(python)...)
		files, err := b.fileModes(ctx, python)
		if err != nil {
			files = []mode{{rows: []string{rowCLI}, skip: err.Error()}}
		}
		bare = append(bare, files[0], b.loopMode(python))
		rest = append(rest, files[1:]...)
		rest = append(rest, b.serverModes(ctx, python)...)
		rest = append(rest, b.httpModes(ctx, python)...)
		rest = append(rest, b.science.modes(b, python)...)
		rest = append(rest, b.judge.modes(b, python)...)
		rest = append(rest, b.dockerModes(ctx, python)...)
		rest = append(rest, b.gvisorModes(ctx, python)...)
		rest = append(rest, b.srtMode(python))
		rest = append(rest, absentModes()...)
	}
	peer, extra := b.s1Modes(ctx)
	return append(append(bare, extra...), b.chosen(append(rest, peer...))...)
}

// chosen returns the modes that -only names.
func (b *bed) chosen(modes []mode) []mode {
	if b.o.only == "" {
		return modes
	}
	var out []mode
	for _, m := range modes {
		for word := range strings.SplitSeq(b.o.only, "|") {
			if strings.Contains(m.rows[0], word) {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

// one returns a mode with a single row.
func (b *bed) one(name, base string, run func(context.Context) (time.Duration, error)) mode {
	return mode{rows: []string{name}, base: base, run: func(ctx context.Context) ([]float64, error) {
		took, err := run(ctx)
		return []float64{milliseconds(took)}, err
	}}
}

// engineModes returns modes that call an engine: one-shot runs with nothing prepared and in
// a ready sandbox, and runs in a session. The warm-up includes the run that makes the
// session.
func (b *bed) engineModes(i interpreter) []mode {
	with := func(e *engine.Engine, name string, display sandboxmcp.Display) mode {
		return b.one(name, i.bare(), func(ctx context.Context) (time.Duration, error) {
			return execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: i.hello(), Display: display})
		})
	}
	out := []mode{with(b.engines[i.Search], inProcess(i), sandboxmcp.DisplayNone)}
	if i.Lang == sandboxmcp.Python {
		out = append(out, with(b.engines[i.Search], inProcess(i)+", display stdout", sandboxmcp.DisplayStdout))
	}
	out = append(out, with(b.pooled[i.Label], inPooled(i), sandboxmcp.DisplayNone))
	if i.Lang == sandboxmcp.Python {
		out = append(out, b.one(inDemand(i), i.bare(), onDemand(b.pooled[i.Label], i, i.hello())))
		out = append(out, b.one(inUnseen(i), i.bare(), unseen(b.pooled[i.Label], i, func(l *sandboxmcp.Limits, n int) { l.MaxRAMMB = sandboxmcp.DefaultLimits().MaxRAMMB + n })))
		out = append(out, b.one(inTimed(i), i.bare(), unseen(b.pooled[i.Label], i, func(l *sandboxmcp.Limits, n int) {
			l.TimeoutSeconds = sandboxmcp.DefaultLimits().TimeoutSeconds + float64(n)
		})), b.one(inNumbered(i), i.bare(), unseen(b.pooled[i.Label], i, func(l *sandboxmcp.Limits, n int) {
			l.MaxProcesses = sandboxmcp.DefaultLimits().MaxProcesses + n
		})))
	}
	return append(out, b.one(inSession(i), i.bare(), func(ctx context.Context) (time.Duration, error) {
		id := sandboxmcp.SessionID("bench-" + string(i.Lang))
		return execute(ctx, b.pooled[i.Label], sandboxmcp.Request{Language: i.Lang, Code: i.hello(), SessionID: id})
	}))
}

// onDemand makes requests for which no sandbox is ready although the engine keeps some
// ready. The memory limit decides the size of /tmp, which belongs to a sandbox's shape. More sizes are
// asked for in turn than are kept ready.
func onDemand(e *engine.Engine, i interpreter, code string) func(context.Context) (time.Duration, error) {
	n := 0
	return func(ctx context.Context) (time.Duration, error) {
		n++
		limits := sandboxmcp.Limits{MaxRAMMB: 64 + n%63}
		return execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: code, Limits: limits})
	}
}

// unseen makes requests of which each has a limit that no other one has.
func unseen(e *engine.Engine, i interpreter, limit func(l *sandboxmcp.Limits, n int)) func(context.Context) (time.Duration, error) {
	n := 0
	return func(ctx context.Context) (time.Duration, error) {
		n++
		var l sandboxmcp.Limits
		limit(&l, n)
		return execute(ctx, e, sandboxmcp.Request{Language: i.Lang, Code: i.hello(), Limits: l})
	}
}

// firstModes measure the first request of a process, once with a used state directory and
// once with a new one.
func (b *bed) firstModes(i interpreter) []mode {
	used, err := b.dir("first")
	first := func(what string, state func() (string, error)) mode {
		name := "first request of a process, " + what
		m := mode{rows: []string{name, name + ": opening the engine", name + ": the request"}, base: i.bare()}
		if err != nil {
			m.skip = err.Error()
		}
		m.run = func(ctx context.Context) ([]float64, error) {
			dir, err := state()
			if err != nil {
				return nil, err
			}
			out, err := b.child(ctx, "first", "-state", dir, "-lang", string(i.Lang)).Output()
			if err != nil {
				return nil, fmt.Errorf("child: %w%s", err, stderrOf(err))
			}
			var f first
			if err := json.Unmarshal(out, &f); err != nil {
				return nil, fmt.Errorf("child: %w", err)
			}
			return []float64{f.OpenMS + f.ExecuteMS, f.OpenMS, f.ExecuteMS}, nil
		}
		return m
	}
	return []mode{
		first("known state directory", func() (string, error) { return used, nil }),
		first("new state directory", func() (string, error) { return b.dir("new") }),
	}
}

// fileModes run a program from a file, bare and by the command line, without and with a server
// that has the same state directory.
func (b *bed) fileModes(ctx context.Context, i interpreter) ([]mode, error) {
	dir, err := b.dir("cli")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "hello.py")
	if err := os.WriteFile(file, []byte(i.hello()+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("write program: %w", err)
	}
	byCommand := func(name, state string) mode {
		env := set(b.env, "SANDBOXMCP_STATE_DIR", state)
		return b.one(name, rowBareFile, func(ctx context.Context) (time.Duration, error) {
			return b.command(ctx, program{env: env, argv: []string{b.o.bin, "run", file}})
		})
	}
	served := filepath.Join(dir, "served")
	live := byCommand(rowCLIServer, served)
	if s, err := b.serve(ctx, "SANDBOXMCP_STATE_DIR", served); err != nil {
		live.skip = err.Error()
	} else {
		b.closers = append(b.closers, s.close)
	}
	return []mode{
		b.one(rowBareFile, i.bare(), func(ctx context.Context) (time.Duration, error) {
			return b.command(ctx, program{env: plainEnv(), argv: []string{i.Path, file}})
		}),
		byCommand(rowCLI, filepath.Join(dir, "state")),
		live,
	}, nil
}

// serverModes measure round trips to a server in another process.
func (b *bed) serverModes(ctx context.Context, i interpreter) []mode {
	var out []mode
	c, err := b.serve(ctx)
	m := mode{rows: []string{rowServe}, base: i.bare()}
	if err != nil {
		m.skip = err.Error()
	} else {
		b.server = c
		b.closers = append(b.closers, c.close)
		m = b.one(rowServe, i.bare(), func(context.Context) (time.Duration, error) { return c.execute(string(i.Lang), i.hello(), "1\n") })
	}
	out = append(out, m)
	m = mode{rows: []string{rowTimed, rowAdded}, base: i.bare()}
	t, err := b.timed(ctx)
	if err != nil {
		m.skip = err.Error()
	} else {
		b.closers = append(b.closers, t.close)
		m.run = func(context.Context) ([]float64, error) {
			whole, err := t.execute(string(i.Lang), i.hello(), "1\n")
			if err != nil {
				return nil, err
			}
			inside, err := t.inside()
			if err != nil {
				return nil, err
			}
			return []float64{milliseconds(whole), milliseconds(whole - inside)}, nil
		}
	}
	return append(out, m)
}

// serve starts the product's server with a state directory of its own.
func (b *bed) serve(ctx context.Context, settings ...string) (*client, error) {
	dir, err := b.dir("serve")
	if err != nil {
		return nil, err
	}
	env := set(b.env, "SANDBOXMCP_STATE_DIR", dir)
	for i := 0; i+1 < len(settings); i += 2 {
		env = set(env, settings[i], settings[i+1])
	}
	return dial(ctx, program{env: env, argv: []string{b.o.bin, "serve"}})
}

// serverP50 returns the median run time that the server reports.
func (b *bed) serverP50() float64 {
	if b.server == nil {
		return 0
	}
	var stats sandboxmcp.Stats
	if _, err := b.server.tool("sandbox_stats", map[string]any{}, &stats); err != nil {
		return 0
	}
	return stats.LatencyMS.P50
}

// why runs a failed command once more and returns what it prints on stderr.
func (p program) why(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Env, cmd.Dir = p.env, p.cwd()
	_, err := cmd.Output()
	return stderrOf(err)
}

// stderrOf returns the last line that a command wrote to stderr, after a colon.
func stderrOf(err error) string {
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // it is not wrapped
	if !ok || len(bytes.TrimSpace(exit.Stderr)) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.200s", lastLine(bytes.TrimSpace(exit.Stderr)))
}
