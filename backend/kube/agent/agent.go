package agent

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of connections before one was taken.
const (
	headLimit = 5 * time.Second
	headBytes = 4096
	mostOpen  = 32 // connections at a time
)

// Agent waits for a server.
type Agent struct {
	Keys []ed25519.PublicKey
	Pod  string           // UID
	Now  func() time.Time // nil: time.Now
	Log  *slog.Logger     // nil: none

	taken atomic.Bool
	got   chan *net.TCPConn
}

// Serve waits for a valid request, at most until ctx ends, and returns its connection. The answer was
// sent. The listener and every other connection are closed.
func (a *Agent) Serve(ctx context.Context, l net.Listener) (*net.TCPConn, error) {
	if len(a.Keys) == 0 || a.Pod == "" {
		_ = l.Close()
		return nil, errors.New("the agent needs public keys and the pod's UID")
	}
	a.got = make(chan *net.TCPConn, 1)
	if a.Log == nil {
		a.Log = slog.New(slog.DiscardHandler)
	}
	s := &http.Server{
		Handler: a, ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug), MaxHeaderBytes: headBytes,
		ReadTimeout: headLimit, ReadHeaderTimeout: headLimit, WriteTimeout: headLimit, IdleTimeout: headLimit,
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(&bounded{Listener: l, open: make(chan struct{}, mostOpen)}) }()
	var conn *net.TCPConn
	var err error
	select {
	case conn = <-a.got:
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-done:
		return nil, err
	}
	_ = s.Close() // the taken connection is no longer the server's
	_ = <-done
	if err != nil {
		a.taken.Store(true)
		select { // a request may have been accepted meanwhile
		case conn = <-a.got:
			_ = conn.Close()
		default:
		}
		return nil, err
	}
	return conn, nil
}

// ServeHTTP answers a request.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	refuse := func(status int, why string) { http.Error(w, why, status) }
	switch {
	case r.URL.Path != Path:
		refuse(http.StatusNotFound, "not found")
		return
	case r.Method != http.MethodPost:
		refuse(http.StatusMethodNotAllowed, "use POST")
		return
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		refuse(http.StatusRequestEntityTooLarge, "the request has a body")
		return
	}
	token, ok := strings.CutPrefix(proof(r), "Bearer ")
	if !ok {
		refuse(http.StatusUnauthorized, "a statement is missing")
		return
	}
	now := time.Now
	if a.Now != nil {
		now = a.Now
	}
	if err := Check(token, a.Keys, a.Pod, PurposeRelay, now()); err != nil {
		a.Log.Warn("a request was refused", "from", r.RemoteAddr, "reason", err)
		refuse(http.StatusForbidden, err.Error())
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), Upgrade) {
		refuse(http.StatusUpgradeRequired, "upgrade to "+Upgrade)
		return
	}
	if a.taken.Swap(true) {
		refuse(http.StatusConflict, "the pod is in use")
		return
	}
	conn, err := take(w)
	if err != nil { // the pod cannot be used any more, so that no statement is used twice
		a.Log.Error("a connection was not taken", "error", err)
		conn = nil
	}
	a.got <- conn
}

func proof(r *http.Request) string {
	if p := r.Header.Get(HeaderProof); p != "" {
		return p
	}
	return r.Header.Get("Authorization")
}

// Keepalive of the connection: a server that is gone without a word is noticed within a minute.
var alive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 8 * time.Second, Count: 4}

// take takes the connection from the HTTP server and answers with 101.
func take(w http.ResponseWriter) (*net.TCPConn, error) {
	h, ok := w.(http.Hijacker)
	if !ok {
		return nil, errors.New("the connection cannot be taken")
	}
	c, rw, err := h.Hijack()
	if err != nil {
		return nil, err
	}
	conn, err := answer(c, rw)
	if err != nil {
		_ = c.Close()
	}
	return conn, err
}

func answer(c net.Conn, rw *bufio.ReadWriter) (*net.TCPConn, error) {
	if rw.Reader.Buffered() > 0 {
		return nil, errors.New("bytes came before the answer")
	}
	b, ok := c.(*counted)
	if !ok {
		return nil, fmt.Errorf("the connection is a %T", c)
	}
	tcp, ok := b.Conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("the connection is a %T", b.Conn)
	}
	if err := errors.Join(tcp.SetKeepAliveConfig(alive), tcp.SetNoDelay(true), tcp.SetDeadline(time.Now().Add(headLimit))); err != nil {
		return nil, err
	}
	_, err := fmt.Fprintf(tcp, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", Upgrade, HeaderArch, runtime.GOARCH)
	return tcp, errors.Join(err, tcp.SetDeadline(time.Time{}))
}

// bounded bounds how many connections are open.
type bounded struct {
	net.Listener
	open chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	b.open <- struct{}{} // connections end by themselves within headLimit
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.open
		return nil, err
	}
	return &counted{Conn: c, open: b.open}, nil
}

type counted struct {
	net.Conn
	open chan struct{}
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { <-c.open })
	return c.Conn.Close()
}
