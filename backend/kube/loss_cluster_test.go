package kube_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestNodeLoss: if a node ends, the sandboxes on it are lost and never come back empty, and those of other
// nodes live on. KUBE_NODE_KILL and KUBE_NODE_START are commands that get a node's name.
func TestNodeLoss(t *testing.T) {
	needClosed(t)
	kill, start := os.Getenv("KUBE_NODE_KILL"), os.Getenv("KUBE_NODE_START")
	testkit.Need(t, "kube-node-kill", kill != "" && start != "", "KUBE_NODE_KILL and KUBE_NODE_START name no commands")
	s := spec("loss")
	b, fill := newPool(t, "e2e-loss", 6, s)
	byNode := map[string]backend.Sandbox{}
	for range 12 {
		sb := open(t, b, s)
		_, _, node := kube.PodNameOf(sb)
		if byNode[node] == nil {
			byNode[node] = sb
		}
		if len(byNode) == 2 {
			break
		}
		fill()
	}
	if len(byNode) < 2 {
		t.Fatalf("all pods are on one node: %v", byNode)
	}
	var nodes []string
	for n := range byNode {
		nodes = append(nodes, n)
	}
	victim, other := nodes[0], nodes[1]
	lost := byNode[victim]
	output(t, lost, "echo kept > file")
	output(t, byNode[other], "echo kept > file")
	r, err := lost.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "1000"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	command := func(c string) {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/sh", "-c", c+" "+victim).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
	}
	t.Cleanup(func() { command(start) })
	command(kill)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	e, err := r.Wait(ctx)
	if err != nil || !e.Lost {
		t.Fatalf("got %+v %v, want that the process is lost", e, err)
	}
	t.Logf("lost after %s", time.Since(begun).Round(time.Millisecond))
	if _, err = lost.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a start in the lost sandbox: got %v, want %v", err, fs.ErrClosed)
	}
	if got := output(t, byNode[other], "cat file"); got != "kept\n" {
		t.Errorf("the other node's sandbox: got %q", got)
	}
	if got := output(t, open(t, b, s), "ls; echo new"); got != "new\n" {
		t.Errorf("a new sandbox: got %q", got)
	}
	if _, err = lost.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("later: got %v, want %v", err, fs.ErrClosed)
	}
}

// TestLossOfADeletedPod: if an operator deletes a pod, its sandbox is lost.
func TestLossOfADeletedPod(t *testing.T) {
	needClosed(t)
	var cfg kube.Config
	b := newKube(t, func(c *kube.Config) { cfg = *c })
	sb := open(t, b, spec("deleted"))
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "1000"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	api, _, err := kube.Clients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := kube.PodNameOf(sb)
	if err = api.CoreV1().Pods(cfg.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || !e.Lost {
		t.Errorf("got %+v %v, want that the process is lost", e, err)
	}
	if _, err = sb.Files().Open(t.Context(), "x"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v, want %v", err, fs.ErrClosed)
	}
}

// TestMemoryThatRunsOutIsTold: a program that exceeds the memory limit is ended, and the usage says so.
func TestMemoryThatRunsOutIsTold(t *testing.T) {
	needClosed(t)
	s := spec("memory")
	s.MemoryBytes = 64 << 20
	sb := open(t, newKube(t), s)
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/usr/bin/python3", "-c", "b = bytearray(500 << 20)"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Signal != 9 {
		t.Errorf("got %+v %v, want signal 9", e, err)
	}
	testkit.Until(t, "a kill in the usage", func() bool {
		u, err := sb.Usage(t.Context())
		return err == nil && u.OOMKills > 0
	})
}

// waitForRoom waits until the namespace has no pods.
func waitForRoom(t testing.TB) {
	t.Helper()
	var cfg kube.Config
	newKube(t, func(c *kube.Config) { cfg = *c })
	testkit.UntilEqual(t, "pods of the namespace", 0, func() int { return countPods(t, cfg) })
}

