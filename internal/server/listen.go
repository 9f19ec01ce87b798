package server

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

// Limits of the HTTP server.
const (
	maxHeaderBytes  = 16 << 10
	maxConnections  = 512 // open connections; a further one replaces the idlest
	maxPortsTried   = 100
	headerTimeout   = 5 * time.Second
	requestTimeout  = 10 * time.Second
	responseTimeout = 30 * time.Second // time to send an answer without a file; files have pieceTimeout
	idleTimeout     = 30 * time.Second
	closeGrace      = time.Second
)

// ListenConfig says where to listen.
type ListenConfig struct {
	Host    string // empty: 127.0.0.1
	Port    int
	PortSet bool // the operator has set the port: try no other
}

// Listener is an open port for [ServeFiles].
type Listener struct {
	net.Listener
	URL  string // base URL for links, http://host:port; if Host is all addresses, with one of the machine's
	Note string // a line for the operator; mostly empty
}

// Listen opens the port. If a default port is in use, it opens the next free one, and Note
// says so. If a port that the operator has set is in use, it fails with
// [sandboxmcp.CodeBackendUnavailable] and a message of one line for the operator.
func Listen(ctx context.Context, c ListenConfig) (*Listener, error) {
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
	out := &Listener{Listener: newBounded(l, maxConnections)}
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

// ServeFiles serves h on l until ctx ends or stop is called. stop waits up to a second for
// requests that are being answered, closes their connections, and returns when all have ended.
func ServeFiles(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) (stop func()) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	base, cancel := context.WithCancel(ctx)
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      responseTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         connState,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // errors of clients
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
