package docker

import (
	"encoding/json"
	"maps"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// The container's view of its door, and its first program; jail.ContainerDir and jail.ContainerInit
// where package jail exists.
const (
	doorDir  = "/.sandboxmcp"
	doorInit = doorDir + "/init"
)

// networkSettings are kernel parameters of a container's own network namespace. Programs cannot
// listen below port 1024, where the server's sockets are. The others bound memory that no control
// group is charged for.
var networkSettings = map[string]string{
	"net.ipv4.ip_unprivileged_port_start": "1024",
	"net.ipv4.ping_group_range":           "1 0",
	"net.ipv4.tcp_rmem":                   "4096 16384 262144",
	"net.ipv4.tcp_wmem":                   "4096 16384 262144",
	"net.core.somaxconn":                  "128",
	"net.ipv4.tcp_max_tw_buckets":         "1024",
}

// ulimits are the limits that init sets as well, which it cannot raise.
func ulimits() (all []dockerapi.Ulimit) {
	for _, l := range bounds.Rlimits {
		all = append(all, dockerapi.Ulimit{Name: l.Name, Soft: l.Value, Hard: l.Value})
	}
	return all
}

// maskedPaths returns the files of /proc and /sys that a container does not see: the engine's defaults,
// all of /sys, and what every sandbox covers, see package bounds. An engine leaves out those that are not
// there.
func maskedPaths() []string {
	all := []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys", bounds.LockList, bounds.LongList,
	}
	for _, list := range bounds.HostLists {
		all = append(all, "/proc/"+list)
	}
	return append(all, bounds.KeyLists[:]...)
}

// readonlyPaths are files of /proc that a container sees and cannot write to.
var readonlyPaths = []string{"/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// options returns the container of a sandbox. door is the directory of its init.
func options(spec process.ContainerSpec, image, owner, door, profile string) dockerapi.Container {
	uid := strconv.Itoa(spec.UID)
	mounts := []dockerapi.Mount{bind(door, doorDir)}
	for _, t := range spec.Trees {
		mounts = append(mounts, bind(t.Host, t.At()))
	}
	return dockerapi.Container{
		Image: image, User: uid + ":" + uid, // the image need not know it
		Hostname: "sandbox", WorkingDir: "/",
		Entrypoint: []string{doorInit}, Cmd: []string{}, Env: []string{},
		Labels:      map[string]string{labelOwner: owner, labelSandbox: spec.ID},
		Healthcheck: &dockerapi.Healthcheck{Test: []string{"NONE"}},
		HostConfig: dockerapi.HostConfig{
			NetworkMode: "none", IpcMode: "none", CgroupnsMode: "private", Runtime: "runc",
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges", "seccomp=" + profile},
			ReadonlyRootfs: true, MaskedPaths: maskedPaths(), ReadonlyPaths: readonlyPaths,
			Tmpfs: spec.Tmpfs, Mounts: mounts, Sysctls: maps.Clone(networkSettings),
			LogConfig: dockerapi.LogConfig{Type: "none"}, AutoRemove: true, OomScoreAdj: 1000,
			Memory: spec.MemoryBytes, MemorySwap: spec.MemoryBytes, NanoCPUs: int64(spec.CPUCores * 1e9), PidsLimit: int64(spec.MaxTasks),
			Ulimits: ulimits(),
		},
	}
}

func bind(host, inside string) dockerapi.Mount {
	return dockerapi.Mount{Type: "bind", Source: host, Target: inside, ReadOnly: true, BindOptions: &dockerapi.BindOptions{Propagation: "rprivate"}}
}

// initCalls are system calls that init makes before it loads its own filter.
var initCalls = []string{"seccomp", "signalfd4", "setsid", "capset", "prctl", "clone", "socket", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}

// profile returns the seccomp profile of every container: the system calls of package seccomp by
// name. Init then loads the filter of that package, which also looks at arguments.
func profile() (string, error) {
	arch, _ := seccomp.Native()
	allowed, refused, err := seccomp.Names(seccomp.New(seccomp.Variant{}), arch)
	if err != nil {
		return "", err
	}
	type rule struct {
		Names    []string `json:"names"`
		Action   string   `json:"action"`
		ErrnoRet uint     `json:"errnoRet,omitempty"`
	}
	const enosys = 38
	text, err := json.Marshal(struct {
		DefaultAction   string   `json:"defaultAction"`
		DefaultErrnoRet uint     `json:"defaultErrnoRet"`
		Architectures   []string `json:"architectures"`
		Syscalls        []rule   `json:"syscalls"`
	}{
		"SCMP_ACT_ERRNO", enosys,
		[]string{map[seccomp.Arch]string{seccomp.AMD64: "SCMP_ARCH_X86_64", seccomp.ARM64: "SCMP_ARCH_AARCH64"}[arch]},
		[]rule{{append(allowed, initCalls...), "SCMP_ACT_ALLOW", 0}, {refused, "SCMP_ACT_ERRNO", 1}},
	})
	return string(text), err
}

// missing returns the first tree that is no plain path for a mount of an engine.
func missing(trees []backend.Tree) string {
	for _, t := range trees {
		if strconv.Quote(t.Host) != `"`+t.Host+`"` {
			return t.Host
		}
	}
	return ""
}
