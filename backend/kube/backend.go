package kube

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Backend runs code in pods. Its methods may be called concurrently.
type Backend struct {
	cfg   Config
	id    string // of this server, in labels
	idle  atomic.Bool
	found interpreters

	connecting sync.Mutex // held while the fields below are made
	connected  bool
	cluster    *cluster
	key        ed25519.PrivateKey
	watch      *watch[*corev1.Pod]
	connector  *connector
	canary     *canary
	provider   provider
	life       context.Context //nolint:containedctx // ends with the backend
	end        context.CancelFunc
	background sync.WaitGroup
	waits      map[types.UID]time.Time // since when sweep has seen pods wait; sweep alone uses it

	opens sync.WaitGroup

	mu     sync.Mutex
	trials int
	live   map[*box]struct{}
	closed bool
	seen   *sandboxmcp.Isolation // of the first sandbox
}

var _ backend.Backend = (*Backend)(nil)

// New returns the backend. It does not connect to the cluster before it is used.
func New(cfg Config) *Backend {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backend{cfg: cfg, id: strings.ToLower(rand.Text()[:16]), live: map[*box]struct{}{}}
	b.idle.Store(cfg.Idle)
	return b
}

// Name returns "kube".
func (*Backend) Name() string { return Name }

// connect connects to the cluster, unless that was done.
func (b *Backend) connect(ctx context.Context) error {
	b.connecting.Lock()
	defer b.connecting.Unlock()
	if b.connected {
		return nil
	}
	if b.isClosed() {
		return closedError()
	}
	if b.cluster == nil { // tests set it
		c, err := b.cfg.open()
		if err != nil {
			return unavailable("connect to the cluster", err).WithHint("set kube_config to a kubeconfig, or run the server in a pod with a service account")
		}
		b.cluster = c
	}
	var err error
	if b.key, err = b.cfg.key(); err != nil {
		return unavailable("read kube_key_file", err).WithHint("make one with `openssl genpkey -algorithm ed25519`")
	}
	canaries, err := b.cfg.canaries()
	if err != nil {
		return unavailable("read kube_canary", err).WithHint("name IPv4 addresses with ports, such as 10.0.0.1:443")
	}
	if b.connector, err = newConnector(b.cluster, b.cfg.connects(b.cluster.inside), b.key); err != nil {
		return unavailable("connect to the cluster", err).WithHint("see kube_connect and kube_config")
	}
	b.canary = newCanary(b.cluster.rest.Host, canaries)
	if b.cluster.inside {
		text, _ := os.ReadFile("/etc/resolv.conf") // without one there is nothing to add
		b.canary.addResolvers(string(text))
	}
	short, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if b.watch, err = newWatch[*corev1.Pod](short, podInformer(b.cluster.api, b.cluster.namespace)); err != nil {
		return failure("list pods", err)
	}
	if b.provider, err = b.newProvider(short); err != nil {
		b.watch.close()
		return err
	}
	b.life, b.end = context.WithCancel(context.WithoutCancel(ctx))
	b.connected = true
	b.background.Go(b.sweep)
	return nil
}

func unavailable(what string, err error) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "kube: %s: %s", what, err).WithCause(err)
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func closedError() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the %s backend is closed", Name)
}

// Open claims a pod and makes a sandbox of it.
func (b *Backend) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.idle.Store(false)
	switch {
	case spec.Terminal:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "pods have no terminals").WithHint("use the process backend")
	case len(spec.Trees) > 0:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "directories of this machine cannot be shown in a pod").WithHint("put the packages into kube_image, or use another backend")
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, closedError()
	}
	b.opens.Add(1)
	b.mu.Unlock()
	defer b.opens.Done()
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	x, err := b.open(ctx, spec)
	if err != nil && ctx.Err() != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// tries bounds how many pods are claimed for a sandbox, if others took them or they do not answer: a pool may have more
// than one pod on a node that is gone.
const tries = 5

func (b *Backend) open(ctx context.Context, spec backend.Spec) (*box, error) {
	var x *box
	var err error
	for range tries {
		if x, err = b.build(ctx, spec); !errors.Is(err, errInUse) && !errors.Is(err, errSilent) && !errors.Is(err, errUnfit) || ctx.Err() != nil {
			break
		}
		b.cfg.Logger.Warn("a pod that was claimed cannot be used; another is claimed", "error", err)
	}
	if err != nil {
		return nil, err
	}
	minimum := spec.MinTier
	if minimum == "" {
		minimum = b.cfg.MinTier
	}
	err = b.judge(x, minimum)
	if err == nil {
		err = ctx.Err()
	}
	b.mu.Lock()
	if err == nil && b.closed {
		err = closedError()
	}
	if err == nil {
		b.live[x] = struct{}{}
		if b.seen == nil {
			b.seen = &x.iso
		}
	}
	b.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, x.Close(context.WithoutCancel(ctx)))
	}
	return x, nil
}