func countPods(t testing.TB, cfg kube.Config) int {
	t.Helper()
	api, _, err := kube.Clients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := api.CoreV1().Pods(cfg.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// TestCancelledOpensLeaveNoPods: a context that ends at any time during Open leaves no pod behind.
func TestCancelledOpensLeaveNoPods(t *testing.T) {
	needClosed(t)
	waitForRoom(t)
	var cfg kube.Config
	b := newKube(t, func(c *kube.Config) { cfg = *c })
	_ = open(t, b, spec("first")).Close(t.Context())
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*3*time.Millisecond)
		sb, err := b.Open(ctx, spec("cancelled"))
		cancel()
		if err == nil {
			_ = sb.Close(t.Context())
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d ms: got %v, want %v", i*i*3, err, context.DeadlineExceeded)
		}
	}
	testkit.UntilEqual(t, "pods that are left", 0, func() int { return countPods(t, cfg) })
}

// TestAReplacedPodIsLost: agent-sandbox makes another pod of the same name when one is deleted, and the claim is ready
// again. The sandbox is lost all the same.
func TestAReplacedPodIsLost(t *testing.T) {
	needClosed(t)
	s := spec("replaced")
	b, _ := newPool(t, "e2e-replaced", 1, s)
	sb := open(t, b, s)
	output(t, sb, "echo kept > file")
	name, uid, _ := kube.PodNameOf(sb)
	var cfg kube.Config
	newKube(t, func(c *kube.Config) { cfg = *c })
	api, _, err := kube.Clients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods := api.CoreV1().Pods(cfg.Namespace)
	if err = pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "another pod of the name", func() bool {
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && string(p.UID) != uid && p.Status.PodIP != ""
	})
	if _, err = sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v, want %v", err, fs.ErrClosed)
	}
}

// TestExpiryWithoutServers: the cluster ends a claim, and a pod of its own, of a server that does nothing more. The
// sandboxes are lost.
func TestExpiryWithoutServers(t *testing.T) {
	needClosed(t)
	const age = 15 * time.Second
	var cfg kube.Config
	remember := func(c *kube.Config) {
		kube.SetAges(c, age, age)
		cfg = *c
	}
	s := spec("expires")
	pooled, _ := newPool(t, "e2e-expires", 1, s, remember)
	single := newKube(t, remember)
	lost := map[string]backend.Sandbox{"claim": open(t, pooled, s), "pod": open(t, single, s)}
	api, objects, err := kube.Clients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	claims := objects.Resource(agents.WithResource("sandboxclaims")).Namespace(cfg.Namespace)
	if list, err := claims.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Fatalf("got %d claims and %v, want 1", len(list.Items), err)
	}
	kube.Hang(pooled)
	kube.Hang(single)
	for what, sb := range lost {
		name, uid, _ := kube.PodNameOf(sb)
		testkit.Until(t, "the end of the "+what, func() bool {
			p, err := api.CoreV1().Pods(cfg.Namespace).Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err) || err == nil && (string(p.UID) != uid || p.Status.Reason == "DeadlineExceeded")
		})
		testkit.Until(t, "the loss of the "+what, func() bool {
			_, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}})
			return errors.Is(err, fs.ErrClosed)
		})
	}
	testkit.UntilEqual(t, "claims", 0, func() int {
		list, err := claims.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	})
}

// TestSilentPartition: if a node answers no more although its pods live on, the sandboxes on it are lost, and they do
// not come back with the node. KUBE_NODE_CUT and KUBE_NODE_JOIN are commands that get a node's name.
func TestSilentPartition(t *testing.T) {
	needClosed(t)
	cut, join := os.Getenv("KUBE_NODE_CUT"), os.Getenv("KUBE_NODE_JOIN")
	testkit.Need(t, "kube-node-kill", cut != "" && join != "", "KUBE_NODE_CUT and KUBE_NODE_JOIN name no commands")
	sb := open(t, newKube(t), spec("cut"))
	_, _, victim := kube.PodNameOf(sb)
	command := func(c string) {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/sh", "-c", c+" "+victim).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
	}
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "1000"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	command(cut)
	t.Cleanup(func() { command(join) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || !e.Lost {
		t.Fatalf("got %+v %v, want that the process is lost", e, err)
	}
	command(join)
	if _, err = sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: []string{}}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after the node is back: got %v, want %v", err, fs.ErrClosed)
	}
}
