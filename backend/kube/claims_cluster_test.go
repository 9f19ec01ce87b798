package kube_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

var agents = schema.GroupVersion{Group: "extensions.agents.x-k8s.io", Version: "v1beta1"}

// newPool makes a warm pool whose pods have the shape of a spec, and returns a backend that takes its pods.
func newPool(t testing.TB, name string, replicas int, s backend.Spec, change ...func(*kube.Config)) (b *kube.Backend, fill func()) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil || len(public) == 0 {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err = os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key.Seed())), 0o600); err != nil {
		t.Fatal(err)
	}
	var cfg kube.Config
	b = newKube(t, func(c *kube.Config) {
		c.Pool, c.KeyFile = name, file
		for _, f := range change {
			f(c)
		}
		cfg = *c
		c.Image = "" // no pod may be made beside the pool
	})
	_, objects, err := kube.Clients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	space := cfg.Namespace
	_, err = objects.Resource(agents.WithResource("sandboxwarmpools")).Namespace(space).List(t.Context(), metav1.ListOptions{})
	testkit.Need(t, "agent-sandbox", err == nil, "the cluster has no agent-sandbox")
	labels, pod := kube.TemplateOf(cfg, s, key)
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	if err != nil {
		t.Fatal(err)
	}
	make := func(kind, resource string, spec map[string]any) {
		api := objects.Resource(agents.WithResource(resource)).Namespace(space)
		_, err := api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": agents.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	}
	text := map[string]any{}
	for k, v := range labels {
		text[k] = v
	}
	make("SandboxTemplate", "sandboxtemplates", map[string]any{"networkPolicyManagement": "Unmanaged", "podTemplate": map[string]any{"metadata": map[string]any{"labels": text}, "spec": spec}})
	make("SandboxWarmPool", "sandboxwarmpools", map[string]any{"replicas": int64(replicas), "sandboxTemplateRef": map[string]any{"name": name}})
	full := func() bool {
		t.Helper()
		u, err := objects.Resource(agents.WithResource("sandboxwarmpools")).Namespace(space).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		return int(n) >= replicas
	}
	fill = func() {
		t.Helper()
		if !testkit.Within(t, 2*time.Minute, full) {
			t.Fatalf("the pool has not got %d pods", replicas)
		}
	}
	fill()
	return b, fill
}

// TestWarmClaims: a claim gets a pod of the pool, in which programs run behind the walls, whether it is made when
// the sandbox is needed or before.
func TestWarmClaims(t *testing.T) {
	needClosed(t)
	const pods, claims = 3, 12
	for _, spare := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d ahead", spare), func(t *testing.T) {
			s := spec("warm")
			b, fill := newPool(t, fmt.Sprintf("e2e-warm-%d", spare), pods, s, func(c *kube.Config) { c.SparePods = spare })
			_ = open(t, b, s).Close(t.Context()) // connects, and tries the network
			var first []time.Duration
			for range claims {
				fill()
				testkit.Until(t, "the spare pods", func() bool { return kube.SparePodsOf(b) == spare })
				begun := time.Now()
				sb := open(t, b, s)
				opened := time.Since(begun)
				if got := output(t, sb, "echo answer"); got != "answer\n" {
					t.Errorf("got %q", got)
				}
				first = append(first, time.Since(begun))
				t.Logf("opened after %s, answered after %s", opened, first[len(first)-1])
			}
			slices.Sort(first)
			t.Logf("sandbox to first answer: p50 %s, worst %s", first[len(first)/2], first[len(first)-1])
		})
	}
}

// TestClaimBursts: sandboxes that are opened at once get a pod each. After the first burst the next ones take pods that were
// claimed ahead.
func TestClaimBursts(t *testing.T) {
	needClosed(t)
	const pods, burst, bursts = 8, 4, 6
	for _, most := range []int{1, burst} {
		t.Run(fmt.Sprintf("%d ahead", most), func(t *testing.T) {
			s := spec("burst")
			b, fill := newPool(t, fmt.Sprintf("e2e-burst-%d", most), pods, s, func(c *kube.Config) { c.SparePods, c.MostSpares = 1, most })
			var took []time.Duration
			for i := range bursts {
				fill()
				if i > 0 {
					testkit.Until(t, "the spare pods", func() bool { return kube.SparePodsOf(b) >= most })
				}
				begun := time.Now()
				var all sync.WaitGroup
				for n := range burst {
					all.Go(func() {
						one := s
						one.ID = fmt.Sprintf("burst-%d-%d", i, n)
						sb, err := b.Open(t.Context(), one)
						if err != nil {
							t.Errorf("%s: %v", one.ID, err)
							return
						}
						if got := output(t, sb, "ls; echo "+one.ID+" > mark; cat mark"); got != one.ID+"\n" {
							t.Errorf("%s: got %q, want its own id", one.ID, got)
						}
						_ = sb.Close(context.WithoutCancel(t.Context()))
					})
				}
				all.Wait()
				took = append(took, time.Since(begun))
			}
			t.Logf("%d sandboxes at once, to the last answer: first %s, later %s", burst, took[0], took[1:])
		})
	}
}

// TestClaimStorm: claims that are made at once get a pod each, also when the pool has fewer.
func TestClaimStorm(t *testing.T) {
	needClosed(t)
	const pods = 10
	storm := 190
	if testing.Short() {
		storm = 30
	}
	s := spec("storm")
	s.MemoryBytes, s.WorkBytes, s.TempBytes = 64<<20, 8<<20, 8<<20
	b, _ := newPool(t, "e2e-storm", pods, s)
	var mu sync.Mutex
	seen := map[string]string{} // sandbox by the pod's UID
	var all sync.WaitGroup
	for i := range storm {
		all.Go(func() {
			one := s
			one.ID = fmt.Sprintf("storm-%d", i)
			sb, err := b.Open(t.Context(), one)
			if err != nil {
				t.Errorf("%s: %v", one.ID, err)
				return
			}
			got := output(t, sb, "ls; echo "+one.ID+" > mark; cat mark")
			name, uid, _ := kube.PodNameOf(sb)
			mu.Lock()
			defer mu.Unlock()
			if other, ok := seen[uid]; ok || got != one.ID+"\n" {
				t.Errorf("%s: got %q in pod %s, which %q has", one.ID, got, name, other)
			}
			seen[uid] = one.ID
		})
	}
	all.Wait()
	if len(seen) != storm {
		t.Errorf("got %d pods, want %d", len(seen), storm)
	}
	t.Log(strings.Join([]string{fmt.Sprint(len(seen)), "pods"}, " "))
}
