package kube

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

const space = "sandboxes"

// newFake returns a backend of a cluster of which only the API is there. become changes each pod that is made.
func newFake(t *testing.T, become func(p *corev1.Pod), objects ...runtime.Object) (*Backend, *fake.Clientset) {
	t.Helper()
	api := fake.NewClientset(objects...)
	b := New(Config{Image: "image"})
	b.cluster = &cluster{
		rest: &rest.Config{Host: "https://127.0.0.1:1"}, api: api, namespace: space,
		objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{claimKind: "SandboxClaimList", poolKind: "SandboxWarmPoolList", templateKind: "SandboxTemplateList"}),
	}
	if become != nil {
		api.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
			p := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
			p.Namespace, p.UID, p.CreationTimestamp = space, types.UID("uid of "+p.Name), metav1.Now() // the sweep looks at it
			become(p)
			return false, nil, nil
		})
	}
	if err := b.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel() // nothing removes the pods of this cluster
		_ = b.Close(ctx)
	})
	return b, api
}

func runs(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.9", ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
}

func waits(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
	}
}

var small = backend.Spec{ID: "s1", MemoryBytes: 64 << 20, CPUCores: 1, MaxTasks: 32, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20}

// TestClaimOfAPod: a pod that runs is claimed, with its UID, and release removes it.
func TestClaimOfAPod(t *testing.T) {
	b, api := newFake(t, runs)
	c, err := b.provider.claim(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	if c.uid != "uid of "+c.name || c.ip != "10.0.0.9" || !c.ownUser {
		t.Errorf("got %+v", c)
	}
	if err = b.provider.release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if left := pods(t, api); len(left) != 0 {
		t.Errorf("got pods %v, want none", left)
	}
	if err = b.provider.release(t.Context(), c); err != nil {
		t.Errorf("a second release: %v", err)
	}
}

func pods(t *testing.T, api *fake.Clientset) []string {
	t.Helper()
	list, err := api.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// TestPodsThatDoNotStart: the error says why, what helps, and no pod is left.
func TestPodsThatDoNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		become        func(*corev1.Pod)
		message, hint string
	}{
		"image":   {waits("ImagePullBackOff", "back-off pulling image"), "ImagePullBackOff: back-off", "pull kube_image"},
		"config":  {waits("CreateContainerConfigError", "container has runAsNonRoot"), "runAsNonRoot", ""},
		"ended":   {func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }, "Evicted", ""},
		"deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, "is being deleted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, api := newFake(t, c.become)
			_, err := b.provider.claim(t.Context(), small)
			e := sandboxmcp.AsError(err)
			if err == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) {
				t.Errorf("got %v, want %q and the hint %q", err, c.message, c.hint)
			}
			if left := pods(t, api); len(left) != 0 {
				t.Errorf("got pods %v, want none", left)
			}
		})
	}
}

// TestPodsThatAreRefused: the API server's reasons lead to hints.
func TestPodsThatAreRefused(t *testing.T) {
	kind := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		hint string
	}{
		"quota":    {apierrors.NewForbidden(kind, "x", errors.New("exceeded quota: q, requested: pods=1")), "ResourceQuota"},
		"security": {apierrors.NewForbidden(kind, "x", errors.New(`violates PodSecurity "restricted:latest"`)), "pod security"},
		"rights":   {apierrors.NewForbidden(kind, "x", errors.New("user x cannot create resource pods")), "docs/kubernetes.md"},
		"missing":  {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, space), "kube_namespace"},
		"silent":   {errors.New("connection reset"), "kubectl get nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			b, api := newFake(t, nil)
			api.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			_, err := b.provider.claim(t.Context(), small)
			if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Hint, c.hint) {
				t.Errorf("got %v, want a hint on %q", err, c.hint)
			}
		})
	}
}

// TestUnscheduledPodsAreGivenUp: the end of the context ends the wait, says what the pod waited for, and removes it.
func TestUnscheduledPodsAreGivenUp(t *testing.T) {
	b, api := newFake(t, func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available"}}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.provider.claim(ctx, small)
	if err == nil || !strings.Contains(err.Error(), "0/2 nodes are available") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want what the pod waited for", err)
	}
	if left := pods(t, api); len(left) != 0 {
		t.Errorf("got pods %v, want none", left)
	}
}

// lossOf returns a loss of a pod and what it has said.
func lossOf() (*loss, *[]string) {
	var said []string
	return newLoss("first", func(why string) { said = append(said, why) }), &said
}

func podOf(uid string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(uid)}}
	runs(p)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if change != nil {
		change(p)
	}
	return p
}

