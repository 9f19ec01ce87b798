package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// Kinds of agent-sandbox.
var (
	claimGroup   = schema.GroupVersion{Group: "extensions.agents.x-k8s.io", Version: "v1beta1"}
	claimKind    = claimGroup.WithResource("sandboxclaims")
	poolKind     = claimGroup.WithResource("sandboxwarmpools")
	templateKind = claimGroup.WithResource("sandboxtemplates")
)

// sandboxClaim is what the backend writes and reads of a SandboxClaim.
type sandboxClaim struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       struct {
		WarmPoolRef objectRef `json:"warmPoolRef"`
		Lifecycle   lifecycle `json:"lifecycle"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
		Sandbox    objectRef          `json:"sandbox"`
	} `json:"status"`
}

type objectRef struct {
	Name string `json:"name,omitempty"`
}

type lifecycle struct {
	ShutdownTime   string `json:"shutdownTime"`
	ShutdownPolicy string `json:"shutdownPolicy,omitempty"`
}

// claimAge is how long a claim stays after its server has last put it off.
const claimAge = 10 * time.Minute

// claimsAtOnce bounds the claims of a server that wait for their pods. The controller of agent-sandbox loses its
// leader election, and ends, when many are made at once on a busy machine.
const claimsAtOnce = 16

func (c *claims) end(now time.Time) string {
	return now.Add(cmp.Or(c.b.cfg.claimAge, claimAge)).UTC().Format(time.RFC3339)
}

// claims takes pods of a warm pool of agent-sandbox. A sandbox that asks for less than the pool's pods
// have gets a pod of its own.
type claims struct {
	plain
	watch  *watch[*unstructured.Unstructured]
	turns  chan struct{} // of claims that wait for their pods
	spares spares

	waiting atomic.Int32 // sandboxes that wait for their own claims

	mu     sync.Mutex
	shape  *shape
	shaped time.Time
}

// newProvider returns the provider that the configuration and the cluster allow.
func (b *Backend) newProvider(ctx context.Context) (provider, error) {
	one := plain{b}
	if b.cfg.Pool == "" {
		return one, nil
	}
	_, err := b.cluster.api.Discovery().ServerResourcesForGroupVersion(claimGroup.String())
	if apierrors.IsNotFound(err) {
		missing := sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "kube: the cluster has no %s, which kube_pool needs", claimGroup).WithHint("install agent-sandbox with its extensions, or leave kube_pool out")
		if b.cfg.Image == "" {
			return nil, missing
		}
		b.cfg.Logger.Warn("pods are made one by one", "reason", missing.Message)
		return one, nil
	}
	if err != nil {
		return nil, failure("ask for the kinds of agent-sandbox", err)
	}
	f := dynamicinformer.NewFilteredDynamicSharedInformerFactory(b.cluster.objects, 0, b.cluster.namespace, func(o *metav1.ListOptions) { o.LabelSelector = labelServer + "=" + b.id })
	w, err := newWatch[*unstructured.Unstructured](ctx, f.ForResource(claimKind).Informer())
	if err != nil {
		return nil, failure("list claims", err).WithHint("give the server's account the rights of docs/kubernetes.md (sandboxclaims, sandboxwarmpools, sandboxtemplates)")
	}
	return &claims{plain: one, watch: w, turns: make(chan struct{}, claimsAtOnce), spares: sparesOf(b.cfg)}, nil
}

// api returns the objects of a kind.
func (c *claims) api(kind schema.GroupVersionResource) dynamic.ResourceInterface {
	return c.b.cluster.objects.Resource(kind).Namespace(c.b.cluster.namespace)
}

func (c *claims) kept() []*claimed { return c.spares.pods() }

func (c *claims) close(ctx context.Context) {
	for _, pod := range c.spares.close() {
		c.discard(ctx, pod)
	}
	c.watch.close()
}

func (c *claims) claim(ctx context.Context, spec backend.Spec) (*claimed, error) {
	s, err := c.shapeOf(ctx)
	if err != nil {
		return nil, err
	}
	if why := s.exceeds(spec); why != "" {
		c.b.cfg.Logger.Info("the pool's pods do not fit; a pod is made", "pool", c.b.cfg.Pool, "reason", why)
		return c.plain.claim(ctx, spec)
	}
	c.spares.open(time.Now())
	defer c.refill(s)
	labels := c.b.labels(spec.ID)
	if pod := c.handOut(s, spec, labels); pod != nil { //nolint:contextcheck // what it begins outlives the call
		pod.opened = s.opened
		return pod, nil
	}
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	pod, err := c.obtain(ctx, labels)
	if err != nil {
		return nil, err
	}
	if why := pod.unfit(spec); why != "" {
		return nil, errors.Join(unavailable("use a pod of the pool "+c.b.cfg.Pool, fmt.Errorf("%w: %s", errUnfit, why)).
			WithHint("if the pool has pods of a former template, set its updateStrategy to Recreate, or delete them; if the cluster gives new pods other sizes, give the template sizes that it leaves as they are"), c.release(context.WithoutCancel(ctx), pod))
	}
	pod.opened = s.opened
	return pod, nil
}

// errUnfit means that a pod of the pool may use more than a sandbox may. The pool keeps the pods of its former template.
var errUnfit = errors.New("the pod is not as the pool's template")

// obtain makes a claim and waits for its pod.
func (c *claims) obtain(ctx context.Context, labels map[string]string) (*claimed, error) {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	name := "sandboxmcp-" + strings.ToLower(rand.Text()[:16])
	var want sandboxClaim
	want.APIVersion, want.Kind = claimGroup.String(), "SandboxClaim"
	want.Metadata = metav1.ObjectMeta{Name: name, Labels: labels}
	want.Spec.WarmPoolRef.Name = c.b.cfg.Pool
	want.Spec.Lifecycle = lifecycle{c.end(time.Now()), "Delete"}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return nil, err
	}
	delete(object, "status")
	made, err := c.api(claimKind).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		return nil, failure("claim a pod", err) // if it was made all the same, it ends at its time
	}
	got := &claimed{owner: name, ownerUID: string(made.GetUID())}
	if err = c.fill(ctx, got); err != nil {
		return nil, errors.Join(failure("claim a pod", err), c.release(context.WithoutCancel(ctx), got))
	}
	return got, nil
}

// fill waits for the pod of a claim.
func (c *claims) fill(ctx context.Context, got *claimed) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	space := c.b.cluster.namespace
	u, err := c.watch.until(ctx, space, got.owner, claimReady, claimWaits)
	if err != nil {
		return err
	}
	state, err := readClaim(u)
	if err != nil {
		return err
	}
	pod, err := awaitPod(ctx, c.b.watch, space, state.Status.Sandbox.Name, "")
	if err != nil {
		return err
	}
	if o := metav1.GetControllerOf(pod); o == nil || o.Kind != "Sandbox" || o.Name != state.Status.Sandbox.Name {
		return fmt.Errorf("pod %s is not of the claimed sandbox", pod.Name)
	}
	p := claimedOf(pod)
	p.owner, p.ownerUID = got.owner, got.ownerUID
	*got = *p
	return nil
}

func readClaim(u *unstructured.Unstructured) (sandboxClaim, error) {
	var c sandboxClaim
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c)
	return c, err
}

func claimReady(u *unstructured.Unstructured) (bool, error) {
	if u == nil {
		return false, &startError{"Deleted", "the claim was deleted"}
	}
	c, err := readClaim(u)
	if err != nil {
		return false, err
	}
	for _, k := range c.Status.Conditions {
		switch {
		case k.Type == "Ready" && k.Status == metav1.ConditionTrue:
			return c.Status.Sandbox.Name != "", nil
		case k.Type == "Ready" && (strings.Contains(k.Reason, "Expired") || strings.HasPrefix(k.Reason, "Invalid")):
			return false, &startError{k.Reason, k.Message}
		}
	}
	return false, nil
}

func claimWaits(u *unstructured.Unstructured) string {
	c, err := readClaim(u)
	if err != nil {
		return err.Error()
	}
	for _, k := range c.Status.Conditions {
		if k.Type == "Ready" {
			return strings.TrimSpace(k.Reason + " " + k.Message)
		}
	}
	return "no controller has answered the claim"
}

// renew puts off the claim's end.
func (c *claims) renew(ctx context.Context, got *claimed) error {
	if got.owner == "" {
		return c.plain.renew(ctx, got)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": got.ownerUID}, "spec": map[string]any{"lifecycle": lifecycle{ShutdownTime: c.end(time.Now())}}})
	if err != nil {
		return err
	}
	_, err = c.api(claimKind).Patch(ctx, got.owner, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (c *claims) release(ctx context.Context, got *claimed) error {
	if got.owner == "" {
		return c.plain.release(ctx, got)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	uid := types.UID(got.ownerUID)
	err := c.api(claimKind).Delete(ctx, got.owner, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return failure("delete a claim", err)
	}
	return nil
}

// shape is what the pods of a pool may use.
type shape struct {
	memory, work, temp int64
	cpu                float64
	opened             bool // agent-sandbox has made a policy that lets the pods reach addresses; of templates only
}

// shapeAge is how long the shape of a pool is believed.
const shapeAge = time.Minute

// shapeOf reads the template of the pool.
func (c *claims) shapeOf(ctx context.Context) (shape, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shape != nil && time.Since(c.shaped) < shapeAge {
		return *c.shape, nil
	}
	pool, err := c.api(poolKind).Get(ctx, c.b.cfg.Pool, metav1.GetOptions{})
	if err != nil {
		return shape{}, failure("read the pool "+c.b.cfg.Pool, err).WithHint("see kube_pool and `kubectl get sandboxwarmpools`")
	}
	name, _, _ := unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name")
	template, err := c.api(templateKind).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return shape{}, failure("read the template of the pool "+c.b.cfg.Pool, err)
	}
	raw, _, _ := unstructured.NestedMap(template.Object, "spec", "podTemplate", "spec")
	var spec corev1.PodSpec
	if err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec); err != nil {
		return shape{}, failure("read the template of the pool "+c.b.cfg.Pool, err)
	}
	s, err := shapeOf(spec)
	if err != nil {
		return shape{}, unavailable("use the pool "+c.b.cfg.Pool, err).WithHint("make the template as deploy/kubernetes does")
	}
	s.opened = opensNetwork(template.Object)
	c.shape, c.shaped = &s, time.Now()
	return s, nil
}

// opensNetwork reports whether agent-sandbox makes a policy for the pods of a template that lets them reach addresses. Unless the
// template says otherwise, it lets them reach the public internet. Policies add up, so no other one closes what it opens.
func opensNetwork(template map[string]any) bool {
	management, _, _ := unstructured.NestedString(template, "spec", "networkPolicyManagement")
	if management == "Unmanaged" {
		return false
	}
	policy, own, err := unstructured.NestedMap(template, "spec", "networkPolicy")
	egress, _ := policy["egress"].([]any)
	return !own || err != nil || len(egress) > 0
}

// shapeOf returns the shape of a pod.
func shapeOf(spec corev1.PodSpec) (shape, error) {
	sizes := map[string]int64{}
	for _, v := range spec.Volumes {
		if e := v.EmptyDir; e != nil && e.Medium == corev1.StorageMediumMemory && e.SizeLimit != nil {
			sizes[v.Name] = e.SizeLimit.Value()
		}
	}
	for _, k := range spec.Containers {
		if k.Name != containerName {
			continue
		}
		s := shape{memory: k.Resources.Limits.Memory().Value(), cpu: k.Resources.Limits.Cpu().AsApproximateFloat64()}
		places := map[string]int64{}
		for _, m := range k.VolumeMounts {
			places[m.MountPath] = sizes[m.Name]
		}
		for _, p := range relay.Places(backend.Spec{}) {
			if places[p.Path] == 0 {
				return s, fmt.Errorf("the template has no emptyDir in memory with a sizeLimit at %s", p.Path)
			}
		}
		s.work, s.temp = places[backend.WorkDir], places[backend.TempDir]
		if s.memory == 0 || s.cpu == 0 {
			return s, errors.New("the template limits no memory or no processors")
		}
		return s, nil
	}
	return shape{}, errors.New("the template has no container named sandbox")
}

// exceeds says what of a spec a pod of the shape would exceed.
func (s shape) exceeds(spec backend.Spec) string {
	places := relay.Places(spec)
	switch {
	case s.memory > spec.MemoryBytes:
		return fmt.Sprintf("memory: %d bytes, and %d are allowed", s.memory, spec.MemoryBytes)
	case s.cpu > spec.CPUCores:
		return fmt.Sprintf("processors: %g, and %g are allowed", s.cpu, spec.CPUCores)
	case s.work > places[0].Bytes:
		return fmt.Sprintf("%s: %d bytes, and %d are allowed", backend.WorkDir, s.work, places[0].Bytes)
	case s.temp > places[1].Bytes:
		return fmt.Sprintf("%s: %d bytes, and %d are allowed", backend.TempDir, s.temp, places[1].Bytes)
	}
	return ""
}
