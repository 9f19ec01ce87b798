package kube

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
)

// agentAt runs an agent at an address of loopback that stands for a pod's.
func agentAt(t *testing.T, ip, uid string, key ed25519.PrivateKey) <-chan *net.TCPConn {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(ip, strconv.Itoa(agent.Port)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan *net.TCPConn, 1), make(chan struct{})
	go func() {
		defer close(done)
		a := &agent.Agent{Keys: []ed25519.PublicKey{publicKey(key)}, Pod: uid}
		conn, _ := a.Serve(ctx, l)
		got <- conn
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return got
}

func newTestConnector(t *testing.T) *connector {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	k, err := newConnector(&cluster{rest: &rest.Config{Host: "https://127.0.0.1:1"}, namespace: space}, ConnectPod, key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestConnectToAPod: the stream carries bytes both ways, and the end of the context does not end it.
func TestConnectToAPod(t *testing.T) {
	k := newTestConnector(t)
	got := agentAt(t, "127.80.0.1", "uid", k.key)
	ctx, cancel := context.WithCancel(t.Context())
	stream, arch, err := k.connect(ctx, &claimed{name: "p", uid: "uid", ip: "127.80.0.1"})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	conn := <-got
	defer func() { _, _ = conn.Close(), stream.Close() }()
	for _, way := range []struct {
		from io.Writer
		to   io.Reader
	}{{conn, stream}, {stream, conn}} {
		if _, err = io.WriteString(way.from, "word"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		if _, err = io.ReadFull(way.to, b); err != nil || string(b) != "word" {
			t.Errorf("got %q %v", b, err)
		}
	}
	if arch == "" {
		t.Error("got no architecture")
	}
	_ = stream.Close()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after Close: got %d %v, want the end", n, err)
	}
}

// TestAPodOfAnotherUIDIsNotEntered: the pod that has the name now is not the one that was claimed.
func TestAPodOfAnotherUIDIsNotEntered(t *testing.T) {
	k := newTestConnector(t)
	agentAt(t, "127.80.0.2", "another", k.key)
	if _, _, err := k.connect(t.Context(), &claimed{name: "p", uid: "uid", ip: "127.80.0.2"}); err == nil {
		t.Error("got a stream")
	}
}

// TestAPodRedirectsNoServer: a pod cannot send the server, or its credentials for the cluster, to another address.
func TestAPodRedirectsNoServer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s came with the authorization %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
		pod := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/elsewhere", status)
		}))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.80.0.4", strconv.Itoa(agent.Port)))
		if err != nil {
			t.Fatal(err)
		}
		_ = pod.Listener.Close()
		pod.Listener = l
		pod.Start()
		for _, way := range []string{ConnectPod, ConnectAPI} {
			k := newTestConnector(t)
			if way == ConnectAPI {
				if k, err = newConnector(&cluster{rest: &rest.Config{Host: pod.URL, BearerToken: "token"}, namespace: space}, way, k.key); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err = k.connect(t.Context(), &claimed{name: "p", uid: "uid", ip: "127.80.0.4"}); err == nil || !strings.Contains(err.Error(), strconv.Itoa(status)) {
				t.Errorf("%s %d: got %v", way, status, err)
			}
		}
		pod.Close()
	}
}

// TestAPodInUseIsTold: of two servers that have claimed a pod one gets it, and the other can claim another.
func TestAPodInUseIsTold(t *testing.T) {
	k := newTestConnector(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.80.0.3", strconv.Itoa(agent.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
		}
	}()
	if _, _, err = k.connect(t.Context(), &claimed{name: "p", uid: "uid", ip: "127.80.0.3"}); !errors.Is(err, errInUse) {
		t.Errorf("got %v, want %v", err, errInUse)
	}
}

// TestWaysToAPod: the API server's path names the pod and the port.
func TestWaysToAPod(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{rest: &rest.Config{Host: "https://192.0.2.1:6443"}, namespace: space}
	k, err := newConnector(c, ConnectAPI, key)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := k.address(&claimed{name: "p", ip: "10.0.0.9"}), "https://192.0.2.1:6443/api/v1/namespaces/sandboxes/pods/p:8931/proxy/v1/relay"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err = newConnector(c, "tunnel", key); err == nil {
		t.Error("another way: got no error")
	}
	for _, w := range []struct {
		set    string
		inside bool
		want   string
	}{{"", true, ConnectPod}, {"", false, ConnectAPI}, {ConnectPod, false, ConnectPod}} {
		if got := (Config{Connect: w.set}).connects(w.inside); got != w.want {
			t.Errorf("%+v: got %s", w, got)
		}
	}
}
