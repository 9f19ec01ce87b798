package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

const (
	// BackgroundWord is the hidden command that runs a background server.
	BackgroundWord = "background-server"
	// BackgroundLog is the name of its log in the state directory.
	BackgroundLog = "background.log"
	maxLog        = 1 << 20 // size at which the log is truncated

	startWithin = 5 * time.Second        // time for a started server to answer
	startLook   = 20 * time.Millisecond  // interval of checks whether it answers
	startAnswer = 500 * time.Millisecond // time limit of one such check
	lingerFor   = 5 * time.Minute        // idle time after which a background server ends
	lingerLook  = 500 * time.Millisecond // longest interval of checks whether it is idle
	drainWithin = 5 * time.Second
)

// spawn starts this program with other arguments in a new session. Its output goes to log.
// exited receives the error with which it ends.
func spawn(ctx context.Context, args, env []string, log *os.File) (pid int, exited <-chan error, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, args...)
	cmd.Args[0] = "sandboxmcp" // the name decides how the program acts
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return cmd.Process.Pid, end, nil
}

// startServer starts a background server and waits until it answers. If several commands
// call it at the same time, one starts a server and the others use that one, if will says that it
// will do.
func (a *App) startServer(ctx context.Context, cfg *config.Config, will func(api.Hello) bool) (*api.Client, error) {
	log, err := openLog(cfg.StateDir)
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "a server cannot be started: its log cannot be opened").
			WithHint("check the state directory " + cfg.StateDir).WithCause(err)
	}
	defer func() { _ = log.Close() }()
	defer first(ctx, log.Name())()
	if c := started(ctx, cfg, will); c != nil {
		return c, nil
	}
	began, _ := log.Seek(0, io.SeekEnd)
	args := []string{BackgroundWord}
	if a.Settings != "" {
		args = append(args, "--config", a.Settings)
	}
	pid, exited, err := a.Spawn(ctx, args, a.Env, log)
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "a server cannot be started").WithCause(err)
	}
	over, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for {
		if c := started(over, cfg, func(h api.Hello) bool { return h.PID == pid }); c != nil {
			return c, nil
		}
		select {
		case <-tick.C:
		case end := <-exited:
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the server that was started ended at once: %s", lastWords(log, began)).
				WithHint("run `sandboxmcp doctor`, or see " + log.Name()).WithCause(end)
		case <-over.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the server that was started does not answer within %s", startWithin).
				WithHint("see " + log.Name())
		}
	}
}

// started finds a running server that satisfies is and answers at once.
func started(ctx context.Context, cfg *config.Config, is func(api.Hello) bool) *api.Client {
	ctx, cancel := context.WithTimeout(ctx, startAnswer)
	defer cancel()
	peers, _ := api.Peers(ctx, cfg.StateDir)
	for _, c := range peers {
		if is(c.Peer()) {
			return c
		}
	}
	return nil
}

// first takes the lock under which a server is started. It waits for it a limited time.
// unlock releases it. The lock is on a second open descriptor of the log, so that the
// started server does not inherit it.
func first(ctx context.Context, path string) (unlock func()) {
	f, err := plainfile.Open(path)
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(startLook)
	defer tick.Stop()
	for !tryLock(f) && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return func() { _ = f.Close() }
}

// openLog opens the log of background servers, and creates the state directory if it is
// missing.
func openLog(stateDir string) (*os.File, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	root, err := os.OpenRoot(stateDir)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	how := os.O_RDWR | os.O_CREATE | os.O_APPEND
	switch st, missing := root.Stat(BackgroundLog); {
	case missing != nil:
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("open log %s: %w", filepath.Join(stateDir, BackgroundLog), plainfile.ErrNotRegular)
	case st.Size() > maxLog:
		how |= os.O_TRUNC
	}
	f, err := root.OpenFile(BackgroundLog, how, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}

// lastWords returns the last line that was logged after the offset began.
func lastWords(log io.ReaderAt, began int64) string {
	text, _ := io.ReadAll(io.NewSectionReader(log, began, maxLog))
	last := "it said nothing"
	for line := range bytes.Lines(text) {
		if words, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "sandboxmcp: "); ok {
			last = words
		}
	}
	return last
}

// Background is the server that commands start for sessions. It ends when it has been
// idle for a while.
func (a *App) Background(ctx context.Context, cfg *config.Config) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return a.asServer(ctx, cfg, "cli", func(d front) error {
		if a.Leave != nil {
			if err := a.Leave(); err != nil {
				return err
			}
		}
		return a.keep(ctx, d, stop)
	})
}

// leaveDirectory leaves the working directory of the command that started the server, so
// that it can be removed or unmounted.
func leaveDirectory() error { return os.Chdir(string(filepath.Separator)) }

// keep serves the control socket until the server has been idle for a while or stop was
// called. A caller on the socket may call stop, which cancels ctx.
func (a *App) keep(ctx context.Context, d front, stop func()) error {
	c, e, logger := d.socket(), d.engine, d.logger
	c.Background, c.Stop = true, stop
	for {
		door, err := api.Listen(ctx, c)
		if err != nil {
			return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the control socket cannot be opened").WithCause(err)
		}
		logger.Info("serving", "transport", "control socket", "version", Version(), "state", d.cfg.StateDir)
		a.untilIdle(ctx, e)
		// A session may have been requested at the last moment. So close the socket first,
		// and then check whether the server is still idle.
		drain, cancel := context.WithTimeout(ctx, drainWithin)
		err = door.Drain(drain)
		cancel()
		if err != nil && drain.Err() == nil {
			logger.Warn("close control socket", "error", err)
		}
		switch {
		case ctx.Err() != nil:
			logger.Info("ending on request")
			return nil
		case !inUse(ctx, e):
			logger.Info("ending because it is idle")
			return nil
		}
	}
}

// untilIdle waits until the engine has been idle for a.Linger.
func (a *App) untilIdle(ctx context.Context, e Engine) {
	tick := time.NewTicker(min(lingerLook, a.Linger/4+time.Millisecond))
	defer tick.Stop()
	used, runs := time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		done := runs
		if st, err := e.Stats(ctx); err == nil {
			done = st.Queue.TotalProcessed
		}
		switch {
		case done != runs, inUse(ctx, e): // a run may begin and end between two checks
			used, runs = time.Now(), done
		case time.Since(used) >= a.Linger:
			return
		}
	}
}

// inUse reports whether there are requests or sessions, which would end with the server.
func inUse(ctx context.Context, e Engine) bool {
	if st, err := e.Stats(ctx); err == nil && st.Queue.Active+st.Queue.Queued > 0 {
		return true
	}
	all, err := e.Sessions(ctx, Everyone())
	return err == nil && len(all) > 0
}
