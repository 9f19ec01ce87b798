package kube

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

func publicKey(k ed25519.PrivateKey) ed25519.PublicKey {
	p, _ := k.Public().(ed25519.PublicKey)
	return p
}

// connector makes the connections to pods.
type connector struct {
	key       ed25519.PrivateKey
	client    *http.Client
	base      *url.URL // of the API server; nil: pods are reached at their address
	namespace string
}

// Keepalive of connections to pods: a node that is gone without a word is noticed within a minute.
var alive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 8 * time.Second, Count: 4}

const (
	dialLimit   = 5 * time.Second
	answerBytes = 8 << 10
)

func newConnector(c *cluster, way string, key ed25519.PrivateKey) (*connector, error) {
	k := &connector{key: key, namespace: c.namespace}
	dial := &net.Dialer{Timeout: dialLimit, KeepAliveConfig: alive}
	switch way {
	case ConnectPod:
		k.client = &http.Client{CheckRedirect: stay, Transport: &http.Transport{DialContext: dial.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: answerBytes, ResponseHeaderTimeout: dialLimit}}
		return k, nil
	case ConnectAPI:
	default:
		return nil, fmt.Errorf("%q is no way to a pod: pod, or api", way)
	}
	cfg := rest.CopyConfig(c.rest)
	cfg.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrade
	cfg.Dial = dial.DialContext
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	k.client, k.base = client, base
	k.client.Timeout, k.client.CheckRedirect = 0, stay
	return k, nil
}

// stay follows no redirect. A pod's answer comes through the API server as it is, so a pod could otherwise send the server
// with its credentials to any address.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// address is where the agent of a pod is reached.
func (k *connector) address(c *claimed) string {
	if k.base == nil {
		return "http://" + net.JoinHostPort(c.ip, strconv.Itoa(agent.Port)) + agent.Path
	}
	return k.base.JoinPath("api/v1/namespaces", k.namespace, "pods", c.name+":"+strconv.Itoa(agent.Port), "proxy", agent.Path).String()
}

// errInUse means that another server has the pod, or that this one had it.
var errInUse = errors.New("the pod is in use")

// errSilent means that the pod cannot be reached. Its node may be gone, which the cluster notices later.
var errSilent = errors.New("the pod does not answer")

// agentLimit bounds the time in which the agent of a running pod has to listen.
const agentLimit = 20 * time.Second

// connect returns the stream to a pod's relay. The end of ctx does not end the stream.
func (k *connector) connect(ctx context.Context, c *claimed) (io.ReadWriteCloser, seccomp.Arch, error) {
	end := time.Now().Add(agentLimit)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		stream, arch, again, err := k.try(ctx, c)
		if err == nil || !again || time.Now().After(end) || ctx.Err() != nil {
			return stream, arch, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// try makes one attempt. again says that the agent may not listen yet.
func (k *connector) try(ctx context.Context, c *claimed) (stream io.ReadWriteCloser, arch seccomp.Arch, again bool, err error) {
	token, err := agent.NewStatement(c.uid, agent.PurposeRelay, time.Now()).Sign(k.key)
	if err != nil {
		return nil, "", false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.address(c), nil)
	if err != nil {
		return nil, "", false, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", agent.Upgrade)
	req.Header.Set(agent.HeaderProof, "Bearer "+token)
	res, err := k.client.Do(req)
	if err != nil {
		again = errors.Is(err, syscall.ECONNREFUSED)
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" && !again {
			err = errors.Join(errSilent, err)
		}
		return nil, "", again, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		s, ok := res.Body.(io.ReadWriteCloser)
		arch = seccomp.Arch(res.Header.Get(agent.HeaderArch))
		if ok && (arch == seccomp.AMD64 || arch == seccomp.ARM64) {
			return s, arch, false, nil
		}
		_ = res.Body.Close()
		return nil, "", false, fmt.Errorf("the agent answers for the architecture %q", arch)
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
	_ = res.Body.Close()
	err = fmt.Errorf("the agent of pod %s answers %s: %q", c.name, res.Status, text)
	switch res.StatusCode {
	case http.StatusConflict:
		return nil, "", false, errors.Join(errInUse, err)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusInternalServerError: // of the API server
		return nil, "", k.base != nil, errors.Join(errSilent, err)
	}
	return nil, "", false, err
}
