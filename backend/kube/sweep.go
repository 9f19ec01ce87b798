package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	// sweepAge is how long an ended pod is left to its server.
	sweepAge = 2 * time.Minute

	// pendingAge is how long a pod may wait for a node. Its server gives up earlier.
	pendingAge = 15 * time.Minute
)

// sweep removes what dead servers have left, and puts off the ends of this server's sandboxes. A pod ends
// with its server's connection, so each pod that has ended is garbage, whichever server made it. That two
// servers sweep at a time does no harm.
func (b *Backend) sweep() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		b.sweepOnce(time.Now())
		select {
		case <-t.C:
			b.provider.tidy()
			b.renew()
		case <-b.life.Done():
			return
		}
	}
}

// renew puts off the end of every pod that is claimed.
func (b *Backend) renew() {
	pods := b.provider.kept()
	b.mu.Lock()
	for x := range b.live {
		pods = append(pods, x.pod)
	}
	b.mu.Unlock()
	for _, pod := range pods {
		ctx, cancel := context.WithTimeout(b.life, callLimit)
		err := b.provider.renew(ctx, pod)
		cancel()
		if err != nil && b.life.Err() == nil {
			b.cfg.Logger.Warn("the end of a pod was not put off", "pod", pod.name, "error", err)
		}
	}
}

// sweepOnce removes what is left now. How long a pod waits is counted from when this server has first seen it wait: its clock need not
// be that of the API server, by which pods have their times, and a server that is fast would remove pods that others wait for.
func (b *Backend) sweepOnce(now time.Time) {
	pods, err := corelisters.NewPodLister(b.watch.list.GetIndexer()).Pods(b.cluster.namespace).List(labels.Everything())
	if err != nil {
		return
	}
	before := b.waits
	b.waits = map[types.UID]time.Time{}
	for _, p := range pods {
		since := p.CreationTimestamp.Time
		if p.Status.Phase == corev1.PodPending {
			var seen bool
			if since, seen = before[p.UID]; !seen {
				since = now
			}
			b.waits[p.UID] = since
		}
		if !left(p, now.Sub(since)) {
			continue
		}
		ctx, cancel := context.WithTimeout(b.life, callLimit)
		err := plain{b}.release(ctx, &claimed{name: p.Name, uid: string(p.UID)})
		cancel()
		b.cfg.Logger.Info("pod of a dead server removed", "pod", p.Name, "error", err)
	}
}

// left reports whether a server has left a pod of some age behind. Pods of a claim are agent-sandbox's.
func left(p *corev1.Pod, age time.Duration) bool {
	if p.DeletionTimestamp != nil || len(p.OwnerReferences) > 0 {
		return false
	}
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return age > sweepAge
	case corev1.PodPending:
		return age > pendingAge
	default:
		return false
	}
}
