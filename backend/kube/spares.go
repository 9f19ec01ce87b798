package kube

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// spares are pods of a pool that are claimed before a sandbox needs them: agent-sandbox takes longer for a claim than
// everything after it does. A spare pod is handed out once, and put off and released like that of a sandbox.
//
// The server keeps as many as sandboxes were opened in the largest burst of the last minute, but no fewer than least and
// no more than most.
type spares struct {
	least, most int

	mu     sync.Mutex
	list   []spare     // oldest first
	coming int         // claims for them that wait
	opened []time.Time // when sandboxes were opened in the last burstAge; oldest first
	closed bool
}

func sparesOf(cfg Config) spares {
	if cfg.SparePods == 0 {
		return spares{}
	}
	return spares{least: cfg.SparePods, most: max(cfg.SparePods, cfg.MostSpares)}
}

const (
	burstAge  = time.Minute
	burstTime = 2 * time.Second // sandboxes that are opened within it are a burst
)

// spare is a pod with the shape of its pool when it was claimed.
type spare struct {
	pod   *claimed
	shape shape
}

// sparePause is how long a new claim waits, so that it does not delay the sandbox that has taken the one before.
const sparePause = 100 * time.Millisecond

// take returns the oldest spare pod, or nil.
func (s *spares) take() *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	first := s.list[0]
	s.list = s.list[1:]
	return &first
}

// pods returns all spare pods.
func (s *spares) pods() []*claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*claimed
	for _, x := range s.list {
		pods = append(pods, x.pod)
	}
	return pods
}

// open records that a sandbox is opened now.
func (s *spares) open(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, now)
	s.forget(now)
}

// forget drops times that are older than burstAge. It keeps the last mostOpened times, which are more than most. The
// caller holds mu.
func (s *spares) forget(now time.Time) {
	old := 0
	for old < len(s.opened) && (now.Sub(s.opened[old]) > burstAge || len(s.opened)-old > mostOpened) {
		old++
	}
	s.opened = slices.Delete(s.opened, 0, old)
}

// mostOpened bounds the times that are kept.
const mostOpened = 1024

// wanted returns how many spare pods there should be. The caller holds mu.
func (s *spares) wanted(now time.Time) int {
	s.forget(now)
	largest, first := 0, 0
	for last, at := range s.opened {
		for at.Sub(s.opened[first]) > burstTime {
			first++
		}
		largest = max(largest, last-first+1)
	}
	return max(s.least, min(largest, s.most))
}

// surplus removes the oldest pods beyond those wanted, and returns them.
func (s *spares) surplus(now time.Time) []*claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*claimed
	for len(s.list) > s.wanted(now) {
		pods = append(pods, s.list[0].pod)
		s.list = s.list[1:]
	}
	return pods
}

// lacks reports whether one more is to be claimed, and counts it as coming.
func (s *spares) lacks(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.list)+s.coming >= s.wanted(now) {
		return false
	}
	s.coming++
	return true
}

// came adds a pod that was coming; nil: its claim failed. It returns false if the pod is not needed any more.
func (s *spares) came(x *spare) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming--
	if x == nil || s.closed {
		return false
	}
	s.list = append(s.list, *x)
	return true
}

// close refuses further pods and returns those that there are.
func (s *spares) close() []*claimed {
	pods := s.pods()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.list = true, nil
	return pods
}

// handOut removes the oldest usable spare pod and returns it, or nil. A pod is usable if it still runs and has the
// wanted shape, as far as the spec allows. The pod's claim gets the labels of the sandbox.
func (c *claims) handOut(want shape, spec backend.Spec, labels map[string]string) *claimed {
	for {
		x := c.spares.take()
		if x == nil {
			return nil
		}
		if x.shape == want && x.pod.unfit(spec) == "" && c.runs(x.pod) {
			c.b.background.Go(func() { c.relabel(x.pod, labels) })
			return x.pod
		}
		c.b.cfg.Logger.Info("a pod that was claimed ahead cannot be used", "pod", x.pod.name)
		c.b.background.Go(func() { c.discard(c.b.life, x.pod) })
	}
}

// runs reports whether the cluster says that a pod is still there and runs.
func (c *claims) runs(pod *claimed) bool {
	o, _, _ := c.b.watch.list.GetStore().GetByKey(c.b.cluster.namespace + "/" + pod.name)
	p, ok := o.(*corev1.Pod)
	if !ok || string(p.UID) != pod.uid {
		return false
	}
	for _, k := range p.Status.Conditions {
		if k.Type == corev1.PodReady && k.Status == corev1.ConditionFalse { // its node may be silent
			return false
		}
	}
	running, err := started(p)
	return running && err == nil
}

// relabel names the sandbox of a pod that was claimed ahead, for who looks at the cluster's claims.
func (c *claims) relabel(pod *claimed, labels map[string]string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.ownerUID, "labels": labels}})
	if err == nil {
		ctx, cancel := context.WithTimeout(c.b.life, callLimit)
		defer cancel()
		_, err = c.api(claimKind).Patch(ctx, pod.owner, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil && c.b.life.Err() == nil {
		c.b.cfg.Logger.Debug("label a claim", "claim", pod.owner, "error", err)
	}
}

func (c *claims) discard(ctx context.Context, pod *claimed) {
	if err := c.release(context.WithoutCancel(ctx), pod); err != nil { // it ends at its time
		c.b.cfg.Logger.Warn("a pod that was claimed ahead was not released", "pod", pod.name, "error", err)
	}
}

// rest waits for sparePause, and then until no sandbox waits for a claim of its own.
func (c *claims) rest() {
	tick := time.NewTicker(sparePause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if c.waiting.Load() == 0 {
				return
			}
		case <-c.b.life.Done():
			return
		}
	}
}

// tidy releases the spare pods that were kept for a burst that is over.
func (c *claims) tidy() {
	for _, pod := range c.spares.surplus(time.Now()) {
		c.discard(c.b.life, pod)
	}
}

// refill claims the spare pods that are missing, in the background. If a claim fails, the next sandbox tries it again.
func (c *claims) refill(s shape) {
	for c.spares.lacks(time.Now()) {
		c.b.background.Go(func() {
			c.rest()
			pod, err := c.obtain(c.b.life, c.b.labels(""))
			if err != nil {
				c.spares.came(nil)
				c.b.cfg.Logger.Debug("claim a pod ahead", "error", err)
			} else if !c.spares.came(&spare{pod, s}) {
				c.discard(c.b.life, pod)
			}
		})
	}
}