// judge returns why a pod may hold no program, as it was observed.
func (b *Backend) judge(x *box, minimum sandboxmcp.Tier) error {
	if lacking := lacks(x.iso, minimum); lacking != "" {
		why, hint := "", b.remedy(lacking)
		switch {
		case lacking != sandboxmcp.WallNoNetwork:
		case x.pod.opened:
			why, hint = ": "+strings.TrimPrefix(weakPolicy, "network: "), "set networkPolicyManagement: Unmanaged in the template, and close its pods by the NetworkPolicy of deploy/kubernetes"
		case x.closed == closedNot:
			why = ": it reaches " + x.openings()
		case x.closed == closedUnknown:
			why, hint = ": the server reaches no address that the pod could try", "set kube_canary to an IPv4 address with a port that the server reaches and no pod may reach, such as that of the API server"
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the wall %q does not stand around the pod%s", lacking, why).WithHint(hint)
	}
	if !x.iso.Tier.AtLeast(minimum) {
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the cluster reaches isolation %s, and %s is demanded", x.iso.Tier, minimum).
			WithHint("set kube_runtime_class to a runtime with a kernel of its own, such as gvisor, or lower isolation_min")
	}
	return nil
}

// refused returns why no tier accepts a pod as the cluster describes it, before anything is done in it: its programs could read what lets them act for a service account, or reach those of other
// pods of the node by the node's own namespaces or by a volume that they share.
func refused(pod *claimed) error {
	if len(pod.shared) > 0 {
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the pod shares namespaces: %s", strings.Join(pod.shared, ", ")).
			WithHint("leave these fields out of the pool's template, and see which webhook of the cluster sets them")
	}
	if len(pod.misplaced) > 0 {
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the pod has no emptyDir in memory of its own at %s", strings.Join(pod.misplaced, ", ")).
			WithHint("make the pool's template as deploy/kubernetes does, and see which webhook of the cluster changes volumes")
	}
	if len(pod.tokens) == 0 {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "programs could read a Secret, or a token or a key of a service account, at %s in the pod", strings.Join(pod.tokens, ", ")).
		WithHint("set automountServiceAccountToken: false in the pool's template and mount no Secret, and see which webhook of the cluster adds it")
}

// remedy says what helps where a wall is missing.
func (*Backend) remedy(wall string) string {
	if wall == sandboxmcp.WallNoNetwork {
		return "apply the NetworkPolicy of deploy/kubernetes, and see whether the cluster's network plugin enforces policies, also to the pod's own node and between pods of a node (br_netfilter), whether another policy lets pods reach one another, and whether pods have other containers"
	}
	return "see docs/kubernetes.md for what a pod needs"
}

// Capabilities opens a trial sandbox.
func (b *Backend) Capabilities(ctx context.Context) backend.Capabilities {
	if b.idle.Load() {
		return backend.Capabilities{Reason: "no request has used it yet"}
	}
	b.mu.Lock()
	seen := b.seen
	b.trials++
	id := "trial-" + strconv.Itoa(b.trials)
	b.mu.Unlock()
	if seen == nil {
		sb, err := b.Open(ctx, trial(id))
		if err != nil {
			return backend.Capabilities{Reason: sandboxmcp.AsError(err).Message}
		}
		_ = sb.Close(context.WithoutCancel(ctx))
		b.mu.Lock()
		seen = b.seen
		b.mu.Unlock()
	}
	return backend.Capabilities{Available: true, Isolation: *seen, Dial: true}
}

// trial is the spec of a sandbox that shows what the cluster can do.
func trial(id string) backend.Spec {
	return backend.Spec{ID: id, MinTier: sandboxmcp.TierL0, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 32, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20}
}

// Close ends every sandbox.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	live := make([]*box, 0, len(b.live))
	for x := range b.live {
		live = append(live, x)
	}
	b.mu.Unlock()
	errs := []error{backend.CloseAll(ctx, live)}
	b.opens.Wait()
	b.connecting.Lock()
	defer b.connecting.Unlock()
	if b.connected {
		b.connected = false
		b.end()
		b.background.Wait()
		b.provider.close(ctx)
		b.vacate(ctx)
		b.watch.close()
		b.connector.client.CloseIdleConnections()
		if b.cluster.dialer != nil {
			b.cluster.dialer.CloseAll()
		}
	}
	return errors.Join(errs...)
}

// vacateLimit bounds how long Close waits for the cluster to remove pods. Their processes have ended.
const vacateLimit = 15 * time.Second

// vacate waits until the cluster has removed the pods of this server.
func (b *Backend) vacate(ctx context.Context) {
	end := time.NewTimer(vacateLimit)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	mine := labels.SelectorFromSet(labels.Set{labelServer: b.id})
	for {
		left, err := corelisters.NewPodLister(b.watch.list.GetIndexer()).List(mine)
		if err != nil || len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

const sweepEvery = time.Minute
