package app

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Default log levels: a command whose stderr belongs to a program logs only errors, a
// server logs at the level of the settings.
const (
	quiet   = false
	talking = true
)

// logger returns the log of the settings and a function that closes it. The log goes to
// stderr, or to a file if one is set or LogFile is. It never goes to stdout.
func (a *App) logger(cfg *config.Config, talk bool) (*slog.Logger, func(), error) {
	level := slog.LevelError
	if talk || cfg.Source("sandbox_log_level") != config.FromDefault {
		level = logLevel(cfg.Tools.LogLevel)
	}
	out, color, done := a.Stderr, false, func() {}
	if f, ok := a.Stderr.(*os.File); ok {
		color = term.IsTerminal(int(f.Fd())) && a.Variable("NO_COLOR") == "" && a.Variable("TERM") != "dumb"
	}
	chosen := cfg.Source("sandbox_log_file") != config.FromDefault
	if chosen || a.LogFile {
		add := appendHere
		if chosen {
			add = appendTo
		}
		f, err := add(cfg.Tools.LogFile)
		switch {
		case err != nil && !chosen:
			a.Say("the log goes to stderr: " + err.Error())
		case err != nil:
			return nil, nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "log file %s cannot be opened", sandboxmcp.Quote(cfg.Tools.LogFile)).
				WithHint("correct SANDBOX_LOG_FILE").WithCause(err)
		default:
			out, color, done = f, false, func() { _ = f.Close() }
		}
	}
	return slog.New(logHandler(out, cfg.Tools.LogFormat, level, color)), done, nil
}

func logHandler(w io.Writer, format string, level slog.Level, color bool) slog.Handler {
	if format == "json" {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: !color, TimeFormat: time.DateTime})
}

func logLevel(name string) slog.Level {
	switch name {
	case "DEBUG":
		return slog.LevelDebug
	case "WARNING":
		return slog.LevelWarn
	case "ERROR", "CRITICAL":
		return slog.LevelError
	}
	return slog.LevelInfo
}

func appendTo(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of log: %w", err)
	}
	// O_NONBLOCK: a FIFO without a reader fails and does not block.
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
}

// appendHere opens the default log file, which is below the working directory. Another person may
// have written that directory, such as a repository. So no link may lead out of it, and the file
// must be a regular file and no link.
func appendHere(path string) (*os.File, error) {
	here, err := os.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = here.Close() }()
	if err = here.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of log: %w", err)
	}
	if info, err := here.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: plainfile.ErrNotRegular}
	}
	return here.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
}
