package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Checks builds a trial sandbox and reports each wall. For a missing one it reports the reason and
// the fix.
func (b *Backend) Checks(ctx context.Context) []sandboxmcp.Check {
	spec := trialSpec("doctor")
	spec.MinTier = sandboxmcp.TierL1
	sb, err := b.Open(ctx, spec)
	if err != nil {
		e := sandboxmcp.AsError(err)
		return []sandboxmcp.Check{{Name: "sandbox", Needed: true, Detail: e.Message, Fix: fixFor(e.Message)}}
	}
	defer func() { _ = sb.Close(ctx) }()
	iso, err := sb.Isolation(ctx)
	if err != nil {
		return []sandboxmcp.Check{{Name: "sandbox", Needed: true, Detail: err.Error(), Fix: "report it: a sandbox was built but could not be looked at"}}
	}
	s, ok := sb.(*sandbox)
	if !ok {
		return nil
	}
	checks := []sandboxmcp.Check{{Name: "isolation tier", Needed: true, OK: iso.Tier.AtLeast(sandboxmcp.TierL2), Detail: string(iso.Tier) + " on Linux " + iso.Kernel, Fix: tierFix(iso.Tier)}}
	wanted := jail.ModeUser.Required(s.hall.LandlockABI())
	for _, w := range wanted {
		checks = append(checks, check(w, jail.Stands(iso.Walls, w), "stood around the trial sandbox", "did not stand around the trial sandbox", fixFor(w)))
	}
	for _, w := range iso.Walls {
		if !slices.Contains(wanted, w) {
			checks = append(checks, sandboxmcp.Check{Name: w, OK: true, Detail: "stood around the trial sandbox"})
		}
	}
	b.mu.Lock()
	noTree := b.noTree
	b.mu.Unlock()
	if s.group == nil {
		checks = append(checks, sandboxmcp.Check{Name: "memory limit by cgroup", Detail: noTree + "; memory is watched instead", Fix: "run as root, or start it with `systemd-run --user --scope -p Delegate=yes sandboxmcp …`"})
	}
	if os.Geteuid() != 0 {
		checks = append(checks, sandboxmcp.Check{Name: wallUIDs, Detail: "only a server started by root has it; code runs as a user id of its own namespace, mapped to yours", Fix: "start the server as root for tier L3"})
	}
	checks = append(checks, s.wayOut(ctx))
	checks = append(checks, b.weapons(ctx, sb)...)
	for _, w := range iso.Weak {
		if w != weakObjects && !strings.HasPrefix(w, "memory") { // no setting of the machine fixes weakObjects
			checks = append(checks, sandboxmcp.Check{Name: "weak", Detail: w, Fix: weakFix(w)})
		}
	}
	return checks
}

// wayOut checks whether a network can be opened.
func (s *sandbox) wayOut(ctx context.Context) sandboxmcp.Check {
	c := sandboxmcp.Check{Name: "network through egress", OK: true, Detail: "sockets of the server's stood in the trial sandbox"}
	if _, err := s.Network(ctx, nil); err != nil {
		c.OK, c.Detail, c.Fix = false, sandboxmcp.AsError(err).Message, "programs run, without a network; the message says what is missing"
	}
	return c
}

// weapons attacks from inside the sandbox what its walls protect, with a file that the server's own
// user can read.
func (b *Backend) weapons(ctx context.Context, sb backend.Sandbox) []sandboxmcp.Check {
	c := sandboxmcp.Check{Name: "host files out of reach", Needed: true}
	host, err := os.CreateTemp(b.cfg.TempDir, "sandboxmcp-doctor-")
	if err != nil {
		c.Detail, c.Fix = "not tried: "+err.Error(), "make "+b.cfg.TempDir+" writable"
		return []sandboxmcp.Check{c}
	}
	defer func() { _ = errors.Join(host.Close(), os.Remove(host.Name())) }()
	const script = `(cat "$0") 2>/dev/null && echo read; (echo x >> "$0") 2>/dev/null; (echo x > /etc/doctor) 2>/dev/null && echo etc; (echo x > /proc/self/oom_score_adj) 2>/dev/null && echo proc; echo tried`
	var out backend.Beginning
	r, err := sb.Start(ctx, backend.Process{Argv: []string{"/bin/sh", "-c", script, host.Name()}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out})
	if err == nil {
		_, err = r.Wait(ctx)
	}
	if err == nil {
		err = errors.Join(sb.Kill(ctx), r.Drain(ctx))
	}
	st, statErr := host.Stat()
	switch err = errors.Join(err, statErr); {
	case err == nil && st.Size() != 0:
		c.Detail, c.Fix = "a file of this user was written", "report it: this is a hole"
	case err != nil:
		c.Detail, c.Fix = "not tried: "+err.Error(), "install a shell as /bin/sh"
	case out.String() != "tried\n":
		c.Detail, c.Fix = "inside could be done: "+strings.Join(strings.Fields(out.String()), ", "), "report it: this is a hole"
	default:
		c.OK, c.Detail = true, "reading and writing a file of this user, writing to /etc and to /proc were refused inside"
	}
	return []sandboxmcp.Check{c}
}

