package docker

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

const workspaceDir = process.WorkspaceDir

// seenWalls returns the walls that were seen from inside.
func seenWalls(seen relay.Seen, spec backend.Spec) []string {
	walls := []string{}
	add := func(wall string, stands bool) {
		if stands {
			walls = append(walls, wall)
		}
	}
	add(relay.WallNoCaps, seen.NoRights())
	add(relay.WallUnpriv, seen.Unprivileged(seen.UID))
	add(relay.WallNNP, seen.NoNewPrivs)
	add(relay.WallSeccomp, seen.Filtered && seen.Refused)
	add(relay.WallNoVsock, seen.NoVsock)
	add(relay.WallRoot, seen.ReadOnly)
	bytes, _ := seen.Bounded(spec)
	add(relay.WallQuota, bytes)
	add(seen.Network, seen.NoInterface)
	if seen.Landlock > 0 {
		add(fmt.Sprintf("%s (ABI %d)", relay.WallLandlock, seen.Landlock), true)
	}
	return walls
}

// lacks returns a wall that every sandbox needs and this one does not have.
func lacks(walls []string) string {
	for _, w := range []string{relay.WallNoCaps, relay.WallUnpriv, relay.WallNNP, relay.WallSeccomp, relay.WallNoVsock, relay.WallRoot, relay.WallQuota} {
		if !slices.Contains(walls, w) {
			return w
		}
	}
	if !slices.Contains(walls, sandboxmcp.WallNoNetwork) {
		return sandboxmcp.WallNoNetwork
	}
	return ""
}

func addresses(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

// containerSpec describes the container of a sandbox of the relay. /run and the directory of the
// server's files are root's, and the others belong to programs.
func (b *Relayed) containerSpec(spec backend.Spec, uid int) process.ContainerSpec {
	return process.ContainerSpec{
		ID: spec.ID, UID: uid, MemoryBytes: spec.MemoryBytes, CPUCores: spec.CPUCores, MaxTasks: spec.MaxTasks + b.cfg.runtimeTasks(),
		Tmpfs: relay.Tmpfs(spec, uid),
	}
}

// runtimeTasks are tasks of a container besides those of its programs: the relay. A runtime with a kernel of
// its own needs several tasks of the machine for each of a program.
func (c Config) runtimeTasks() int {
	if c.ownKernel() {
		return 512
	}
	return 1
}

// user returns the user of the programs of a sandbox. Probably no other process of the engine's machine has
// it: a kernel that sandboxes share counts some objects by user. An engine that maps users has only the
// first 65,536.
func (e *Engine) user() int {
	const firstMapped, first = 2000, 1 << 30
	var b [4]byte
	rand.Read(b[:]) // never fails
	n := int(binary.LittleEndian.Uint32(b[:]) % first)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.maps {
		return firstMapped + n%(1<<16-1-firstMapped)
	}
	return first + n
}
