package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

// Server is the API on a unix socket in a state directory.
type Server struct {
	handler *handler
	http    *http.Server
	root    *os.Root
	dir     *os.File
	name    string
	serving sync.WaitGroup
	closing sync.Once
	ended   context.CancelFunc // disconnects event followers
}

// Config configures a [Server]. StateDir, Service and Logger are required.
type Config struct {
	StateDir      string
	Service       sandboxmcp.Service
	Logger        *slog.Logger
	Background    bool          // see [Hello]
	AuditInMemory bool          // see [Hello]
	MaxUpload     func() int64  // bytes of an uploaded file; nil: 52 428 800
	Stop          func()        // ends the server when a caller asks for it; nil: callers cannot end it
	Alike         func() string // see [Hello], as it is now; nil: not known
}

// Actor is the actor of unix socket peers in the audit log.
const Actor = "cli"

// Listen opens a socket below the state directory and serves the API on it until
// [Server.Close]. Its peers are the server's own user and root, and can read the state
// directory, so they hold every namespace. ctx bounds only the opening.
func Listen(ctx context.Context, c Config) (*Server, error) {
	root, dir, err := openRunDir(c.StateDir, true)
	if err != nil {
		return nil, err
	}
	sweep(root, dir, time.Now())
	mark := make([]byte, 4)
	_, _ = rand.Read(mark) // never fails: crypto/rand ends the process instead
	id := strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(mark)
	ending, ended := context.WithCancel(context.WithoutCancel(ctx))
	owner := sandboxmcp.Identity{Every: true, Actor: Actor}
	proof, err := writeProof(root, id)
	if err != nil {
		ended()
		_ = dir.Close()
		_ = root.Close()
		return nil, fmt.Errorf("open API socket: %w", err)
	}
	s := &Server{
		handler: &handler{
			hello:   Hello{Protocol: Protocol, ID: id, PID: os.Getpid(), StartedAt: time.Now().UTC(), Background: c.Background, AuditInMemory: c.AuditInMemory},
			service: c.Service, logger: c.Logger, maxUpload: c.MaxUpload, stop: c.Stop, alike: c.Alike, ending: ending,
			beat: heartbeat, followers: followers{each: maxFollow},
			identify: func(r *http.Request) (sandboxmcp.Identity, error) { return owner, proved(r, proof) },
		},
		ended: ended, root: root, dir: dir, name: id + suffix,
	}
	l, err := s.bind(ctx)
	if err != nil {
		s.remove()
		s.release()
		return nil, fmt.Errorf("open API socket: %w", err)
	}
	s.http = &http.Server{
		Handler:           s.handler.mount(),
		ReadHeaderTimeout: callTimeout,
		ReadTimeout:       2 * callTimeout,
		WriteTimeout:      4 * callTimeout,
		IdleTimeout:       4 * callTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnState:         listen.ConnState,
		ConnContext:       listen.ConnContext,
	}
	s.serving.Go(func() {
		if err := s.http.Serve(local(l, c.Logger, maxLocal)); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.Error("API socket ended", "error", err)
		}
	})
	return s, nil
}

// bind listens under a temporary name and renames the socket once it accepts. A socket
// that does not accept yet would be taken for that of a dead server, and removed.
func (s *Server) bind(ctx context.Context) (*net.UnixListener, error) {
	hidden := "." + s.name
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", address(s.dir, hidden))
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("listener is no unix socket: %T", l)
	}
	u.SetUnlinkOnClose(false)
	err = s.root.Chmod(hidden, 0o600)
	if err == nil {
		err = s.root.Rename(hidden, s.name)
	}
	if err != nil {
		_ = u.Close()
		_ = s.root.Remove(hidden)
		return nil, err
	}
	return u, nil
}

// Hello returns how the server identifies itself.
func (s *Server) Hello() Hello { return s.handler.greeting() }

// Close removes the socket, ends all requests and waits for their handlers. It may be
// called more than once.
func (s *Server) Close() error { return s.end(s.http.Close) }

// Drain is like [Server.Close], but lets requests complete until ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	return s.end(func() error { return errors.Join(s.http.Shutdown(ctx), s.http.Close()) })
}

func (s *Server) end(how func() error) error {
	var err error
	s.closing.Do(func() {
		s.remove()
		s.ended()
		err = how()
		s.serving.Wait()
		s.release()
	})
	return err
}

// remove removes the socket and the file beside it.
func (s *Server) remove() {
	_ = s.root.Remove(s.name)
	_ = s.root.Remove(strings.TrimSuffix(s.name, suffix) + proofSuffix)
}

func (s *Server) release() {
	_ = s.dir.Close()
	_ = s.root.Close()
}

// maxLocal is how many connections of this machine may be open. A program of the server's user that has no proof can connect as well, such as a
// command of the host, and leave its connections idle, or its requests without their end.
const maxLocal = 512

// proved refuses a request without the proof. The connection of one that has it is not closed in favor of those of strangers.
func proved(r *http.Request, proof string) error {
	err := checkProof(r, proof)
	if err == nil {
		listen.Belongs(r.Context(), "proved")
	}
	return err
}

// local returns l with at most most open connections, of users for which [mayAsk] is true.
func local(l net.Listener, logger *slog.Logger, most int) net.Listener {
	return listen.Bounded(guarded{listen.Steady(l), logger}, most)
}

// guarded accepts only connections of users for which [mayAsk] is true.
type guarded struct {
	net.Listener
	logger *slog.Logger
}

// Accept returns the next connection of such a user. It closes the others.
func (g guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(c)
		if err == nil && mayAsk(uid) {
			return c, nil
		}
		g.logger.Warn("API connection refused", "uid", uid, "error", err)
		_ = c.Close()
	}
}
