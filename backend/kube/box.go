package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// box is a sandbox in a pod.
type box struct {
	*relay.Sandbox
	b       *Backend
	spec    backend.Spec
	pod     *claimed
	loss    *loss
	stop    func() // following the pod
	sandbox *relay.Sandbox
	limits  limits
	closed  closed
	reached []netip.AddrPort     // by the pod, although it may not
	iso     sandboxmcp.Isolation // as it was observed when it was opened

	nodeKernel string

	mu      sync.Mutex
	userMap string
	last    backend.Usage
	once    sync.Once
	err     error
}

// build claims a pod and makes a sandbox of it.
func (b *Backend) build(ctx context.Context, spec backend.Spec) (*box, error) {
	begun := time.Now()
	pod, err := b.provider.claim(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err = refused(pod); err != nil { // the relay would end before it can say why, or listen on the node
		return nil, errors.Join(err, b.provider.release(context.WithoutCancel(ctx), pod))
	}
	got := time.Now()
	x := &box{b: b, spec: spec, pod: pod}
	if err = x.enter(ctx); err != nil {
		return nil, errors.Join(err, b.provider.release(context.WithoutCancel(ctx), pod))
	}
	entered := time.Now()
	if err = x.look(ctx); err != nil {
		return nil, errors.Join(err, x.Close(context.WithoutCancel(ctx)))
	}
	b.cfg.Logger.Debug("sandbox opened", "pod", pod.name, "claimed", got.Sub(begun), "entered", entered.Sub(got), "observed", time.Since(entered))
	return x, nil
}

// enter connects to the pod and makes the sandbox. If it fails, nothing follows the pod.
func (x *box) enter(ctx context.Context) error {
	b := x.b
	stream, arch, err := b.connector.connect(ctx, x.pod)
	if err != nil {
		return failure("connect to a pod", err)
	}
	line := &once{ReadWriteCloser: stream}
	x.loss = newLoss(x.pod.uid, func(why string) {
		b.cfg.Logger.Debug("a sandbox is lost or ends", "pod", x.pod.name, "reason", why)
		go func() { _ = line.Close() }()
	})
	x.stop = b.watch.follow(b.cluster.namespace, x.pod.name, x.loss.see)
	x.sandbox, err = relay.Open(ctx, relay.Config{
		Stream: line, Arch: arch, Program: agent.Program, Spec: x.spec, UID: programUser, UserOfOthers: x.userOfOthers(), Routed: true, Answers: x.pod.answers(),
		Isolation: func(ctx context.Context, seen relay.Seen) (sandboxmcp.Isolation, error) {
			return x.report(ctx, seen), nil
		},
		Usage:  x.usage,
		Remove: x.remove,
	})
	if err != nil {
		x.stop()
		return failure("enter a pod", err)
	}
	x.Sandbox = x.sandbox
	return nil
}

// once is a stream that is closed once.
type once struct {
	io.ReadWriteCloser
	once sync.Once
	err  error
}

func (o *once) Close() error {
	o.once.Do(func() { o.err = o.ReadWriteCloser.Close() })
	return o.err
}

// look observes the sandbox before any program runs.
func (x *box) look(ctx context.Context) error {
	x.limits = readLimits(ctx, x.sandbox.Texts)
	kernel := make(chan string, 1)
	go func() { kernel <- x.b.kernelOf(ctx, x.pod) }()
	var open closed
	var reached []netip.AddrPort
	tried, seen := together(func() (err error) {
		open, reached, err = x.b.canary.check(ctx, x.sandbox, x.pod.node, func() []netip.AddrPort { return x.b.near(x.pod) })
		return err
	}, func() error {
		_, err := x.sandbox.Isolation(ctx) // it keeps what it sees; what it reports of the network is not known yet
		return err
	})
	x.nodeKernel, x.closed, x.reached = <-kernel, open, reached
	if tried != nil {
		return failure("try the network of a pod", tried)
	}
	if seen != nil {
		return failure("look at a pod", seen)
	}
	if x.closed == closedNot {
		x.b.cfg.Logger.Warn("a pod reaches what no pod may reach", "pod", x.pod.name, "node", x.pod.node, "addresses", x.reached)
	}
	var err error
	if x.iso, err = x.sandbox.Isolation(ctx); err != nil {
		return failure("look at a pod", err)
	}
	return nil
}

// together calls two functions at the same time. An attempt of the canary waits for answers that do not come, and the walls can be
// observed meanwhile.
func together(one, other func() error) (error, error) {
	done := make(chan error, 1)
	go func() { done <- one() }()
	err := other()
	return <-done, err
}

// kernelOf returns the kernel release of a pod's node; empty: the server may not read nodes, or needs not. It asks for each pod,
// because a node may have started with another kernel since the last one, which the pods of the node then share.
func (b *Backend) kernelOf(ctx context.Context, pod *claimed) string {
	if !pod.runtime {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	n, err := b.cluster.api.CoreV1().Nodes().Get(ctx, pod.node, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return n.Status.NodeInfo.KernelVersion
}

// usageLimit bounds the time in which the cluster says how a pod ended.
const usageLimit = 5 * time.Second

// usage returns what the pod has used.
func (x *box) usage(ctx context.Context, seen func() relay.Spent) (backend.Usage, error) {
	select {
	case <-x.sandbox.Gone():
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.last.OOMKills == 0 && outOfMemory(x.loss.final(usageLimit)) {
			x.last.OOMKills, x.last.PeakMemory = 1, max(x.last.PeakMemory, x.spec.MemoryBytes)
		}
		return x.last, nil
	default:
	}
	u, err := readUsage(ctx, x.limits.version, x.sandbox.Texts)
	if err != nil {
		select {
		case <-x.sandbox.Gone():
			return x.usage(ctx, seen)
		default:
			return u, fmt.Errorf("usage of a pod: %w", err)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	u.PeakTasks = max(u.PeakTasks, x.last.PeakTasks)
	x.last = u
	return u, nil
}

// remove removes the pod.
func (x *box) remove() error {
	x.stop()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit) //nolint:forbidigo // it is called when the caller's context may have ended
	defer cancel()
	return x.b.provider.release(ctx, x.pod)
}

// Close ends the pod.
func (x *box) Close(ctx context.Context) error {
	x.once.Do(func() {
		x.err = x.sandbox.Close(ctx)
		x.b.mu.Lock()
		delete(x.b.live, x)
		x.b.mu.Unlock()
	})
	return x.err
}