// TestLossOfAPod: a sandbox is lost with its pod, its node, and when another pod has the name.
func TestLossOfAPod(t *testing.T) {
	notReady := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	for name, c := range map[string]struct {
		states []*corev1.Pod
		want   string
	}{
		"lives":      {[]*corev1.Pod{podOf("first", nil), podOf("first", nil)}, ""},
		"starts":     {[]*corev1.Pod{podOf("first", notReady), podOf("first", nil)}, ""},
		"deleted":    {[]*corev1.Pod{podOf("first", nil), nil}, "its pod was deleted"},
		"replaced":   {[]*corev1.Pod{podOf("first", nil), podOf("second", nil)}, "its pod was replaced by another"},
		"going":      {[]*corev1.Pod{podOf("first", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })}, "its pod is being deleted"},
		"node":       {[]*corev1.Pod{podOf("first", nil), podOf("first", notReady)}, "the node of its pod does not answer, or its container has ended"},
		"late other": {[]*corev1.Pod{podOf("first", func(p *corev1.Pod) { p.CreationTimestamp.Time = time.Unix(2, 0) }), podOf("older", func(p *corev1.Pod) { p.CreationTimestamp.Time = time.Unix(1, 0) })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, said := lossOf()
			for _, p := range c.states {
				l.see(p)
			}
			if got := strings.Join(*said, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestMemoryThatRanOutIsKnownAtTheEnd: the cluster says how a container ended.
func TestMemoryThatRanOutIsKnownAtTheEnd(t *testing.T) {
	l, _ := lossOf()
	l.see(podOf("first", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}
	}))
	if !outOfMemory(l.final(time.Minute)) {
		t.Error("got no end by the memory limit")
	}
}

// TestSweep: pods that have ended, or that no node takes, are removed after a time. Those of a claim are not. How long a pod waits is
// what this server has seen: one whose clock is fast removes no pod of another server.
func TestSweep(t *testing.T) {
	now := time.Now()
	make := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := podOf("uid of "+name, change)
		p.Name, p.Namespace, p.CreationTimestamp, p.Labels = name, space, metav1.NewTime(now.Add(-time.Hour)), map[string]string{labelManaged: managed, labelServer: "another"}
		if name == "young" {
			p.CreationTimestamp = metav1.NewTime(now)
		}
		return p
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	b, api := newFake(t, nil, make("ended", ended), make("young", ended), make("runs", nil), make("waits", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		make("claimed", func(p *corev1.Pod) {
			ended(p)
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Sandbox", Name: "x"}}
		}))
	b.end() // its own sweep
	b.background.Wait()
	b.life = t.Context()
	b.sweepOnce(now)
	testkit.UntilEqual(t, "pods that are left", "claimed runs waits young", func() string { return strings.Join(pods(t, api), " ") })
	b.sweepOnce(now.Add(pendingAge + time.Minute))
	testkit.UntilEqual(t, "pods that are left later", "claimed runs", func() string { return strings.Join(pods(t, api), " ") })
}

// TestSpecsThatAPoolExceeds: a pod of a pool is taken only if it may use no more than was asked for.
func TestSpecsThatAPoolExceeds(t *testing.T) {
	b := New(Config{Image: "image"})
	b.key = make([]byte, 64)
	s, err := shapeOf(b.newPod("x", small).Spec)
	if err != nil {
		t.Fatal(err)
	}
	if why := s.exceeds(small); why != "" {
		t.Errorf("its own spec: got %q", why)
	}
	for name, change := range map[string]func(*backend.Spec){
		"memory": func(s *backend.Spec) { s.MemoryBytes /= 2 }, "processors": func(s *backend.Spec) { s.CPUCores /= 2 },
		backend.WorkDir: func(s *backend.Spec) { s.WorkBytes /= 2 }, backend.TempDir: func(s *backend.Spec) { s.TempBytes /= 2 },
	} {
		less := small
		change(&less)
		if why := s.exceeds(less); !strings.HasPrefix(why, name) {
			t.Errorf("less of %s: got %q", name, why)
		}
	}
	unbounded := b.newPod("x", small).Spec
	unbounded.Volumes[1].EmptyDir.SizeLimit = nil
	if _, err = shapeOf(unbounded); err == nil {
		t.Error("a template without a size: got no error")
	}
}

// TestPodsFitTheRestrictedProfile: nothing of a pod needs more than the level restricted of pod security.
func TestPodsFitTheRestrictedProfile(t *testing.T) {
	b := New(Config{Image: "image"})
	b.key = make([]byte, 64)
	p := b.newPod("x", small).Spec
	c := p.Containers[0].SecurityContext
	if !*p.SecurityContext.RunAsNonRoot || *p.SecurityContext.RunAsUser < firstUser || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Add) > 0 || c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("got %+v %+v", p.SecurityContext, c)
	}
	if *p.AutomountServiceAccountToken || *p.EnableServiceLinks || p.HostNetwork || p.HostPID || p.HostIPC || p.ActiveDeadlineSeconds == nil || p.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("got %+v", p)
	}
	if one, two := *b.newPod("x", small).Spec.SecurityContext.RunAsUser, *b.newPod("y", small).Spec.SecurityContext.RunAsUser; one == two {
		t.Errorf("two pods have the user %d", one)
	}
}

