package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// provider makes and removes the pods of sandboxes.
type provider interface {
	// claim returns a running pod that nothing else uses. If it fails, it leaves nothing behind.
	claim(ctx context.Context, spec backend.Spec) (*claimed, error)

	// renew puts off the time at which the cluster ends the pod by itself.
	renew(ctx context.Context, c *claimed) error

	// release removes the pod, if it is still the one that was claimed.
	release(ctx context.Context, c *claimed) error

	// kept returns the pods that were claimed for sandboxes to come.
	kept() []*claimed

	// tidy releases those of these pods that are not expected to be needed.
	tidy()

	// close ends what the provider has in the background, and releases the pods that it has kept.
	close(ctx context.Context)
}

// claimed is a pod of a sandbox.
type claimed struct {
	name, uid string
	ip        string
	node      string
	host      netip.Addr // of the node; the zero address: not known
	others    []string   // containers that share the pod's network with the sandbox
	mounts    []string   // where the sandbox has volumes besides its own
	tokens    []string   // those of them with a token of a service account, with a key for it, or with a Secret, which may have one
	misplaced []string   // its places that are no emptyDir in memory
	shared    []string   // fields of the pod by which it shares namespaces with its node, or among its containers
	opened    bool       // agent-sandbox has made a policy that lets the pod reach addresses
	shape     shape      // what the pod may use
	misfit    error      // why it has no shape; nil: it has one
	since     time.Time  // since when it runs
	owner     string     // name of the claim; empty: the pod is of no claim
	ownerUID  string
	ownUser   bool // no other pod of its node has its user
	userSpace bool // the cluster says that it has a user namespace
	runtime   bool // the cluster says that it has a RuntimeClass
}

func claimedOf(p *corev1.Pod) *claimed {
	c := &claimed{name: p.Name, uid: string(p.UID), ip: p.Status.PodIP, node: p.Spec.NodeName}
	c.host, _ = netip.ParseAddr(p.Status.HostIP)
	c.others = others(p.Spec)
	c.mounts, c.tokens = mounts(p.Spec)
	c.misplaced = misplaced(c.mounts, p.Spec)
	c.shape, c.misfit = shapeOf(p.Spec)
	c.shared = shared(p.Spec)
	c.runtime = p.Spec.RuntimeClassName != nil
	c.userSpace = p.Spec.HostUsers != nil && !*p.Spec.HostUsers
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == containerName && s.State.Running != nil {
			c.since = s.State.Running.StartedAt.Time
		}
	}
	return c
}

// answers is where other pods try whether they reach this one. It is not valid if the pod has no address of IPv4.
func (c *claimed) answers() netip.AddrPort {
	at, err := netip.ParseAddr(c.ip)
	if err != nil || !at.Is4() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at, agent.Port)
}

// others returns the names of the containers that run beside that of the sandbox, such as those that a service mesh adds.
func others(spec corev1.PodSpec) (names []string) {
	for _, c := range spec.Containers {
		if c.Name != containerName {
			names = append(names, c.Name)
		}
	}
	for _, c := range spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			names = append(names, c.Name)
		}
	}
	for _, c := range spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// shared returns the fields by which a pod shares namespaces with its node, and so with other such pods, or among its containers.
func shared(spec corev1.PodSpec) (names []string) {
	processes := spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace
	for name, set := range map[string]bool{"hostNetwork": spec.HostNetwork, "hostPID": spec.HostPID, "hostIPC": spec.HostIPC, "shareProcessNamespace": processes} {
		if set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// unfit says why a pod may not be that of a spec: it is of a former template of its pool, or was changed when it was admitted.
func (c *claimed) unfit(spec backend.Spec) string {
	if c.misfit != nil {
		return c.misfit.Error()
	}
	return c.shape.exceeds(spec)
}

// misplaced returns the places of a pod that are no emptyDir in memory of its own. Other volumes may be on a disk of the node, which
// programs could fill, or be those of other pods, too.
func misplaced(mounts []string, spec corev1.PodSpec) (places []string) {
	has := map[string]bool{}
	for _, c := range spec.Containers {
		for _, m := range c.VolumeMounts {
			has[m.MountPath] = has[m.MountPath] || c.Name == containerName
		}
	}
	for _, p := range relay.Places(backend.Spec{}) {
		if !has[p.Path] || slices.Contains(mounts, p.Path) {
			places = append(places, p.Path)
		}
	}
	return places
}

// runsAs returns the user of a pod's container; 0: it names none, or root.
func runsAs(spec corev1.PodSpec) (user int64) {
	if s := spec.SecurityContext; s != nil && s.RunAsUser != nil {
		user = *s.RunAsUser
	}
	for _, c := range spec.Containers {
		if s := c.SecurityContext; c.Name == containerName && s != nil && s.RunAsUser != nil {
			user = *s.RunAsUser
		}
	}
	return user
}

// mounts returns where the container of a sandbox has volumes besides those of its places, and which of these have a token of a
// service account, a key that is certified for it, or a Secret. A Secret may hold a token of the older kind: the
// server cannot tell, because it has no right to read Secrets. A webhook of the cluster can add volumes to every pod.
func mounts(spec corev1.PodSpec) (all, tokens []string) {
	volumes := map[string]corev1.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
	}
	own := relay.Places(backend.Spec{})
	for _, c := range spec.Containers {
		if c.Name != containerName {
			continue
		}
		for _, d := range c.VolumeDevices {
			all = append(all, d.DevicePath)
		}
		for _, m := range c.VolumeMounts {
			v := volumes[m.Name]
			if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory && slices.ContainsFunc(own, func(p bounds.Place) bool { return p.Path == m.MountPath }) {
				continue
			}
			all = append(all, m.MountPath)
			if v.Secret != nil || v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
				return s.ServiceAccountToken != nil || s.PodCertificate != nil || s.Secret != nil
			}) {
				tokens = append(tokens, m.MountPath)
			}
		}
	}
	return all, tokens
}

