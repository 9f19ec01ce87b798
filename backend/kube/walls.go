package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// Walls that are observed in a pod, by the names of package jail and package cgroup.
const (
	wallUserNS = "user namespace"
	wallCPU    = "cpu quota"
	wallRlimit = "task limit (rlimit)"
)

// required lists the walls that every sandbox needs.
var required = []string{relay.WallNoCaps, relay.WallUnpriv, relay.WallNNP, relay.WallSeccomp, relay.WallNoVsock, relay.WallRoot}

const (
	weakOpen     = "network: no NetworkPolicy closes it; the pod reaches "
	weakPolicy   = "network: the policy that agent-sandbox makes for the pool's template lets programs reach addresses"
	weakOthers   = "network: programs reach what other containers of the pod offer at 127.0.0.1: "
	weakMounts   = "files: programs see what else is mounted in the pod: "
	weakSix      = "network: programs can make sockets of IPv6, which was not tried"
	weakUnproven = "network: that it is closed could not be shown, because the server reaches no address to try"
	weakProgram  = "program files: programs can change them, because the kernel has no Landlock"
	weakProxy    = "egress: only programs that use the proxy variables reach open hosts"
	weakSwap     = "memory: programs can use swap of the node besides the limit"
	weakTasks    = "tasks: not limited by the sandbox, because other pods may have its user; the kubelet's podPidsLimit holds"
	weakUser     = "user: programs have the user of the pod's first process, which the kernel protects as process 1"
	weakUserNS   = "user namespace: the pod has none of its own, although kube_host_users is false"
	weakQuota    = "disk quota: the files of the pod's template may be larger than was asked for"
	weakKernel   = "kernel: that of the node; namespaces are the runtime's, and not observed"
	weakObjects  = "file locks, watches and other kernel objects: not counted; only the memory limit bounds what the kernel charges for them"
	weakLists    = "proc: lists of the node's locks, file systems and kernel symbols can be read"
	weakCompare  = "kernel: it cannot be compared with the node's, because the server may not read nodes"
)

// limits are those of a pod's container, as its control group shows them in the pod.
type limits struct {
	version int // of control groups; 0: they are not shown
	memory  int64
	tasks   int64
	cpu     float64 // processors
	swap    bool    // programs may use swap besides
}

// textsOf reads the first KiB of several files of a pod, see [relay.Sandbox.Texts].
type textsOf func(ctx context.Context, names ...string) ([][]byte, error)

const memInfo = "/proc/meminfo"

// group reads files of a pod's control group, and memInfo. It returns the words of each by its name. A file that cannot be read is
// missing.
func group(ctx context.Context, read textsOf, names ...string) (map[string][]string, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		if paths[i] = name; name != memInfo {
			paths[i] = "/sys/fs/cgroup/" + name
		}
	}
	texts, err := read(ctx, paths...)
	words := map[string][]string{}
	for i, text := range texts {
		if text != nil {
			words[names[i]] = strings.Fields(string(text))
		}
	}
	return words, err
}

// readLimits reads the limits of a pod's container. Programs can read the files, and not write them.
func readLimits(ctx context.Context, read textsOf) limits {
	f, err := group(ctx, read, "memory.max", "pids.max", "cpu.max", "memory/memory.limit_in_bytes", "pids/pids.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us",
		"memory.swap.max", "memory/memory.memsw.limit_in_bytes", memInfo)
	if err != nil {
		return limits{}
	}
	var l limits
	var quota, period int64
	switch {
	case f["memory.max"] != nil:
		l = limits{version: 2, memory: number(f["memory.max"], 0), tasks: number(f["pids.max"], 0)}
		quota, period = number(f["cpu.max"], 0), number(f["cpu.max"], 1)
	case f["memory/memory.limit_in_bytes"] != nil:
		l = limits{version: 1, memory: number(f["memory/memory.limit_in_bytes"], 0), tasks: number(f["pids/pids.max"], 0)}
		quota, period = number(f["cpu/cpu.cfs_quota_us"], 0), number(f["cpu/cpu.cfs_period_us"], 0)
	}
	if quota > 0 && period > 0 {
		l.cpu = float64(quota) / float64(period)
	}
	l.swap = l.memory > 0 && l.swaps(f)
	return l
}

// swaps reports whether a pod may use swap besides the memory that its limit allows.
func (l limits) swaps(f map[string][]string) bool {
	i := slices.Index(f[memInfo], "SwapTotal:")
	if i < 0 || number(f[memInfo], i+1) == 0 { // the node has none
		return false
	}
	if l.version == 1 {
		both := number(f["memory/memory.memsw.limit_in_bytes"], 0)
		return both == 0 || both > l.memory
	}
	return !slices.Equal(f["memory.swap.max"], []string{"0"})
}