// TestLimitsAreReadInThePod: a limit is reported only if the pod shows it.
func TestLimitsAreReadInThePod(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		walls string
	}{
		"version 2": {map[string]string{"memory.max": "67108864\n", "cpu.max": "100000 100000\n", "pids.max": "max\n"}, "memory limit (cgroup v2), cpu quota (cgroup v2)"},
		"no limits": {map[string]string{"memory.max": "max\n", "cpu.max": "max 100000\n", "pids.max": "max\n"}, ""},
		"version 1": {map[string]string{"memory/memory.limit_in_bytes": "67108864", "cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000", "pids/pids.max": "32"}, "memory limit (cgroup v1), cpu quota (cgroup v1), task limit (cgroup v1)"},
		"more":      {map[string]string{"memory.max": "134217728\n", "cpu.max": "200000 100000\n"}, ""},
		"none":      {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := readLimits(t.Context(), filesOf(c.files, new(int)))
			walls, weak := l.walls(small)
			if got := strings.Join(walls, ", "); got != c.walls {
				t.Errorf("got %q, want %q", got, c.walls)
			}
			if (len(weak) == 0) != (c.walls != "") {
				t.Errorf("got weak %v", weak)
			}
		})
	}
}

// TestSwapBesidesTheLimitIsTold: a limit of memory that leaves programs the node's swap is not the whole limit.
func TestSwapBesidesTheLimitIsTold(t *testing.T) {
	const some, none = "MemTotal: 1024 kB\nSwapCached: 0 kB\nSwapTotal: 1024 kB\n", "MemTotal: 1024 kB\nSwapTotal: 0 kB\n"
	for name, c := range map[string]struct {
		info  string
		files map[string]string
		want  bool
	}{
		"version 2, no swap for pods":   {some, map[string]string{"memory.max": "67108864\n", "memory.swap.max": "0\n"}, false},
		"version 2, a share of it":      {some, map[string]string{"memory.max": "67108864\n", "memory.swap.max": "4096\n"}, true},
		"version 2, no limit":           {some, map[string]string{"memory.max": "67108864\n", "memory.swap.max": "max\n"}, true},
		"version 2, it is not counted":  {some, map[string]string{"memory.max": "67108864\n"}, true},
		"version 2, a node without":     {none, map[string]string{"memory.max": "67108864\n", "memory.swap.max": "max\n"}, false},
		"version 1, one limit for both": {some, map[string]string{"memory/memory.limit_in_bytes": "67108864\n", "memory/memory.memsw.limit_in_bytes": "67108864\n"}, false},
		"version 1, no limit":           {some, map[string]string{"memory/memory.limit_in_bytes": "67108864\n", "memory/memory.memsw.limit_in_bytes": "9223372036854771712\n"}, true},
		"version 1, it is not counted":  {some, map[string]string{"memory/memory.limit_in_bytes": "67108864\n"}, true},
		"no control groups":             {some, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{memInfo: c.info}
			maps.Copy(files, c.files)
			_, weak := readLimits(t.Context(), filesOf(files, new(int))).walls(small)
			if got := slices.Contains(weak, weakSwap); got != c.want {
				t.Errorf("got weak %v, want %q: %v", weak, weakSwap, c.want)
			}
		})
	}
}

// filesOf returns a function that reads files of a control group and counts its calls.
func filesOf(files map[string]string, calls *int) textsOf {
	return func(_ context.Context, names ...string) ([][]byte, error) {
		*calls++
		all := make([][]byte, len(names))
		for i, name := range names {
			if text, ok := files[strings.TrimPrefix(name, "/sys/fs/cgroup/")]; ok {
				all[i] = []byte(text)
			}
		}
		return all, nil
	}
}