// startLimit bounds the time in which a pod has to run.
const startLimit = 2 * time.Minute

// callLimit bounds a request to the API server.
const callLimit = 20 * time.Second

// plain makes a pod for each sandbox.
type plain struct{ b *Backend }

func (p plain) claim(ctx context.Context, spec backend.Spec) (*claimed, error) {
	b := p.b
	if b.cfg.Image == "" {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "kube: no image is set for pods").WithHint("set kube_image to an image that has sandboxmcp-agent and the interpreters")
	}
	name := "sandboxmcp-" + strings.ToLower(rand.Text()[:16])
	want := b.newPod(name, spec)
	made, err := b.cluster.api.CoreV1().Pods(b.cluster.namespace).Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return nil, errors.Join(failure("make a pod", err), b.forget(ctx, err, name))
	}
	waits, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	running, err := awaitPod(waits, b.watch, b.cluster.namespace, name, string(made.UID))
	if err != nil {
		c := &claimed{name: name, uid: string(made.UID)}
		return nil, errors.Join(failure("start a pod", err), p.release(context.WithoutCancel(ctx), c))
	}
	c := claimedOf(running)
	// With a user namespace, all pods have the same users in it. A webhook can give all pods the same user.
	c.ownUser = !b.cfg.OwnUsers && runsAs(running.Spec) == runsAs(want.Spec)
	return c, nil
}

func (plain) kept() []*claimed { return nil }

func (plain) tidy() {}

func (plain) close(context.Context) {}

// forget removes a pod whose creation may or may not have happened.
func (b *Backend) forget(ctx context.Context, err error, name string) error {
	if _, told := errors.AsType[*apierrors.StatusError](err); told {
		return nil // the API server has refused it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	err = b.cluster.api.CoreV1().Pods(b.cluster.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// renew does nothing: a pod's deadline can only come closer.
func (plain) renew(context.Context, *claimed) error { return nil }

func (p plain) release(ctx context.Context, c *claimed) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	uid := types.UID(c.uid)
	err := p.b.cluster.api.CoreV1().Pods(p.b.cluster.namespace).Delete(ctx, c.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is gone, or another has its name
		return nil
	}
	if err != nil {
		return failure("delete a pod", err)
	}
	return nil
}

// failure converts an error of the cluster.
func failure(what string, err error) *sandboxmcp.Error {
	e := sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "kube: %s: %s", what, err).WithCause(err)
	bad, _ := errors.AsType[*startError](err)
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return e.WithHint("wait until other sandboxes have ended, or raise the ResourceQuota of the namespace")
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return e.WithHint("the namespace's pod security level refuses the pod; leave kube_host_users at its default, or use another namespace")
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return e.WithHint("give the server's account the rights of docs/kubernetes.md (pods: create, get, list, watch, delete)")
	case apierrors.IsNotFound(err):
		return e.WithHint("see whether the namespace exists: kube_namespace")
	case bad != nil && strings.Contains(bad.reason, "Image"):
		return e.WithHint("see whether the nodes can pull kube_image")
	case errors.Is(err, context.DeadlineExceeded):
		return e.WithHint("see `kubectl describe pod`, and whether the nodes have room")
	}
	return e.WithHint("see whether the cluster answers: `kubectl get nodes`")
}
