package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Server is an open control socket.
type Server struct {
	hello   Hello
	handler Handler
	logger  *slog.Logger
	upload  int64
	http    *http.Server
	root    *os.Root
	dir     *os.File
	name    string
	serving sync.WaitGroup
	closing sync.Once

	followers atomic.Int32
	ending    chan struct{} // closed when followers have to go
}

// Config is what a [Server] is made of. Background and MaxUpload may be left out.
type Config struct {
	StateDir   string
	Handler    Handler // asked from several goroutines at a time
	Logger     *slog.Logger
	Background bool  // see [Hello]
	MaxUpload  int64 // bytes of a file that is put into a session; 0: 52 428 800
}

// Listen opens a control socket below the state directory and answers on it
// until [Server.Close]. The context bounds the opening only, and its values
// reach the handler.
func Listen(ctx context.Context, c Config) (*Server, error) {
	root, dir, err := openRunDir(c.StateDir, true)
	if err != nil {
		return nil, err
	}
	mark := make([]byte, 4)
	_, _ = rand.Read(mark) // never fails: crypto/rand ends the program instead
	id := strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(mark)
	s := &Server{
		hello:   Hello{Protocol: Protocol, ID: id, PID: os.Getpid(), StartedAt: time.Now().UTC(), Background: c.Background, AuditInMemory: c.Handler.AuditInMemory()},
		handler: c.Handler, logger: c.Logger, upload: cmp.Or(c.MaxUpload, defaultUpload), root: root, dir: dir, name: id + suffix, ending: make(chan struct{}),
	}
	l, err := s.bind(ctx)
	if err != nil {
		s.release()
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: callTimeout,
		ReadTimeout:       2 * callTimeout,
		WriteTimeout:      4 * callTimeout,
		IdleTimeout:       4 * callTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.serving.Go(func() {
		if err := s.http.Serve(guarded{l, c.Logger}); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.Error("control socket ended", "error", err)
		}
	})
	return s, nil
}

// bind listens under a name that nobody looks for and renames the socket when
// it answers: between the two a look at it would take it for a dead one.
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

// Hello tells what the socket says of its server.
func (s *Server) Hello() Hello { return s.hello }

// Close removes the socket, ends what is being answered and returns when
// nothing of it is left. It may be called more than once.
func (s *Server) Close() error { return s.end(s.http.Close) }

// Drain is [Server.Close] that lets what is being answered come to its end, for
// as long as ctx lasts.
func (s *Server) Drain(ctx context.Context) error {
	return s.end(func() error { return errors.Join(s.http.Shutdown(ctx), s.http.Close()) })
}

func (s *Server) end(how func() error) error {
	var err error
	s.closing.Do(func() {
		_ = s.root.Remove(s.name)
		close(s.ending)
		err = how()
		s.serving.Wait()
		s.release()
	})
	return err
}

func (s *Server) release() {
	_ = s.dir.Close()
	_ = s.root.Close()
}

// guarded lets in only the users that [trusted] names.
type guarded struct {
	net.Listener
	logger *slog.Logger
}

// passing is an error of Accept that a later call may not have, such as a lack of
// descriptors or of epoll watches. A server of net/http waits a moment after it
// and goes on; other errors end it for good.
type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }
func (p passing) Unwrap() error { return p.error }

// Accept returns the next connection of a trusted user.
func (g guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return nil, passing{err}
		}
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(c)
		if err == nil && mayAsk(uid) {
			return c, nil
		}
		g.logger.Warn("control connection refused", "uid", uid, "error", err)
		_ = c.Close()
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, http.StatusOK, s.hello) })
	mux.HandleFunc("GET /v1/stats", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, http.StatusOK, s.handler.Stats()) })
	mux.HandleFunc("GET /v1/queue", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, http.StatusOK, s.handler.Stats().Queue) })
	mux.HandleFunc("GET /v1/request", s.lookup)
	mux.HandleFunc("POST /v1/cancel", s.cancel)
	mux.HandleFunc("POST /v1/execute", s.execute)
	mux.HandleFunc("POST /v1/start", s.start)
	s.sessionRoutes(mux)
	s.guardRoutes(mux)
	s.egressRoutes(mux)
	s.vaultRoutes(mux)
	s.auditRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := otherVersion(r); err != nil {
			s.fail(w, err)
			return
		}
		s.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the control socket has no %s %s", r.Method, sandboxmcp.Quote(r.URL.Path)).
			WithHint("the other side may be of another version"))
	})
	return mux
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	e := s.coded(err)
	s.answer(w, e.Code.Row().HTTP, e.Body())
}

// coded is a failure as it is shown; a fault of ours goes to the log.
func (s *Server) coded(err error) *sandboxmcp.Error {
	e := sandboxmcp.AsError(err)
	if e.Code == sandboxmcp.CodeInternal {
		s.logger.Error("control call ended in a fault", "error", err)
	}
	return e
}

func (s *Server) answer(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		s.logger.Error("encode control answer", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
