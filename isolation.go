package sandboxmcp

import "slices"

// Tier is the overall strength of a sandbox's isolation.
type Tier string

// The tiers, strongest first.
const (
	TierL4 Tier = "L4" // a kernel of its own: gVisor, Kata, a microVM
	TierL3 Tier = "L3" // L2, with unused host user ids and limits enforced by cgroups (needs root)
	TierL2 Tier = "L2" // all namespaces, own root, Landlock, seccomp, no capabilities (needs unprivileged user namespaces)
	TierL1 Tier = "L1" // Landlock and seccomp only
	TierL0 Tier = "L0" // no isolation
)

var tierOrder = []Tier{TierL0, TierL1, TierL2, TierL3, TierL4}

// AtLeast reports whether t is as strong as minimum.
func (t Tier) AtLeast(minimum Tier) bool {
	return slices.Index(tierOrder, t) >= slices.Index(tierOrder, minimum)
}

// Walls of a sandbox that has no network interface. Each of them replaces the one before.
const (
	WallNoNetwork = "no network"
	WallTold      = "no network (attempts are refused and told)"         // the server has sockets in the sandbox that refuse everything
	WallToldNames = "no network (attempts by name are refused and told)" // the same, where the server does not hear of attempts to reach addresses
	WallEgress    = "no network but egress"                              // open hosts can be reached through the server
)

// Isolation lists the walls of a run, as observed on the running sandbox.
type Isolation struct {
	Tier         Tier     `json:"tier"`
	Backend      string   `json:"backend"`
	Walls        []string `json:"walls"`
	Weak         []string `json:"weak"`   // limits and walls that are not or only partly enforced, in words
	Kernel       string   `json:"kernel"` // release of the kernel
	PolicySHA256 string   `json:"policy_sha256"`
}
