package kube

import (
	"crypto/ed25519"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
)

// PodNameOf returns the name and the UID of the pod of a sandbox.
func PodNameOf(sb backend.Sandbox) (name, uid, node string) {
	x, ok := sb.(*box)
	if !ok {
		return "", "", ""
	}
	return x.pod.name, x.pod.uid, x.pod.node
}

// AddressOf returns where the agent of a sandbox's pod was reached.
func AddressOf(sb backend.Sandbox) string {
	x, ok := sb.(*box)
	if !ok {
		return ""
	}
	return net.JoinHostPort(x.pod.ip, strconv.Itoa(agent.Port))
}

// TemplateOf returns the labels and the pod of a template whose pods are for a spec and a server's key.
func TemplateOf(cfg Config, spec backend.Spec, key ed25519.PrivateKey) (map[string]string, corev1.PodSpec) {
	b := New(cfg)
	b.key = key
	p := b.newPod("template", spec).Spec
	p.ActiveDeadlineSeconds = nil
	env := &p.Containers[0].Env
	*env = (*env)[:2]
	if (*env)[0].Name != agent.EnvKeys || (*env)[1].Name != agent.EnvPod {
		panic("the environment of pods has changed")
	}
	return map[string]string{labelManaged: managed, labelPool: "e2e"}, p
}

// SetAges sets how long claims and pods stay that no server puts off.
func SetAges(c *Config, claim, pod time.Duration) { c.claimAge, c.podAge = claim, pod }

// Hang stops the server's work in the background, as if the server hung: it puts off nothing, and its connections stay.
func Hang(b *Backend) {
	b.end()
	b.background.Wait()
}

// Clients returns the clients of a cluster.
func Clients(cfg Config) (kubernetes.Interface, dynamic.Interface, error) {
	c, err := cfg.open()
	if err != nil {
		return nil, nil, err
	}
	return c.api, c.objects, nil
}

// SparePodsOf returns the number of pods that are claimed ahead.
func SparePodsOf(b *Backend) int { return len(b.provider.kept()) }
