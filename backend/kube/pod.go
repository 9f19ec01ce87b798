package kube

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// Labels of pods and claims.
const (
	labelManaged = "app.kubernetes.io/managed-by"
	managed      = "sandboxmcp"
	labelPool    = "sandboxmcp.dev/pool"
	labelServer  = "sandboxmcp.dev/server"
	labelSandbox = "sandboxmcp.dev/sandbox"
)

const (
	containerName = "sandbox"
	agentProgram  = "/usr/local/bin/sandboxmcp-agent"

	// podAge ends a pod that neither a server nor the cluster has ended.
	podAge = 24 * time.Hour

	// agentWait is how long a pod waits for the server that made it.
	agentWait = 5 * time.Minute

	// nodeGrace is how long a pod stays on a node that does not answer.
	nodeGrace = 30

	// Requests of a pod. Its limits are those of its sandbox, which it mostly does not use.
	requestMemory = 32 << 20
	requestCPU    = 20 // thousandths
)

// firstUser and userRange are the users of pods on machines without user namespaces for pods. A pod has one of
// its own, because the kernel counts the tasks of a user, whichever container they are in.
const (
	firstUser = 1 << 20
	userRange = 1 << 24
)

func newUser() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return firstUser + int64(binary.LittleEndian.Uint64(b[:])%userRange)
}

// programUser is the user of programs where the relay is root of its user namespace.
const programUser = 1000

// newPod describes the pod of a sandbox.
func (b *Backend) newPod(name string, spec backend.Spec) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: b.labels(spec.ID)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)), ActiveDeadlineSeconds: new(int64(cmp.Or(b.cfg.podAge, podAge).Seconds())),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}}, // the server's own
			Tolerations: []corev1.Toleration{tolerate(corev1.TaintNodeNotReady), tolerate(corev1.TaintNodeUnreachable)},
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}, // for the relay's listeners
			},
			Containers: []corev1.Container{{
				Name: containerName, Image: b.cfg.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{agentProgram},
				Env: []corev1.EnvVar{
					{Name: agent.EnvKeys, Value: agent.FormatKey(publicKey(b.key))},
					{Name: agent.EnvPod, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
					{Name: agent.EnvWait, Value: agentWait.String()},
				},
				Ports:     []corev1.ContainerPort{{ContainerPort: agent.Port}},
				Resources: resources(spec),
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	b.identify(&pod.Spec)
	if b.cfg.RuntimeClass != "" {
		pod.Spec.RuntimeClassName = &b.cfg.RuntimeClass
	}
	c := &pod.Spec.Containers[0]
	for i, place := range relay.Places(spec) {
		volume := "place-" + strconv.Itoa(i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: inMemory(place)})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: place.Path})
	}
	return pod
}

// identify gives a pod its users: one of its own, or with a user namespace root, who lends programs another.
func (b *Backend) identify(spec *corev1.PodSpec) {
	user := newUser()
	if !b.cfg.OwnUsers {
		spec.SecurityContext.RunAsNonRoot, spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup = new(true), &user, &user
		return
	}
	user = 0
	spec.HostUsers, spec.SecurityContext.RunAsUser, spec.SecurityContext.RunAsGroup = new(false), &user, &user
	for _, c := range relay.Capabilities() {
		add := &spec.Containers[0].SecurityContext.Capabilities.Add
		*add = append(*add, corev1.Capability(c))
	}
}

// labels are those of a sandbox; its id is empty: the pod is claimed ahead.
func (b *Backend) labels(id string) map[string]string {
	return map[string]string{labelManaged: managed, labelServer: b.id, labelSandbox: label(id)}
}

// label returns a text as a label can have it.
func label(text string) string {
	const most = 63
	text = text[:min(len(text), most-1)]
	if text == "" {
		return text
	}
	edge := func(c byte) bool { return c == '-' || c == '_' }
	if edge(text[0]) || edge(text[len(text)-1]) {
		return "s" + text[:len(text)-1] + "s"
	}
	return text
}

// resources are those of a sandbox. Its files are memory.
func resources(spec backend.Spec) corev1.ResourceRequirements {
	memory, cpu := spec.MemoryBytes, int64(spec.CPUCores*1000)
	r := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	if memory > 0 {
		r.Limits[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
		r.Requests[corev1.ResourceMemory] = *resource.NewQuantity(min(memory, requestMemory), resource.BinarySI)
	}
	if cpu > 0 {
		r.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
		r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(min(cpu, requestCPU), resource.DecimalSI)
	}
	return r
}

// inMemory is a file system of a bounded size. On a disk, the kubelet would only evict a pod that has
// exceeded it, some seconds later.
func inMemory(p bounds.Place) corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(p.Bytes, resource.BinarySI)}}
}

func tolerate(taint string) corev1.Toleration {
	return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(nodeGrace))}
}
