package docker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/image"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// DefaultHost is the address of an engine that is installed from a package: a unix socket, or a named
// pipe on Windows.
const DefaultHost = dockerapi.DefaultHost

// Engine starts containers. It connects when it is first used, and again after a failure.
type Engine struct {
	cfg    Config
	choice choice

	limit      time.Duration // bounds the time in which a call connects
	connecting chan struct{} // holds an element while a call connects; other calls wait for that without holding mu

	mu       sync.Mutex
	api      *dockerapi.Client // nil: not connected
	images   images
	weak     []string  // known holes of this engine
	examined time.Time // when the engine was last asked about itself
	profile  string
	owner    string

	leftMu sync.Mutex
	left   []string // ids of containers that could not be removed

	arch       seccomp.Arch // of the engine's machine
	runtimes   []string     // that the engine offers, sorted
	maps       bool         // user ids of containers are mapped to other ids of the machine
	program    sync.Mutex   // held while programDir is made
	programDir string       // holds the relay; empty: not made yet
}

func newEngine(cfg Config) *Engine {
	if cfg.Host == "" {
		cfg.Host = DefaultHost
	}
	e := &Engine{cfg: cfg, choice: choice{image.Names(), image.Usual()}, limit: connectLimit, connecting: make(chan struct{}, 1)}
	if cfg.Image != "" {
		e.choice = choice{names: []string{cfg.Image}}
	}
	return e
}

// Name returns the backend's name.
func (*Engine) Name() string { return Name }

// connectLimit bounds how long a call waits to connect: until the engine has answered about itself and its images, and
// until calls before it have connected. For an engine whose process is stopped, the kernel accepts connections that get no
// answer.
const connectLimit = 30 * time.Second

// factAge is how long it is believed what the engine has said about itself. It may start again with another runc or other
// users meanwhile, and its connections do not show that.
const factAge = time.Minute

// connect returns the client of an engine that has answered and has an image. It agrees with the
// engine on the version of the API.
func (e *Engine) connect(ctx context.Context) (*dockerapi.Client, images, error) {
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	select {
	case e.connecting <- struct{}{}:
		defer func() { <-e.connecting }()
	case <-ctx.Done():
		return nil, images{}, e.failure("connect", ctx.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api != nil && time.Since(e.examined) < factAge {
		return e.api, e.images, nil
	}
	if e.api != nil {
		if err := e.examine(ctx, e.api); err != nil {
			e.api = nil
			return nil, images{}, err
		}
		return e.api, e.images, nil
	}
	dir := e.cfg.Certs
	if !strings.HasPrefix(e.cfg.Host, "tcp://") && !strings.HasPrefix(e.cfg.Host, "https://") {
		dir = ""
	}
	api, err := dockerapi.New(dockerapi.Config{Host: e.cfg.Host, Certs: dir})
	if err != nil && dir != "" {
		return nil, images{}, e.untrusted("the certificates of "+dir+" cannot be used", err)
	}
	if err != nil {
		return nil, images{}, sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "the engine at %s cannot be used: %s", e.cfg.Host, err).
			WithHint("correct docker_host, or DOCKER_HOST")
	}
	if err = e.prepare(ctx, api); err != nil {
		return nil, images{}, err
	}
	e.api = api
	return api, e.images, nil
}

// examine learns of the holes, the users and the machine of the engine. It is called with mu held.
func (e *Engine) examine(ctx context.Context, api *dockerapi.Client) error {
	version, err := api.Version(ctx)
	if err != nil {
		return e.failure("connect", err)
	}
	e.weak = nil
	for _, c := range version.Components {
		if c.Name == runc && (e.cfg.Runtime == "" || e.cfg.Runtime == runc) {
			e.weak = append(e.weak, holes(c.Version)...)
		}
	}
	if e.cfg.relays() {
		err = e.lookAround(ctx, api)
	} else {
		err = e.sameUsers(ctx, api)
	}
	e.examined = time.Now()
	return err
}

// prepare examines the engine, finds the image, and removes what dead servers left.
func (e *Engine) prepare(ctx context.Context, api *dockerapi.Client) error {
	err := e.examine(ctx, api)
	if err != nil {
		return err
	}
	if e.images, err = e.findImages(ctx, api); err != nil {
		return err
	}
	if e.profile == "" {
		if e.profile, err = profile(); err != nil {
			return e.failure("make the seccomp profile", err)
		}
	}
	if e.owner, err = self(); err != nil {
		return e.failure("name the owner of containers", err)
	}
	e.sweep(ctx, api)
	e.removeLeft(ctx, api)
	return nil
}

// sameUsers returns an error if the engine maps the user ids of containers to other ids of the machine. The server gives
// each container a user id of the machine of its own, so ids must mean the same in containers.
func (e *Engine) sameUsers(ctx context.Context, api *dockerapi.Client) error {
	info, err := api.Info(ctx)
	if err != nil {
		return e.failure("connect", err)
	}
	if !mapsUsers(info) {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the engine at %s maps users (userns-remap, or rootless), so a server of root cannot give containers user ids that no other process has", e.cfg.Host).
		WithHint("use the process backend, whose sandboxes have user namespaces, or an engine without userns-remap")
}

// forget makes the next call connect again, and look for the image again.
func (e *Engine) forget(api *dockerapi.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api == api {
		e.api = nil
	}
}

func (e *Engine) close() {
	e.mu.Lock()
	api := e.api
	e.mu.Unlock()
	e.forget(api)
}

// untrusted is the error of an engine that does not know this client by its certificate, or the other way
// round.
func (e *Engine) untrusted(why string, err error) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "no TLS with the engine at %s: %s: %s", e.cfg.Host, why, shown(err)).WithCause(err).
		WithHint("set DOCKER_CERT_PATH to the directory with the ca.pem, cert.pem and key.pem of this engine, or unset DOCKER_TLS_VERIFY if it has no TLS")
}

