package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watch follows the pods of sandboxes by one connection to the API server.
type watch struct {
	stop context.CancelFunc
	done chan struct{}
	list cache.SharedIndexInformer

	mu        sync.Mutex
	next      int
	followers map[string]map[int]func(*corev1.Pod) // by the pod's name
}

// newWatch begins to follow the pods of a namespace. It waits for the first list, at most until ctx ends.
func newWatch(ctx context.Context, api kubernetes.Interface, namespace string) (*watch, error) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = labelManaged + "=" + managed }))
	w := &watch{stop: stop, done: make(chan struct{}), list: f.Core().V1().Pods().Informer(), followers: map[string]map[int]func(*corev1.Pod){}}
	tell := func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			w.tell(p.Name, p)
		}
	}
	_, err := w.list.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				w.tell(p.Name, nil)
			}
		},
	})
	var failed error
	var once sync.Mutex
	if err == nil {
		err = w.list.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			once.Lock()
			defer once.Unlock()
			failed = err
		})
	}
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer close(w.done)
		w.list.RunWithContext(life)
	}()
	if !cache.WaitForCacheSync(ctx.Done(), w.list.HasSynced) {
		w.close()
		once.Lock()
		defer once.Unlock()
		return nil, errors.Join(ctx.Err(), failed)
	}
	return w, nil
}

func (w *watch) close() {
	w.stop()
	<-w.done
}

// tell tells followers of a pod its state; nil: it was deleted.
func (w *watch) tell(name string, p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.followers[name] {
		f(p)
	}
}

// follow calls f with the present state of a pod, if it is known, and with each later one. f may not block.
// It may see an older state after a newer one only once, at the beginning.
func (w *watch) follow(namespace, name string, f func(*corev1.Pod)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	id := w.next
	if w.followers[name] == nil {
		w.followers[name] = map[int]func(*corev1.Pod){}
	}
	w.followers[name][id] = f
	if o, ok, _ := w.list.GetStore().GetByKey(namespace + "/" + name); ok {
		if p, ok := o.(*corev1.Pod); ok {
			f(p)
		}
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.followers[name], id)
		if len(w.followers[name]) == 0 {
			delete(w.followers, name)
		}
	}
}

// await waits until a pod runs, and returns its state.
func (w *watch) await(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	states := make(chan *corev1.Pod, 1)
	stop := w.follow(namespace, name, func(p *corev1.Pod) {
		select {
		case <-states: // only the newest one counts
		default:
		}
		states <- p
	})
	defer stop()
	why := "the cluster has not told anything of it"
	for {
		select {
		case p := <-states:
			if p != nil && string(p.UID) != uid {
				continue // an older one of the name
			}
			ok, err := started(p)
			if ok || err != nil {
				return p, err
			}
			why = waiting(p)
		case <-ctx.Done():
			return nil, fmt.Errorf("the pod has not started in time: %s: %w", why, ctx.Err())
		}
	}
}

// startError says why a pod will not start.
type startError struct{ reason, message string }

func (e *startError) Error() string { return strings.TrimSuffix(e.reason+": "+e.message, ": ") }

// badReasons are those of containers that do not start by themselves.
var badReasons = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true, "ImageInspectError": true, "RegistryUnavailable": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "CrashLoopBackOff": true,
}

// started reports whether the container of a pod runs. It fails if it will not.
func started(p *corev1.Pod) (bool, error) {
	switch {
	case p == nil:
		return false, &startError{"Deleted", "the pod was deleted while it started"}
	case p.DeletionTimestamp != nil:
		return false, &startError{"Deleted", "the pod is being deleted"}
	case p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return false, &startError{"Ended", "the pod has ended: " + ending(p)}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil && badReasons[c.State.Waiting.Reason] {
			return false, &startError{c.State.Waiting.Reason, c.State.Waiting.Message}
		}
		if c.Name == containerName && c.State.Running != nil && p.Status.PodIP != "" {
			return true, nil
		}
	}
	return false, nil
}

// waiting says what a pod waits for.
func waiting(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node takes it: " + c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return "its container waits: " + c.State.Waiting.Reason
		}
	}
	return "it is " + string(p.Status.Phase)
}

// ending says how a pod ended.
func ending(p *corev1.Pod) string {
	text := strings.TrimSpace(p.Status.Reason + " " + p.Status.Message)
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			text = strings.TrimSpace(fmt.Sprintf("%s %s (exit status %d) %s", text, t.Reason, t.ExitCode, t.Message))
		}
	}
	return text
}

// outOfMemory reports whether the memory limit has ended the pod's container.
func outOfMemory(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Reason == "OOMKilled" {
			return true
		}
	}
	return false
}

// loss follows the pod of a sandbox, and says when it can no longer be the one that was opened.
type loss struct {
	uid  string
	lose func(why string)

	mu    sync.Mutex
	ready bool        // it was seen ready
	last  *corev1.Pod // of this UID
	ended chan struct{}
	over  bool
}

func newLoss(uid string, lose func(why string)) *loss {
	return &loss{uid: uid, lose: lose, ended: make(chan struct{})}
}

// see looks at a state of the pod.
func (l *loss) see(p *corev1.Pod) {
	l.mu.Lock()
	why := l.judge(p)
	if (p == nil || string(p.UID) == l.uid && len(ending(p)) > 0) && !l.over {
		l.over = true
		close(l.ended)
	}
	l.mu.Unlock()
	if why != "" {
		l.lose(why)
	}
}

// judge is see for a caller that holds mu.
func (l *loss) judge(p *corev1.Pod) string {
	switch {
	case p == nil:
		return "its pod was deleted"
	case string(p.UID) != l.uid:
		if l.last != nil && p.CreationTimestamp.Before(&l.last.CreationTimestamp) {
			return "" // an older pod of the name, in a late report
		}
		return "its pod was replaced by another"
	}
	l.last = p
	switch {
	case p.DeletionTimestamp != nil:
		return "its pod is being deleted"
	case p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return "its pod has ended: " + ending(p)
	}
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			l.ready = true
		} else if l.ready { // there is no probe: its node does not answer, or its container has ended
			return "the node of its pod does not answer, or its container has ended"
		}
	}
	return ""
}

// final returns the last state of the pod, for which it waits a limited time.
func (l *loss) final(limit time.Duration) *corev1.Pod {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.ended:
	case <-t.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