func check(name string, ok bool, good, bad, fix string) sandboxmcp.Check {
	if ok {
		return sandboxmcp.Check{Name: name, Needed: true, OK: true, Detail: good}
	}
	return sandboxmcp.Check{Name: name, Needed: true, Detail: bad, Fix: fix}
}

func tierFix(t sandboxmcp.Tier) string {
	if t.AtLeast(sandboxmcp.TierL2) {
		return ""
	}
	return "allow unprivileged user namespaces"
}

// containerFix lets a sandbox be made in a container.
const containerFix = "start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"

// blocksSandboxes reports whether a failure is one that the defaults of container engines cause.
func blocksSandboxes(text string) bool {
	return strings.Contains(text, "start builder") || strings.Contains(text, "mount /proc")
}

// inContainer reports whether an engine has marked the root file system as that of a container.
func inContainer(root string) bool {
	for _, mark := range []string{".dockerenv", "run/.containerenv"} { // of Docker, of Podman
		if _, err := os.Stat(filepath.Join(root, mark)); err == nil {
			return true
		}
	}
	return false
}

// weakFix returns what helps against a weakness.
func weakFix(weak string) string {
	if weak == weakUIDs {
		return "start the server outside of containers, or one server at a time"
	}
	return "delegate a control group, or run the server as root"
}

// plainFix returns the fix of a failure that has another cause than the host's settings for isolation, and "" for others.
func plainFix(text string) string {
	switch {
	case strings.Contains(text, "RLIMIT_NOFILE"):
		return "allow at least 256 open files: ulimit -n, LimitNOFILE of a service, or --ulimit nofile of a container"
	case strings.Contains(text, "lease user ids") && strings.Contains(text, "read-only file system"):
		return "make /run/sandboxmcp writable for root; start a container with a read-only root file system with --tmpfs /run"
	case strings.Contains(text, "without CAP_SYS_ADMIN"):
		return "start the server as an ordinary user (for docker run: --user UID:GID), or with CAP_SYS_ADMIN (--cap-add SYS_ADMIN)"
	}
	return ""
}

// fixFor returns the setting that usually fixes a failure with such a message.
func fixFor(text string) string {
	if fix := plainFix(text); fix != "" {
		return fix
	}
	switch {
	case blocksSandboxes(text) && inContainer("/"):
		return containerFix
	case strings.Contains(text, "mount /proc"):
		return "parts of /proc are covered here, so that the kernel allows no new one; in a container run it with systempaths=unconfined"
	case strings.Contains(text, "Landlock"), strings.Contains(text, "landlock"):
		return "boot a kernel of 5.13 or newer with Landlock: add landlock to the lsm= list of its command line"
	case strings.Contains(text, jail.WallUnpriv):
		return "start it with a user id and a group id other than root's (for docker run: --user UID:GID; without GID the group is root's), and in a user namespace with ids that are not root's outside of it"
	case strings.Contains(text, "/proc shows"), strings.Contains(text, "/proc is not mounted"):
		return "mount a /proc of this pid namespace"
	case strings.Contains(text, "init: connection reset"), strings.Contains(text, "lchown"):
		return "start it with all capabilities of root and a limit of at least 256 open files, or as an ordinary user"
	case strings.Contains(text, "start builder"), strings.Contains(text, "namespace"), strings.Contains(text, "clone: no space left"):
		return "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, and on Ubuntu an AppArmor profile with `userns,` for this program (or sysctl kernel.apparmor_restrict_unprivileged_userns=0); in a container run it with seccomp=unconfined and systempaths=unconfined; in a chroot the kernel allows none"
	case strings.Contains(text, "limit "):
		return "raise the hard limits that this program is started with (ulimit -H, or the service's Limit… settings)"
	case strings.Contains(text, "lease user ids"):
		return "make /run/sandboxmcp writable for root, or set uid_range to a larger free range"
	default:
		return "run it as another user, or see the message"
	}
}
