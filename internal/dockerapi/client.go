package dockerapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Versions of the API that the client speaks. With a newer engine it uses the newest of them.
const (
	oldestMinor = 40 // of Docker 19.03
	newestMinor = 56
)

const (
	dialLimit   = 10 * time.Second // for a connection, and for its TLS
	mostAnswer  = 32 << 20         // bytes of a JSON answer
	mostRefusal = 64 << 10         // bytes of an answer that refuses a call
)

// Config says where an engine is.
type Config struct {
	Host  string // such as unix:///var/run/docker.sock, tcp://127.0.0.1:2375, or npipe:////./pipe/docker_engine on Windows; empty: DefaultHost
	Certs string // directory with ca.pem, cert.pem and key.pem, for TLS over TCP; empty: no TLS

	DialLimit time.Duration // bounds the time in which a connection is made; 0: 10 s
}

// Client calls an engine. Its methods may be called concurrently.
type Client struct {
	transport *http.Transport
	base      url.URL      // scheme, host, and the path that all paths begin with
	minor     atomic.Int32 // of the version that was agreed upon; 0: none
}

// New returns a client. It connects with the first call. It fails if the address cannot be read, or
// the certificates cannot be used.
func New(c Config) (*Client, error) {
	if c.Host == "" {
		c.Host = DefaultHost
	}
	network, address, ok := strings.Cut(c.Host, "://")
	if !ok || address == "" {
		return nil, fmt.Errorf("the address %q of an engine has no form such as unix:///run/docker.sock or tcp://127.0.0.1:2375", c.Host)
	}
	// The transport dials without the deadline of a call.
	d := net.Dialer{Timeout: cmp.Or(c.DialLimit, dialLimit)}
	a := &Client{
		transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: d.DialContext, TLSHandshakeTimeout: d.Timeout},
		base:      url.URL{Scheme: "http", Host: "engine"},
	}
	switch network {
	case "unix":
		a.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", address)
		}
		return a, nil
	case "npipe":
		a.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, d.Timeout)
			defer cancel()
			return dialPipe(ctx, address)
		}
		return a, nil
	case "https":
		if c.Certs == "" {
			return nil, errors.New("the address of an engine begins with https, and there are no certificates for TLS")
		}
	case "tcp", "http":
	default:
		return nil, fmt.Errorf("engines are reached by unix, npipe or tcp, not by %q", network)
	}
	u, err := url.Parse("tcp://" + address)
	if err != nil {
		return nil, err
	}
	a.base.Host, a.base.Path = u.Host, strings.TrimSuffix(u.Path, "/")
	a.transport.Proxy = proxy
	if c.Certs != "" {
		a.base.Scheme = "https"
		a.transport.TLSClientConfig, err = certificates(c.Certs)
	}
	return a, err
}

// proxy returns the proxy of the environment. A stream goes past it.
func proxy(r *http.Request) (*url.URL, error) {
	if r.Header.Get("Upgrade") != "" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// certificates returns the configuration of a client that has a certificate, and trusts only the
// authority in the same directory.
func certificates(dir string) (*tls.Config, error) {
	known := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	if !known.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.pem has no certificate")
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: known, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
}

// Ping asks whether the engine answers, and agrees with it on the version of the API, also if that was
// done before.
func (a *Client) Ping(ctx context.Context) error {
	_, err := a.ping(ctx)
	return err
}

// ping is Ping, and returns the version.
func (a *Client) ping(ctx context.Context) (minor int32, err error) {
	res, err := a.send(ctx, "", Request{Method: http.MethodGet, Path: "/_ping"})
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if minor, err = agree(res.Header.Get("Api-Version")); err != nil {
		return 0, err
	}
	a.minor.Store(minor)
	return minor, nil
}

// agree returns the version to use with an engine whose newest version is named. An engine that names none gets
// the newest that the client speaks.
func agree(newest string) (minor int32, err error) {
	if newest == "" {
		return newestMinor, nil
	}
	major, rest, _ := strings.Cut(newest, ".")
	n, err := strconv.Atoi(rest)
	if major != "1" || err != nil || n < oldestMinor {
		return 0, fmt.Errorf("the engine's API has the version %.20q; the oldest that can be used is 1.%d", newest, oldestMinor)
	}
	return int32(min(n, newestMinor)), nil
}

// Request is a call.
type Request struct {
	Method string
	Path   string // without the version
	Query  url.Values
	Body   any // an io.Reader is sent as it is, other values as JSON; nil: none

	upgrade bool // ask for a stream
}

// Call makes a call and decodes its answer into a pointer; nil discards it.
func (a *Client) Call(ctx context.Context, r Request, answer any) error {
	res, err := a.open(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if answer == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer+1))
	if err != nil {
		return broken(ctx, err)
	}
	if len(data) > mostAnswer {
		return fmt.Errorf("the engine's answer to %s is longer than %d bytes", r.Path, mostAnswer)
	}
	if err = json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the engine's answer to %s cannot be read: %w", r.Path, err)
	}
	return nil
}

// open makes a call and returns its answer, whose body the caller closes. It ends with ctx.
func (a *Client) open(ctx context.Context, r Request) (*http.Response, error) {
	minor := a.minor.Load() // once: another call may reset it
	if minor == 0 {
		var err error
		if minor, err = a.ping(ctx); err != nil {
			return nil, err
		}
	}
	return a.send(ctx, "/v1."+strconv.Itoa(int(minor)), r)
}

// send sends a request with a version, and converts the answer of an engine that refuses it.
func (a *Client) send(ctx context.Context, version string, r Request) (*http.Response, error) {
	body, isJSON, err := r.body()
	if err != nil {
		return nil, err
	}
	u := a.base
	u.Path += version + r.Path
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "sandboxmcp")
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.upgrade {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "tcp")
	}
	res, err := a.transport.RoundTrip(req)
	if err != nil {
		return nil, broken(ctx, err)
	}
	if done := res.StatusCode/100 == 2 || res.StatusCode == http.StatusNotModified || res.StatusCode == http.StatusSwitchingProtocols; done {
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusBadRequest { // also the answer of an engine that was replaced, and has other versions
		a.minor.Store(0)
	}
	return nil, refusal(res)
}

// body returns the request body, and whether the body is JSON.
func (r Request) body() (body io.Reader, isJSON bool, err error) {
	switch b := r.Body.(type) {
	case nil:
		return http.NoBody, false, nil
	case io.Reader:
		return b, false, nil
	}
	data, err := json.Marshal(r.Body)
	return bytes.NewReader(data), true, err
}

// broken converts the error of a connection.
func broken(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return &unreachableError{err}
}

// refusal reads the answer of an engine that refuses a call.
func refusal(res *http.Response) error {
	e := &Error{Status: res.StatusCode}
	text, _ := io.ReadAll(io.LimitReader(res.Body, mostRefusal))
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	var said struct {
		Message string `json:"message"`
	}
	switch {
	case json.Unmarshal(text, &said) == nil:
		e.Message = said.Message
	case kind == "application/json":
	default: // an old engine, or a proxy
		e.Message = string(text)
	}
	e.Message = strings.TrimSpace(e.Message)
	return e
}