// TestUsageIsReadAtOnce: the usage of a pod is read with one packet. Files that a kernel lacks are left out.
func TestUsageIsReadAtOnce(t *testing.T) {
	whole := map[string]string{"memory.peak": "4096\n", "memory.current": "8192\n", "pids.peak": "3\n", "pids.current": "2\n", "memory.events": "low 0\noom 2\noom_kill 1\n", "cpu.stat": "usage_usec 1500\nuser_usec 1000\n"}
	old := maps.Clone(whole)
	delete(old, "memory.peak")
	delete(old, "pids.peak")
	for name, c := range map[string]struct {
		version int
		files   map[string]string
		want    backend.Usage
		fails   bool
	}{
		"version 2": {2, whole, backend.Usage{PeakMemory: 8192, PeakTasks: 3, OOMKills: 1, CPU: 1500 * time.Microsecond}, false},
		"older":     {2, old, backend.Usage{PeakMemory: 8192, PeakTasks: 2, OOMKills: 1, CPU: 1500 * time.Microsecond}, false},
		"version 1": {1, map[string]string{"memory/memory.max_usage_in_bytes": "4096", "memory/memory.oom_control": "under_oom 0\noom_kill 2\n", "cpuacct/cpuacct.usage": "70"}, backend.Usage{PeakMemory: 4096, OOMKills: 2, CPU: 70}, false},
		"none":      {2, nil, backend.Usage{}, true},
		"not shown": {0, nil, backend.Usage{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			got, err := readUsage(t.Context(), c.version, filesOf(c.files, &calls))
			if !reflect.DeepEqual(got, c.want) || (err != nil) != c.fails || calls > 1 {
				t.Errorf("got %+v, %v with %d calls, want %+v with one", got, err, calls, c.want)
			}
		})
	}
}

// TestUsersOfPodsAreToldAsTheyAre: a user namespace of the node is not the pod's own, and a limit of tasks that was not set is
// no wall.
func TestUsersOfPodsAreToldAsTheyAre(t *testing.T) {
	const machines, nodes = "0 0 4294967295", "0 100000 65536"
	for name, c := range map[string]struct {
		ownUsers, ownUser, space bool
		userMap                  string
		uid                      int
		walls, weak              []string
	}{
		"a pod of a pool":                         {false, false, false, machines, 5000, nil, []string{weakTasks, weakUser}},
		"a pod of a pool, on a rootless node":     {false, false, false, nodes, 5000, nil, []string{weakTasks, weakUser}},
		"a pod with a user of its own":            {false, true, false, machines, 1 << 20, []string{wallRlimit}, []string{weakUser}},
		"a pod with a user namespace":             {true, true, true, nodes, programUser, []string{wallUserNS, wallRlimit}, nil},
		"a user namespace that was not asked for": {true, false, false, machines, programUser, nil, []string{weakTasks, weakUserNS}},
		"a user namespace that was not made":      {true, true, true, machines, programUser, []string{wallRlimit}, []string{weakUserNS}},
		"a pool whose pods lend no second user":   {true, false, true, nodes, 5000, []string{wallUserNS, wallRlimit}, []string{weakUser}},
		"a pool without them, on a rootless node": {true, false, false, nodes, 5000, nil, []string{weakTasks, weakUser, weakUserNS}},
	} {
		x := &box{b: New(Config{OwnUsers: c.ownUsers}), spec: backend.Spec{MaxTasks: 8}, pod: &claimed{ownUser: c.ownUser, userSpace: c.space}, userMap: c.userMap}
		iso := x.report(t.Context(), relay.Seen{UID: c.uid})
		for _, w := range []string{wallUserNS, wallRlimit} {
			if got, want := slices.Contains(iso.Walls, w), slices.Contains(c.walls, w); got != want {
				t.Errorf("%s: got the wall %q: %v, want %v", name, w, got, want)
			}
		}
		for _, w := range []string{weakTasks, weakUser, weakUserNS} {
			if got, want := slices.Contains(iso.Weak, w), slices.Contains(c.weak, w); got != want {
				t.Errorf("%s: got %q: %v, want %v", name, w, got, want)
			}
		}
	}
}

