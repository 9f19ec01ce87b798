package kube

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// TestAUserThatAllPodsHaveIsNoOwnOne: a webhook can give all pods the same user, whose tasks the kernel counts together.
func TestAUserThatAllPodsHaveIsNoOwnOne(t *testing.T) {
	for name, change := range map[string]func(*corev1.PodSpec){
		"": func(*corev1.PodSpec) {}, "of the pod": func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser = new(int64(1000)) },
		"of the container": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.RunAsUser = new(int64(1000)) },
	} {
		b, _ := newFake(t, func(p *corev1.Pod) {
			runs(p)
			change(&p.Spec)
		})
		c, err := b.provider.claim(t.Context(), small)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&box{b: b, pod: c}).userOfOthers(); got != (name != "") {
			t.Errorf("the user %q is changed: got that others have it: %v", name, got)
		}
	}
}

// TestAPodThatGetsAContainerIsToldAgain: a debugger can add a container to a pod that is claimed, which programs reach at 127.0.0.1.
func TestAPodThatGetsAContainerIsToldAgain(t *testing.T) {
	b, _ := newFake(t, nil)
	pod := b.newPod("p", small)
	x := &box{b: b, pod: claimedOf(pod), closed: closedSeen, loss: newLoss(string(pod.UID), func(string) {})}
	seen := relay.Seen{Network: sandboxmcp.WallNoNetwork, NoIPv6: true}
	if iso := x.report(t.Context(), seen); !slices.Contains(iso.Walls, sandboxmcp.WallNoNetwork) {
		t.Fatalf("got %v", iso.Walls)
	}
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	x.loss.see(pod)
	if iso := x.report(t.Context(), seen); slices.Contains(iso.Walls, sandboxmcp.WallNoNetwork) || !slices.Contains(iso.Weak, weakOthers+"debug") {
		t.Errorf("got walls %v and weak %v", iso.Walls, iso.Weak)
	}
}

// TestPlacesOfAPodAreItsOwn: a pod is refused whose places a webhook has moved to a disk, to a volume that other pods have, too, or
// away.
func TestPlacesOfAPodAreItsOwn(t *testing.T) {
	b, _ := newFake(t, nil)
	for name, change := range map[string]func(s *corev1.PodSpec){
		"":          func(*corev1.PodSpec) {},
		"on a disk": func(s *corev1.PodSpec) { s.Volumes[0].EmptyDir.Medium = "" },
		"shared": func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}
		},
		"away": func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts = s.Containers[0].VolumeMounts[1:] },
		"at another container": func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "first", VolumeMounts: s.Containers[0].VolumeMounts}}
			s.Containers[0].VolumeMounts = s.Containers[0].VolumeMounts[1:]
		},
	} {
		pod := b.newPod("p", small)
		change(&pod.Spec)
		if err := refused(claimedOf(pod)); (err != nil) != (name != "") || err != nil && !strings.Contains(err.Error(), backend.WorkDir) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// TestMountsOfAPodAreTold: a webhook may add volumes to a pod. weak names where programs see them, and a pod with a token of a service
// account is refused, or with what may be one.
func TestMountsOfAPodAreTold(t *testing.T) {
	b, _ := newFake(t, nil)
	token := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}
	for name, c := range map[string]struct {
		source *corev1.VolumeSource
		at     string // of a device, if it is in /dev
		refuse bool
	}{
		"none":              {nil, "", false},
		"a token":           {&token, "/var/run/secrets/eks.amazonaws.com/serviceaccount", true},
		"a certificate":     {&corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{}}}}}, "/run/certificate", true},
		"a device":          {&corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, "/dev/disk", false},
		"a secret":          {&corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, "/etc/secret", true}, // it may be a token of the older kind
		"one among others":  {&corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{}}}}}, "/etc/all", true},
		"a configuration":   {&corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, "/etc/configuration", false},
		"a place on a disk": {&corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, backend.WorkDir, true},
		"memory":            {&corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}, "/vault/secrets", false},
	} {
		pod := b.newPod("p", small)
		var want []string
		if c.source != nil {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: *c.source})
			k := &pod.Spec.Containers[0]
			if strings.HasPrefix(c.at, "/dev/") {
				k.VolumeDevices = []corev1.VolumeDevice{{Name: "more", DevicePath: c.at}}
			} else {
				k.VolumeMounts = append(k.VolumeMounts, corev1.VolumeMount{Name: "more", MountPath: c.at})
			}
			want = []string{c.at}
		}
		x := &box{b: b, pod: claimedOf(pod)}
		iso := x.report(t.Context(), relay.Seen{})
		told := slices.Contains(iso.Weak, weakMounts+c.at)
		if !slices.Equal(x.pod.mounts, want) || told != (want != nil) || (refused(x.pod) != nil) != c.refuse {
			t.Errorf("%s: got %v, %v and %v", name, x.pod.mounts, refused(x.pod), iso.Weak)
		}
	}
}

// TestPodsThatShareNamespacesAreRefused: programs of two pods that have their node's IPC namespace share memory (shmget).
func TestPodsThatShareNamespacesAreRefused(t *testing.T) {
	b, _ := newFake(t, nil)
	for name, change := range map[string]func(s *corev1.PodSpec){
		"": func(*corev1.PodSpec) {}, "hostIPC": func(s *corev1.PodSpec) { s.HostIPC = true }, "hostPID": func(s *corev1.PodSpec) { s.HostPID = true },
		"hostNetwork": func(s *corev1.PodSpec) { s.HostNetwork = true }, "shareProcessNamespace": func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) },
	} {
		pod := b.newPod("p", small)
		change(&pod.Spec)
		if err := refused(claimedOf(pod)); (err != nil) != (name != "") || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// TestPodsAreRefusedBeforeTheyAreEntered: in a pod that shares namespaces nothing is done. The error says why, and the pod is removed.
func TestPodsAreRefusedBeforeTheyAreEntered(t *testing.T) {
	b, api := newFake(t, func(p *corev1.Pod) {
		runs(p)
		p.Spec.HostPID = true
	})
	_, err := b.Open(t.Context(), small)
	if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeIsolationUnavailable || !strings.Contains(e.Message, "hostPID") || !strings.Contains(e.Hint, "webhook") {
		t.Errorf("got %v, want that hostPID is refused", err)
	}
	list, err := api.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("got %d pods and %v, want none", len(list.Items), err)
	}
}