// number returns a number of a list; 0: there is none, as for "max".
func number(f []string, i int) int64 {
	if i >= len(f) {
		return 0
	}
	n, err := strconv.ParseInt(f[i], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// walls returns the limits of a spec that hold.
func (l limits) walls(spec backend.Spec) (walls, weak []string) {
	holds := func(name, short string, ok bool) {
		if ok {
			walls = append(walls, fmt.Sprintf("%s (cgroup v%d)", name, l.version))
		} else {
			weak = append(weak, short+": no limit was seen in the pod")
		}
	}
	const page = 64 << 10 // the kernel rounds
	holds(relay.WallMemory, "memory", l.memory > 0 && l.memory <= spec.MemoryBytes+page)
	if l.swap {
		weak = append(weak, weakSwap)
	}
	holds(wallCPU, "cpu", l.cpu > 0 && l.cpu <= spec.CPUCores+0.01)
	if l.tasks > 0 && l.tasks <= int64(spec.MaxTasks)+8 {
		walls = append(walls, fmt.Sprintf("%s (cgroup v%d)", relay.WallTasks, l.version))
	}
	return walls, weak
}

// usageFiles lists what readUsage reads, by version of control groups.
var usageFiles = map[int][]string{
	1: {"memory/memory.max_usage_in_bytes", "pids/pids.current", "memory/memory.oom_control", "cpuacct/cpuacct.usage"},
	2: {"memory.peak", "memory.current", "pids.peak", "pids.current", "memory.events", "cpu.stat"},
}

// readUsage reads what a pod's container has used.
func readUsage(ctx context.Context, version int, read textsOf) (backend.Usage, error) {
	f, err := group(ctx, read, usageFiles[version]...)
	if err != nil {
		return backend.Usage{}, err
	}
	named := func(file, name string) int64 {
		if i := slices.Index(f[file], name); i >= 0 {
			return number(f[file], i+1)
		}
		return 0
	}
	var u backend.Usage
	switch version {
	case 2:
		u.PeakMemory = max(number(f["memory.peak"], 0), number(f["memory.current"], 0))
		u.PeakTasks = int(max(number(f["pids.peak"], 0), number(f["pids.current"], 0)))
		u.OOMKills = int(named("memory.events", "oom_kill"))
		u.CPU = time.Duration(named("cpu.stat", "usage_usec")) * time.Microsecond
	case 1:
		u.PeakMemory = number(f["memory/memory.max_usage_in_bytes"], 0)
		u.PeakTasks = int(number(f["pids/pids.current"], 0))
		u.OOMKills = int(named("memory/memory.oom_control", "oom_kill"))
		u.CPU = time.Duration(number(f["cpuacct/cpuacct.usage"], 0))
	}
	if u.PeakMemory == 0 && len(f) < len(usageFiles[version]) { // a kernel may lack files, but not all of those of memory
		return u, errors.New("its control group cannot be read")
	}
	return u, nil
}

// report reports the walls of a sandbox that were observed.
func (x *box) report(ctx context.Context, seen relay.Seen) sandboxmcp.Isolation {
	spec := x.spec
	release, _, _ := strings.Cut(seen.Kernel, " ")
	iso := sandboxmcp.Isolation{Backend: Name, Kernel: release, Tier: sandboxmcp.TierL1, PolicySHA256: x.policy(), Walls: []string{}, Weak: []string{}}
	add := func(wall string, stands bool) {
		if stands {
			iso.Walls = append(iso.Walls, wall)
		}
	}
	weak := func(text string, is bool) {
		if is {
			iso.Weak = append(iso.Weak, text)
		}
	}
	own := x.b.cfg.OwnUsers && x.pod.userSpace && x.ownUsers(ctx) // if the pod has none, the map may be that of the node's kubelet
	add(relay.WallNoCaps, seen.NoRights())
	add(relay.WallUnpriv, seen.Unprivileged(seen.UID) && seen.UID != 0)
	add(relay.WallNNP, seen.NoNewPrivs)
	add(relay.WallSeccomp, seen.Filtered && seen.Refused)
	add(relay.WallNoVsock, seen.NoVsock)
	add(relay.WallRoot, seen.ReadOnly)
	add(wallUserNS, own)
	add(fmt.Sprintf("%s (ABI %d)", relay.WallLandlock, seen.Landlock), seen.Landlock > 0)
	bytes, files := seen.Bounded(spec)
	add(relay.WallQuota, bytes)
	others := x.others()
	add(seen.Network, x.closed == closedSeen && seen.NoIPv6 && len(others) == 0 && !x.pod.opened) // the canary tries IPv4
	held, lacking := x.limits.walls(spec)
	iso.Walls = append(iso.Walls, held...)
	iso.Weak = append(iso.Weak, lacking...)
	limited := spec.MaxTasks > 0 && !x.userOfOthers()
	add(wallRlimit, limited)
	weak(weakTasks, !limited)
	weak(weakOpen+x.openings(), x.closed == closedNot)
	weak(weakPolicy, x.pod.opened)
	weak(weakOthers+strings.Join(others, ", "), len(others) > 0)
	weak(weakMounts+strings.Join(x.pod.mounts, ", "), len(x.pod.mounts) > 0)
	weak(weakSix, x.closed == closedSeen && !seen.NoIPv6)
	weak(weakUnproven, x.closed == closedUnknown)
	weak(weakProgram, !seen.Kept)
	weak(weakProxy+" (the pod lends no right to make addresses)", seen.UID != programUser || !x.b.cfg.OwnUsers)
	weak(weakUser, seen.UID != programUser || !x.b.cfg.OwnUsers)
	weak(weakUserNS, x.b.cfg.OwnUsers && !own)
	iso.Weak = append(iso.Weak, seen.WeakDisks()...)
	weak(weakQuota, !bytes && len(seen.Disks) == 0)
	weak(relay.WeakFiles, bytes && !files)
	weak(weakObjects, true)
	switch x.kernelOfItsOwn(seen) {
	case kernelOwn:
		iso.Tier = sandboxmcp.TierL4
		iso.Walls = append(iso.Walls, "kernel of its own ("+seen.Kernel+")")
	case kernelNodes:
		iso.Weak = append(iso.Weak, weakKernel, weakLists)
	default:
		iso.Weak = append(iso.Weak, weakKernel, weakLists)
		weak(weakCompare, x.pod.runtime)
	}
	return iso
}

// others returns the names of the containers that run beside that of the sandbox now. A debugger can add one to a running pod.
func (x *box) others() []string {
	if x.loss != nil {
		if now := x.loss.now(); now != nil {
			return others(now.Spec)
		}
	}
	return x.pod.others
}

const (
	kernelUnknown = iota
	kernelNodes
	kernelOwn
)

// kernelOfItsOwn compares the kernel of the pod with that of its node.
func (x *box) kernelOfItsOwn(seen relay.Seen) int {
	release, _, _ := strings.Cut(seen.Kernel, " ")
	switch {
	case x.nodeKernel == "" || release == "" || !x.pod.runtime: // a node of another kind may tell any kernel, such as that of its own program
		return kernelUnknown
	case release == x.nodeKernel:
		return kernelNodes
	default:
		return kernelOwn
	}
}

// userOfOthers reports whether other pods of the node may have the user of the pod's programs, so that the number of tasks is
// not limited by user.
func (x *box) userOfOthers() bool { return !x.pod.ownUser && (!x.b.cfg.OwnUsers || !x.pod.userSpace) }

// ownUsers reports whether the pod has a user namespace: its users are others on the node.
func (x *box) ownUsers(ctx context.Context) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.userMap == "" {
		text, err := x.sandbox.Text(ctx, "/proc/self/uid_map")
		if err != nil {
			return false
		}
		x.userMap = strings.Join(strings.Fields(text), " ")
	}
	return x.userMap != "" && !strings.HasPrefix(x.userMap, "0 0 ")
}

// openings says what the pod reaches, without addresses of the cluster, which are in the server's log.
func (x *box) openings() string {
	var list []string
	for _, at := range x.reached {
		switch {
		case slices.Contains(metadata, at):
			list = append(list, "the cloud's metadata at "+at.String())
		case at == internet:
			list = append(list, "the internet")
		case at.Port() == dnsPort:
			list = append(list, "a DNS server")
		case at.Addr() == x.pod.host:
			list = append(list, fmt.Sprintf("its node at port %d", at.Port()))
		case at.Port() == agent.Port:
			list = append(list, "other pods of sandboxes")
		default:
			list = append(list, "the cluster or an address of kube_canary")
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

// policy is the digest of the walls that pods are given.
func (x *box) policy() string {
	h := sha256.Sum256(fmt.Appendf(nil, "kube %q %t", x.b.cfg.RuntimeClass, x.b.cfg.OwnUsers))
	return hex.EncodeToString(h[:])
}

// lacks returns a wall that a sandbox needs and does not have. Tier L0 does without that of the network.
func lacks(iso sandboxmcp.Isolation, minimum sandboxmcp.Tier) string {
	for _, w := range required {
		if !slices.Contains(iso.Walls, w) {
			return w
		}
	}
	if minimum == sandboxmcp.TierL0 {
		return ""
	}
	for _, w := range []string{sandboxmcp.WallNoNetwork, sandboxmcp.WallToldNames, sandboxmcp.WallEgress} {
		if slices.Contains(iso.Walls, w) {
			return ""
		}
	}
	return sandboxmcp.WallNoNetwork
}