// TestANodeThatHasAnotherKernelIsAskedAgain: after a node has started with another kernel, its pods have no kernel of their
// own. A server that may not read nodes takes no kernel for the pod's own.
func TestANodeThatHasAnotherKernelIsAskedAgain(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	b, api := newFake(t, nil, node)
	pod := &claimed{node: "n1", runtime: true} // of a pool, whose template names it
	for _, c := range []struct {
		node, pod string
		want      sandboxmcp.Tier
	}{{"6.1.0", "6.1.0", sandboxmcp.TierL1}, {"6.12.0", "6.12.0", sandboxmcp.TierL1}, {"6.12.0", "4.19.0-gvisor", sandboxmcp.TierL4}} {
		node.Status.NodeInfo.KernelVersion = c.node
		if _, err := api.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		x := &box{b: b, pod: pod, nodeKernel: b.kernelOf(t.Context(), pod)}
		iso := x.report(t.Context(), relay.Seen{Kernel: c.pod + " #1"})
		if own := slices.ContainsFunc(iso.Walls, func(w string) bool { return strings.HasPrefix(w, "kernel of its own") }); iso.Tier != c.want || own != (c.want == sandboxmcp.TierL4) {
			t.Errorf("a pod with the kernel %s on a node with %s: got tier %s and walls %v, want %s", c.pod, c.node, iso.Tier, iso.Walls, c.want)
		}
	}
	api.PrependReactor("get", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no right"))
	})
	x := &box{b: b, pod: pod, nodeKernel: b.kernelOf(t.Context(), pod)}
	if iso := x.report(t.Context(), relay.Seen{Kernel: "4.19.0-gvisor #1"}); iso.Tier != sandboxmcp.TierL1 || !slices.Contains(iso.Weak, weakCompare) {
		t.Errorf("without the right: got tier %s and %v", iso.Tier, iso.Weak)
	}
}

// TestAKernelOfItsOwnNeedsARuntimeClass: a node that is another cluster's tells a kernel that is not that of its pods, although these
// share one.
func TestAKernelOfItsOwnNeedsARuntimeClass(t *testing.T) {
	for _, class := range []*string{nil, new("gvisor")} {
		x := &box{b: New(Config{Pool: "pool"}), pod: claimedOf(&corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: class}}), nodeKernel: "6.1.0"}
		if iso := x.report(t.Context(), relay.Seen{Kernel: "6.12.0 #1"}); (iso.Tier == sandboxmcp.TierL4) != (class != nil) {
			t.Errorf("with the RuntimeClass %v: got tier %s", class, iso.Tier)
		}
	}
}

// TestAPodWithoutAUserNamespaceHasNoUserOfItsOwn: an API server that does not know hostUsers drops it. All such pods then have the
// same user.
func TestAPodWithoutAUserNamespaceHasNoUserOfItsOwn(t *testing.T) {
	for _, drops := range []bool{false, true} {
		b, _ := newFake(t, func(p *corev1.Pod) {
			runs(p)
			if drops {
				p.Spec.HostUsers = nil
			}
		})
		b.cfg.OwnUsers = true
		c, err := b.provider.claim(t.Context(), small)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&box{b: b, pod: c}).userOfOthers(); got != drops {
			t.Errorf("the field is dropped: %v; got that others have the user: %v", drops, got)
		}
	}
}

// TestTheNetworkIsClosedWithoutIPv6: the canary tries IPv4, so the wall also needs that programs have no IPv6.
func TestTheNetworkIsClosedWithoutIPv6(t *testing.T) {
	for _, six := range []bool{true, false} {
		x := &box{b: New(Config{}), pod: &claimed{}, closed: closedSeen}
		iso := x.report(t.Context(), relay.Seen{Network: sandboxmcp.WallNoNetwork, NoIPv6: !six})
		if slices.Contains(iso.Walls, sandboxmcp.WallNoNetwork) == six || slices.Contains(iso.Weak, weakSix) != six {
			t.Errorf("programs with IPv6: %v; got walls %v and weak %v", six, iso.Walls, iso.Weak)
		}
	}
}

// TestTheClusterResolverIsTried: a pod that reaches the cluster's DNS server is not closed.
func TestTheClusterResolverIsTried(t *testing.T) {
	c := newCanary("https://10.0.0.1:6443", nil)
	c.addResolvers("# comment\nsearch svc.cluster.local\nnameserver 10.96.0.10\nnameserver 127.0.0.53\nnameserver fd00::a\nnameserver\noptions ndots:5\n")
	want := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("10.96.0.10:53")}
	if !slices.Equal(c.targets, want) {
		t.Errorf("got %v, want %v", c.targets, want)
	}
	if !slices.Contains(c.resolvers, want[1]) || slices.Contains(c.resolvers, want[0]) {
		t.Errorf("got the resolvers %v, want %v among them", c.resolvers, want[1])
	}
}

// TestLabelsAreLegal: every id of a sandbox can be a label.
func TestLabelsAreLegal(t *testing.T) {
	for id, want := range map[string]string{"": "", "a": "a", "a-b_c": "a-b_c", "-a": "s-s", "a_": "sas", strings.Repeat("x", 100): strings.Repeat("x", 62)} {
		if got := label(id); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}
