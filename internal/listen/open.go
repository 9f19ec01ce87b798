package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Limits of an HTTP server.
const (
	maxHeaderBytes = 16 << 10
	maxConnections = 512 // open connections; a further one replaces the idlest
	maxPortsTried  = 100
	headerTimeout  = 5 * time.Second
	idleTimeout    = 30 * time.Second
	closeGrace     = time.Second
)

// Config says where to listen.
type Config struct {
	Host    string // empty: 127.0.0.1
	Port    int
	PortSet bool // the operator has set the port: try no other
}

// Listener is an open port for [Serve].
type Listener struct {
	net.Listener
	URL  string // base URL for links, http://host:port; if Host is all addresses, with one of the machine's
	Note string // a line for the operator; mostly empty
}

// Open opens the port. If a default port is in use, it opens the next free one, and Note
// says so. If a port that the operator has set is in use, it fails with
// [sandboxmcp.CodeBackendUnavailable] and a message of one line for the operator.
func Open(ctx context.Context, c Config) (*Listener, error) {
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	l, err := listenAt(ctx, c.Host, c.Port)
	for port := c.Port + 1; err != nil && !c.PortSet && errors.Is(err, syscall.EADDRINUSE) && port <= min(c.Port+maxPortsTried, 65535); port++ {
		l, err = listenAt(ctx, c.Host, port)
	}
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "HTTP is off: cannot listen on port %d of %s", c.Port, c.Host).
			WithHint("free the port or set another").WithCause(err)
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("address of the listener: %w", err)
	}
	bounded := newBounded(l, maxConnections)
	bounded.heads = true
	out := &Listener{Listener: bounded}
	host := linkHost(c.Host, at.Addr(), ownAddresses)
	out.URL = "http://" + net.JoinHostPort(host, strconv.Itoa(int(at.Port())))
	if int(at.Port()) != c.Port && c.Port != 0 {
		out.Note = fmt.Sprintf("HTTP port %d is taken; listening on %d instead. ", c.Port, at.Port())
	}
	if !at.Addr().Unmap().IsLoopback() {
		out.Note += fmt.Sprintf("HTTP listens on %s, which other machines may reach; links name %s. ", at, host)
	}
	out.Note = strings.TrimSpace(out.Note)
	return out, nil
}

// linkHost returns the host in links. If the listener is bound to all addresses, it is an
// address by which other machines can reach this one, if possible of the requested family.
// Without such an address it is a loopback address.
func linkHost(asked string, bound netip.Addr, own func() []netip.Addr) string {
	if !bound.IsUnspecified() {
		return asked
	}
	want6 := false
	if ip, err := netip.ParseAddr(asked); err == nil {
		want6 = ip.Is6() && !ip.Is4In6()
	}
	all := own()
	if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is6() == want6 }); i >= 0 {
		return all[i].String()
	}
	switch {
	case len(all) > 0:
		return all[0].String()
	case want6:
		return "::1"
	}
	return "127.0.0.1"
}

// ownAddresses returns the addresses by which other machines may reach this one, in the
// order of its interfaces. It sends nothing over the network.
func ownAddresses() []netip.Addr {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var own []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		list, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				own = append(own, p.Addr().Unmap())
			}
		}
	}
	return own
}

func listenAt(ctx context.Context, host string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// Served is what [Serve] serves.
type Served struct {
	Handler http.Handler
	Logger  *slog.Logger // nil: nothing is logged

	// Time to receive a request and to send an answer. Zero: the handler sets the deadlines.
	RequestTimeout, ResponseTimeout time.Duration

	// Connected adds values of a new connection to the contexts of its requests; nil: none.
	Connected func(ctx context.Context, c net.Conn) context.Context
}

// Serve serves HTTP on l until ctx ends or stop is called. stop waits up to a second for
// requests that are being answered, closes their connections, and returns when all have ended.
func Serve(ctx context.Context, l net.Listener, s Served) (stop func()) {
	log := s.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	base, cancel := context.WithCancel(ctx)
	srv := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.RequestTimeout,
		WriteTimeout:      s.ResponseTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         ConnState,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if ctx = ConnContext(ctx, c); s.Connected != nil {
				ctx = s.Connected(ctx, c)
			}
			return ctx
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // errors of clients
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("http ended", "err", err)
		}
	})
	end := sync.OnceFunc(func() {
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer done()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close()
		}
		cancel()
		wg.Wait()
	})
	unhook := context.AfterFunc(ctx, end)
	return func() { unhook(); end() }
}
