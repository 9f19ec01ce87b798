package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watch follows objects of one kind by one connection to the API server. T is a pointer.
type watch[T metav1.Object] struct {
	stop context.CancelFunc
	done chan struct{}
	list cache.SharedIndexInformer

	mu        sync.Mutex
	next      int
	followers map[string]map[int]func(T) // by the object's name
	failed    error                      // the last failure of the connection
}

// podInformer lists the pods of sandboxes, whichever server made them.
func podInformer(api kubernetes.Interface, namespace string) cache.SharedIndexInformer {
	return informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = labelManaged + "=" + managed })).Core().V1().Pods().Informer()
}

// newWatch begins to follow what an informer lists. It waits for the first list, at most until ctx ends.
func newWatch[T metav1.Object](ctx context.Context, list cache.SharedIndexInformer) (*watch[T], error) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watch[T]{stop: stop, done: make(chan struct{}), list: list, followers: map[string]map[int]func(T){}}
	tell := func(o any) {
		if v, ok := o.(T); ok {
			w.tell(v.GetName(), v)
		}
	}
	_, err := list.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if v, ok := o.(T); ok {
				var none T
				w.tell(v.GetName(), none)
			}
		},
	})
	if err == nil {
		err = list.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failed = err
		})
	}
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer close(w.done)
		list.RunWithContext(life)
	}()
	if err = w.synced(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// synced waits for the first list. A refusal ends the wait.
func (w *watch[T]) synced(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !w.list.HasSynced() {
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		w.mu.Lock()
		failed := w.failed
		w.mu.Unlock()
		if apierrors.IsForbidden(failed) || apierrors.IsUnauthorized(failed) || apierrors.IsNotFound(failed) {
			return failed
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), failed)
		}
	}
	return nil
}

func (w *watch[T]) close() {
	w.stop()
	<-w.done
}

// tell tells followers of an object its state; nil: it was deleted.
func (w *watch[T]) tell(name string, v T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.followers[name] {
		f(v)
	}
}

// follow calls f with the present state of an object, if it is known, and with each later one. f may not
// block. At the beginning it may see a state twice.
func (w *watch[T]) follow(namespace, name string, f func(T)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	id := w.next
	if w.followers[name] == nil {
		w.followers[name] = map[int]func(T){}
	}
	w.followers[name][id] = f
	if o, ok, _ := w.list.GetStore().GetByKey(namespace + "/" + name); ok {
		if v, ok := o.(T); ok {
			f(v)
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

// until follows an object until ok accepts a state or fails, or ctx ends. why says what it waits for.
func (w *watch[T]) until(ctx context.Context, namespace, name string, ok func(T) (bool, error), why func(T) string) (T, error) {
	states := make(chan T, 1)
	stop := w.follow(namespace, name, func(v T) {
		select {
		case <-states: // only the newest one counts
		default:
		}
		states <- v
	})
	defer stop()
	said := "the cluster has told nothing of it"
	for {
		select {
		case v := <-states:
			if done, err := ok(v); done || err != nil {
				return v, err
			}
			said = why(v)
		case <-ctx.Done():
			var none T
			return none, fmt.Errorf("%s is not ready in time: %s: %w", name, said, ctx.Err())
		}
	}
}

// awaitPod waits until a pod runs, and returns its state. uid is the pod's; empty: any.
func awaitPod(ctx context.Context, w *watch[*corev1.Pod], namespace, name, uid string) (*corev1.Pod, error) {
	return w.until(ctx, namespace, name, func(p *corev1.Pod) (bool, error) {
		if p != nil && uid != "" && string(p.UID) != uid {
			return false, nil // an older one of the name
		}
		return started(p)
	}, waiting)
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

// now returns the present state of the pod; nil: the cluster has told none.
func (l *loss) now() *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// final returns the last state of the pod, for which it waits a limited time.
func (l *loss) final(limit time.Duration) *corev1.Pod {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.ended:
	case <-t.C:
	}
	return l.now()
}
