package egress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// AnswerURL is where programs of a sandbox reach the handler of [Answer].
const AnswerURL = "http://127.0.0.1:312"

// Bounds of one sandbox's requests to a handler.
const (
	answerConns = 64 // connections at a time; npm opens 15
	answerHead  = 16 << 10
	answerIdle  = time.Minute
)

// Answered is a sandbox whose only network is a handler of the server.
type Answered struct {
	network *backend.Network
	server  *http.Server
	cancel  context.CancelFunc
	done    chan struct{}
}

// Answer makes a handler the only network of a sandbox: programs reach it at [AnswerURL]. All
// other sockets of n are closed, so that names are not resolved and connections to other
// addresses are refused. The caller calls Close before the sandbox ends.
func Answer(ctx context.Context, n *backend.Network, h http.Handler, log *slog.Logger) *Answered {
	ctx, cancel := context.WithCancel(ctx)
	own := &backend.Network{DNS: n.DNS, DNSTCP: n.DNSTCP, TCP: n.TCP}
	_ = own.Close() // a socket that is closed already is closed
	a := &Answered{network: n, cancel: cancel, done: make(chan struct{})}
	a.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Effort.Pace(backend.CostConnection)
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: defaultHead, IdleTimeout: answerIdle, MaxHeaderBytes: answerHead,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(a.done)
		_ = a.server.Serve(netutil.LimitListener(n.Proxy, answerConns)) // it returns when Close closes the listener
	}()
	return a
}

// Close ends the requests that are served and closes the network. It may be called more than
// once.
func (a *Answered) Close() error {
	a.cancel()
	_ = a.server.Close() // of connections that are gone already
	<-a.done
	return a.network.Close()
}
