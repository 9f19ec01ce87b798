package kube

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/sandboxmcp/sandboxmcp"
)

// Name is the backend's name in settings and results.
const Name = "kube"

// Ways to a pod.
const (
	ConnectPod = "pod" // to its address
	ConnectAPI = "api" // through the API server
)

// Config configures the backend.
type Config struct {
	Namespace    string   // of the pods; empty: that of the context, or of the server's own pod
	Kubeconfig   string   // path; empty: the server's service account, or else KUBECONFIG and ~/.kube/config
	Context      string   // of the kubeconfig; empty: its current one
	Image        string   // of pods that are made one by one
	Pool         string   // name of a SandboxWarmPool of agent-sandbox; empty: pods are made one by one
	SparePods    int      // how many pods of the pool are claimed before a sandbox needs them; 0: none
	MostSpares   int      // the most of them, after several sandboxes were opened at once
	RuntimeClass string   // of pods that are made one by one; empty: the cluster's default
	OwnUsers     bool     // pods have a user namespace (hostUsers: false), and the relay is root in it
	Connect      string   // ConnectPod or ConnectAPI; empty: ConnectPod inside of the cluster, and ConnectAPI outside
	KeyFile      string   // Ed25519 private key that pods of a pool know, in PEM (PKCS #8); empty: a new key, which only pods know that this server makes
	Canary       []string // IP addresses with ports that no pod may reach, besides the API server's

	MinTier sandboxmcp.Tier // of sandboxes whose Spec names none
	Idle    bool            // until the first Open, Capabilities starts no pod
	Logger  *slog.Logger    // nil: none

	claimAge, podAge time.Duration // for tests: other ages than claimAge and podAge; 0: these
}

// cluster is a connection to a cluster.
type cluster struct {
	rest      *rest.Config
	api       kubernetes.Interface
	objects   dynamic.Interface
	namespace string
	inside    bool                 // the server is a pod of the cluster
	dialer    *connrotation.Dialer // of api and objects; nil: tests have none
}

// open connects to the cluster that the configuration names. No request is made.
func (c Config) open() (*cluster, error) {
	var out cluster
	var err error
	if c.Kubeconfig == "" && c.Context == "" {
		if out.rest, err = rest.InClusterConfig(); err == nil {
			out.inside, out.namespace = true, ownNamespace()
		} else if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, err
		}
	}
	if out.rest == nil {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = c.Kubeconfig
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
		if out.rest, err = loader.ClientConfig(); err != nil {
			return nil, err
		}
		if out.namespace, _, err = loader.Namespace(); err != nil {
			return nil, err
		}
	}
	if c.Namespace != "" {
		out.namespace = c.Namespace
	}
	out.rest.QPS, out.rest.Burst = 200, 400 // the server's own queue bounds how much it asks
	out.dialer = connrotation.NewDialer((&net.Dialer{Timeout: dialLimit, KeepAliveConfig: alive}).DialContext)
	out.rest.Dial = out.dialer.DialContext
	client, err := rest.HTTPClientFor(out.rest)
	if err != nil {
		return nil, err
	}
	if out.api, err = kubernetes.NewForConfigAndClient(out.rest, client); err != nil {
		return nil, err
	}
	out.objects, err = dynamic.NewForConfigAndClient(out.rest, client)
	return &out, err
}

const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func ownNamespace() string {
	text, err := os.ReadFile(namespaceFile)
	if err != nil || len(text) == 0 {
		return "default"
	}
	return strings.TrimSpace(string(text))
}

// connects returns the way to pods.
func (c Config) connects(inside bool) string {
	switch {
	case c.Connect != "":
		return c.Connect
	case inside:
		return ConnectPod
	default:
		return ConnectAPI
	}
}

// key returns the server's private key.
func (c Config) key() (ed25519.PrivateKey, error) {
	if c.KeyFile == "" {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	text, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.KeyFile, err)
	}
	return key, nil
}

// parseKey reads an Ed25519 private key: PKCS #8 in PEM, or the 32 bytes of its seed in base64.
func parseKey(text []byte) (ed25519.PrivateKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if key, ok := any.(ed25519.PrivateKey); ok && err == nil {
			return key, nil
		}
		return nil, errors.New("the PEM block is no Ed25519 key")
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("this is neither a PEM block nor a seed of 32 bytes in base64")
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// canaries parses the addresses that no pod may reach.
func (c Config) canaries() ([]netip.AddrPort, error) {
	var list []netip.AddrPort
	for _, text := range c.Canary {
		a, err := netip.ParseAddrPort(text)
		if err != nil || !a.Addr().Is4() {
			return nil, fmt.Errorf("%q is no IPv4 address with a port", text)
		}
		list = append(list, a)
	}
	return list, nil
}
