package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
)

// Servers of one database call each other by the routes of the unix socket, over TCP with TLS. Each has proved
// that it has the same key, so it may name any caller.

// Query parameters in which a server names the actor and the holder of a call that it passes on; see [sandboxmcp.Caller].
const (
	actorParameter  = "actor"
	holderParameter = "holder"
)

// maxRemote is how many connections from other servers may be open. Any client that reaches the port can connect before
// it proves its key. A further connection replaces the idlest one of the client with the most connections.
const maxRemote = 1024

// RemoteConfig configures [ListenRemote]. All fields are required, except MaxUpload.
type RemoteConfig struct {
	Address   string // host and port
	TLS       *tls.Config
	Service   sandboxmcp.Service // answers by itself: it passes no call on to other servers
	Logger    *slog.Logger
	MaxUpload func() int64 // see [Config]
}

// ListenRemote serves the API to other servers until stop is called. ctx bounds only the opening.
func ListenRemote(ctx context.Context, c RemoteConfig) (stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for other servers: %w", err)
	}
	ending, ended := context.WithCancel(context.WithoutCancel(ctx))
	h := &handler{
		hello:   Hello{Protocol: Protocol, ID: l.Addr().String(), PID: os.Getpid(), StartedAt: time.Now().UTC()},
		service: c.Service, logger: c.Logger, maxUpload: c.MaxUpload, ending: ending, beat: heartbeat, followers: followers{each: maxFollow},
		identify: func(r *http.Request) (sandboxmcp.Identity, error) {
			return sandboxmcp.Identity{Every: true, Actor: r.URL.Query().Get(actorParameter)}, nil
		},
		peers: true,
	}
	s := &http.Server{
		Handler: h.mount(), ReadHeaderTimeout: callTimeout, ReadTimeout: 2 * callTimeout, WriteTimeout: 4 * callTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnState: listen.ConnState,
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(tls.NewListener(listen.Bounded(l, maxRemote), c.TLS)); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.Error("the API for other servers ended", "error", err)
		}
	})
	return func() {
		ended()
		_ = s.Close()
		serving.Wait()
	}, nil
}

// Keepalive of connections between servers. A server whose machine is gone is noticed within 15 seconds, so
// that a call of it ends.
var remoteAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 2}

// Remote returns a client of the server at an address. It does not connect. Its connections are kept for later
// calls until [Client.Close].
func Remote(address string, c *tls.Config) *Client { return remote(address, c, callTimeout) }

// remote is Remote with a limit on the time in which a connection is made, including the TLS handshake. For a server whose
// process is stopped, the kernel still accepts connections, but the handshake gets no answer.
func remote(address string, c *tls.Config, limit time.Duration) *Client {
	dialer := &net.Dialer{KeepAliveConfig: remoteAlive}
	return &Client{
		patience: callTimeout, base: "https://sandboxmcp", hello: Hello{ID: address}, proof: func() (string, error) { return "", nil },
		http: &http.Client{
			Transport: &http.Transport{
				DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					ctx, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					conn, err := (&tls.Dialer{NetDialer: dialer, Config: c}).DialContext(ctx, "tcp", address)
					if err != nil && ctx.Err() != nil { // so that Unreached recognizes it
						return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
					}
					return conn, err
				},
				DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, ExpectContinueTimeout: callTimeout,
				MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, // less than the server's
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes the connections that wait for calls.
func (c *Client) Close() { c.http.CloseIdleConnections() }
