package app

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// current are the settings of a server, which may be read again. Its methods may be called concurrently.
type current struct {
	mu    sync.Mutex
	now   *config.Config
	mixed bool // the engine may have read other settings than now
	parts map[int]func(*config.Config)
	next  int
}

// follow calls set with the settings in force, and again after each reload until stop is called.
func (s *current) follow(set func(*config.Config)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(s.now)
	id := s.next
	s.next++
	if s.parts == nil {
		s.parts = map[int]func(*config.Config){}
	}
	s.parts[id] = set
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.parts, id)
	}
}

// config returns the settings in force.
func (s *current) config() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// settled returns the settings in force, or nil while the engine may have others.
func (s *current) settled() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mixed {
		return nil
	}
	return s.now
}

// mix says whether the engine may have other settings.
func (s *current) mix(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mixed = on
}

// reread puts the settings of the sources into force, as far as they can be reloaded.
func (s *current) reread(from config.Sources) error {
	read, err := config.Load(from)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.now.Reloaded(read)
	if err != nil {
		return err
	}
	s.now = next
	for _, set := range s.parts {
		set(next)
	}
	return nil
}

// reload reads the settings of a server again at each signal, until ctx ends. The log says what
// has changed, and which changes need a new start.
func (a *App) reload(ctx context.Context, e Engine, s *current, logger *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.Reloads:
		}
		before := s.settled()
		s.mix(true)
		done, err := e.Reload()
		if err != nil {
			s.mix(before == nil) // nothing has changed
			failed := sandboxmcp.AsError(err)
			logger.Error("the settings are not reloaded, those in force stay", "error", failed.Message, "hint", failed.Hint)
			continue
		}
		if err = s.reread(config.Sources{Env: a.Env, File: a.file, Flags: a.Flags}); err != nil { // the file has changed once more
			logger.Error("only the engine has reloaded the settings", "error", sandboxmcp.AsError(err).Message)
			continue
		}
		s.mix(false)
		logger.Info("settings reloaded", "changed", done.Changed)
		if len(done.Held) > 0 {
			logger.Warn("these settings have changed and need a new start of the server", "settings", done.Held)
		}
	}
}
