package kube

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// newSpare returns a backend with a spare pod, and the pod that has used the claim before it.
func newSpare(t *testing.T) (b *Backend, objects *dynamicfake.FakeDynamicClient, first *claimed) {
	t.Helper()
	b, objects = newPooled(t, func(u *unstructured.Unstructured) { ready(u, "True", "Ready", "warm-1") }, 1)
	first, err := b.provider.claim(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	awaitSpare(t, b)
	return b, objects, first
}

func awaitSpare(t *testing.T, b *Backend) *claimed {
	t.Helper()
	testkit.Until(t, "a spare pod", func() bool { return len(b.provider.kept()) == 1 })
	return b.provider.kept()[0]
}

// sandboxes returns the sandbox that each claim names.
func sandboxes(t *testing.T, objects *dynamicfake.FakeDynamicClient) map[string]string {
	t.Helper()
	named := map[string]string{}
	for _, u := range claimsOf(t, objects) {
		named[u.GetName()] = u.GetLabels()[labelSandbox]
	}
	return named
}

// TestSparePods: a sandbox gets the pod that was claimed ahead, once, and its claim then names it. Another one is
// claimed in its place.
func TestSparePods(t *testing.T) {
	b, objects, first := newSpare(t)
	spare := b.provider.kept()[0]
	if named := sandboxes(t, objects); len(named) != 2 || named[first.owner] != small.ID || named[spare.owner] != "" {
		t.Errorf("got %v, want the claim of %q and one without a sandbox", named, small.ID)
	}
	next := small
	next.ID = "next"
	got, err := b.provider.claim(t.Context(), next)
	if err != nil || got.owner != spare.owner || got.uid != spare.uid {
		t.Fatalf("got %+v, %v, want the spare pod %+v", got, err, spare)
	}
	testkit.Until(t, "the claim names its sandbox", func() bool { return sandboxes(t, objects)[spare.owner] == next.ID })
	if again := awaitSpare(t, b); again.owner == spare.owner {
		t.Error("a pod that was handed out is spare again")
	}
}

// TestSparePodsFollowBursts: for a minute after a burst there are as many spare pods as it had sandboxes, within bounds.
func TestSparePodsFollowBursts(t *testing.T) {
	begin := time.Now()
	for name, c := range map[string]struct {
		cfg   Config
		after []time.Duration // when sandboxes are opened
		at    time.Duration
		want  int
	}{
		"none":        {Config{SparePods: 1, MostSpares: 4}, nil, 0, 1},
		"one by one":  {Config{SparePods: 1, MostSpares: 4}, []time.Duration{0, 3 * time.Second, 6 * time.Second}, 7 * time.Second, 1},
		"three":       {Config{SparePods: 1, MostSpares: 4}, []time.Duration{0, time.Second, time.Second, 10 * time.Second}, 30 * time.Second, 3},
		"many":        {Config{SparePods: 1, MostSpares: 4}, make([]time.Duration, 3*mostOpened), 0, 4},
		"long ago":    {Config{SparePods: 1, MostSpares: 4}, make([]time.Duration, 3), 2 * time.Minute, 1},
		"more always": {Config{SparePods: 6, MostSpares: 4}, make([]time.Duration, 9), 0, 6},
		"turned off":  {Config{SparePods: 0, MostSpares: 4}, make([]time.Duration, 9), 0, 0},
	} {
		s := sparesOf(c.cfg)
		for _, after := range c.after {
			s.open(begin.Add(after))
		}
		for range 2 * c.want {
			if s.lacks(begin.Add(c.at)) {
				s.came(&spare{pod: &claimed{}})
			}
		}
		if got := len(s.list); got != c.want || len(s.opened) > mostOpened {
			t.Errorf("%s: got %d spare pods, want %d; %d times are kept", name, got, c.want, len(s.opened))
		}
		if gone := len(s.surplus(begin.Add(time.Hour))); gone != c.want-c.cfg.SparePods {
			t.Errorf("%s: got %d released pods an hour later, want %d", name, gone, c.want-c.cfg.SparePods)
		}
	}
}

// TestABurstIsNotDelayedBySparePods: no spare pod is claimed while a sandbox waits for its own claim.
func TestABurstIsNotDelayedBySparePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &claims{plain: plain{&Backend{life: t.Context()}}}
		c.waiting.Add(1)
		var rested atomic.Bool
		go func() {
			c.rest()
			rested.Store(true)
		}()
		time.Sleep(time.Minute) // of the test's own clock
		if rested.Load() {
			t.Error("a spare pod is claimed before the sandbox has got its own")
		}
		c.waiting.Add(-1)
		time.Sleep(2 * sparePause)
		if !rested.Load() {
			t.Error("no spare pod is claimed afterwards")
		}
	})
}

// TestSparePodsThatCannotBeUsed: a pod that was replaced, that is going, that may be on a silent node, or that has
// another shape than the pool has now is not handed out. Its claim is removed, and another pod is claimed.
func TestSparePodsThatCannotBeUsed(t *testing.T) {
	pod := func(change func(p *corev1.Pod)) func(b *Backend) {
		return func(b *Backend) {
			o, _, _ := b.watch.list.GetStore().GetByKey(space + "/warm-1")
			p := o.(*corev1.Pod).DeepCopy()
			change(p)
			if err := b.watch.list.GetStore().Update(p); err != nil {
				t.Error(err)
			}
		}
	}
	for name, change := range map[string]func(b *Backend){
		"replaced": pod(func(p *corev1.Pod) { p.UID = "another" }),
		"going":    pod(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
		"ended":    pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		"silent": pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		}),
		"another shape": func(b *Backend) {
			c := b.provider.(*claims)
			c.spares.list[0].shape.memory++
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, objects, _ := newSpare(t)
			spare := b.provider.kept()[0]
			change(b)
			c := b.provider.(*claims)
			if got := c.handOut(*c.shape, small, b.labels("next")); got != nil {
				t.Errorf("got %+v, want none", got)
			}
			testkit.Until(t, "its claim is removed", func() bool {
				return !slices.Contains(slices.Collect(maps.Keys(sandboxes(t, objects))), spare.owner)
			})
		})
	}
}

// TestSparePodsArePutOffAndReleased: their claims end later while the server lives, and with the backend.
func TestSparePodsArePutOffAndReleased(t *testing.T) {
	b, objects, first := newSpare(t)
	spare := b.provider.kept()[0]
	patch := []byte(`{"spec":{"lifecycle":{"shutdownTime":"2026-01-01T00:00:00Z"}}}`)
	end := func(patch ...byte) time.Time {
		api := objects.Resource(claimKind).Namespace(space)
		if len(patch) > 0 {
			if _, err := api.Patch(t.Context(), spare.owner, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		u, err := api.Get(t.Context(), spare.owner, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := unstructured.NestedString(u.Object, "spec", "lifecycle", "shutdownTime")
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if time.Until(end(patch...)) > 0 {
		t.Fatal("the end was not set")
	}
	b.renew()
	if left := time.Until(end()); left < claimAge-time.Minute {
		t.Errorf("after renew it ends in %s, want about %s", left, claimAge)
	}
	if err := b.provider.release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := claimsOf(t, objects); len(left) != 0 {
		t.Errorf("got %d claims after Close, want none", len(left))
	}
}