// failure converts an error of the engine. If it cannot be reached, that is docker_unavailable.
func (e *Engine) failure(what string, err error) *sandboxmcp.Error {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e.untrusted("its certificate is not valid", err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // a TLS alert
		return e.untrusted("it refuses the certificate of this client", err)
	}
	switch {
	case err == nil:
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "docker: %s failed", what)
	case dockerapi.IsUnreachable(err): // before the next: a connection that is not made in time has a deadline too
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "no engine answers at %s", e.cfg.Host).WithCause(err).
			WithHint("start it (`systemctl start docker`), set docker_host to its socket, or use the process backend")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "docker: %s: the engine did not answer in time", what).WithCause(err).
			WithHint("see whether `docker ps` answers, and the engine's log")
	}
	text := shown(err)
	if text != err.Error() {
		e.cfg.Logger.Warn("the engine refuses a call", "call", what, "error", err)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "docker: %s: %s", what, text).WithCause(err).WithHint("the engine's log says more (`journalctl -u docker`)")
}

// Bytes of an error that callers get from its beginning and its end. The end usually has the reason: some engines
// repeat the request before it, with the whole seccomp profile.
const (
	shownStart = 256
	shownEnd   = 768
)

// shown returns the text of an error for callers.
func shown(err error) string {
	text := err.Error()
	if len(text) <= shownStart+shownEnd {
		return text
	}
	return strings.ToValidUTF8(text[:shownStart], "") + fmt.Sprintf(" … (%d bytes left out) … ", len(text)-shownStart-shownEnd) + strings.ToValidUTF8(text[len(text)-shownEnd:], "")
}

// holePrefix begins the text of each known hole.
const holePrefix = "engine: runc "

// holes returns the known holes of a version of runc.
func holes(version string) []string {
	var major, minor, patch int
	n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &major, &minor, &patch)
	at := func(m, p int) bool { return major == 1 && minor == m && patch >= p }
	if n == 3 && (major > 1 || major == 1 && minor >= 5 || at(4, 3) || at(3, 6)) {
		return nil
	}
	return []string{holePrefix + version + " is older than the fixes of known escapes (1.3.6, 1.4.3, 1.5.0), unless its distribution has added them"}
}
