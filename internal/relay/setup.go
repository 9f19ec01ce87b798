package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// Numbers of Linux that both architectures share.
const (
	atFDCWD       = -100
	atEmptyPath   = 0x1000
	atNoFollow    = 0x100
	openWrite     = 1
	openCreate    = 0o100
	openExclusive = 0o200
	openNoTTY     = 0o400
	openNonblock  = 0o4000
	openCloexec   = 0o2000000
	openPath      = 0o10000000

	prSetDumpable   = 4
	prDropBounding  = 24
	prNoNewPrivs    = 38
	prAmbient       = 47
	prAmbientClear  = 4
	seccompFilter   = 1
	capVersion      = 0x20080522
	lastCapability  = 63
	capDACReadOther = 2
	capKill         = 5
	capSetGID       = 6
	capSetUID       = 7
	capNetBind      = 10
)

// openDirectory and openNoFollow differ by architecture.
func openDirectory(a seccomp.Arch) int {
	if a == seccomp.ARM64 {
		return 0o40000
	}
	return 0o200000
}

func openNoFollow(a seccomp.Arch) int {
	if a == seccomp.ARM64 {
		return 0o100000
	}
	return 0o400000
}

// rights encodes capability sets for capset.
func rights(effective, permitted uint64) []byte {
	return words(uint32(effective), uint32(permitted), 0, uint32(effective>>32), uint32(permitted>>32), 0)
}

// relayRights are what the relay keeps: it ends programs, starts them as another user, and reads
// files that their owner has shut.
const relayRights = 1<<capDACReadOther | 1<<capKill | 1<<capSetGID | 1<<capSetUID | 1<<capNetBind

// standing is what the relay has for its work. As root of its container it gives programs a user of their
// own. A container that lends no rights makes the relay and its programs one user: the kernel then protects
// the relay as the first process, which is not dumpable, and Landlock keeps the files of programs.
type standing struct {
	shared   bool // the relay has the user of programs, and no capabilities
	uid      int  // of programs
	landlock int  // version of the kernel's Landlock, behind which programs are; 0: it has none
}

// observeStanding finds out what the relay has.
func (s *Sandbox) observeStanding() error {
	l := s.c.list()
	user := l.do("geteuid")
	abi := l.try("landlock_create_ruleset", num(0), num(0), num(1))
	r, err := s.c.run(l)
	if err != nil {
		return err
	}
	s.standing = standing{uid: s.cfg.UID}
	if uid := int(r.results[user]); uid != 0 {
		s.standing = standing{shared: true, uid: uid}
	}
	s.standing.landlock = max(int(r.results[abi]), 0)
	return nil
}

// alone returns an error if the container shares its pid namespace or its network namespace with other processes. The relay
// would end these processes and use their addresses. Callers call alone before the relay changes anything.
func (s *Sandbox) alone() error {
	l := s.c.list()
	pid := l.do("getpid")
	r, err := s.c.run(l)
	if err != nil {
		return fmt.Errorf("observe the relay: %w", err)
	}
	if r.results[pid] != 1 {
		return errors.New("the container has no process ids of its own: its first program is not process 1")
	}
	if s.standing.shared || s.cfg.Routed {
		return nil
	}
	devices, err := s.c.text("/proc/net/dev")
	if err != nil {
		return fmt.Errorf("observe the network: %w", err)
	}
	if !bounds.OnlyLoopback(devices) {
		return errors.New("the container has a network interface besides loopback")
	}
	return nil
}

// asPrograms adds the calls by which the relay works as the programs' user. Its real user stays root.
func (s *Sandbox) asPrograms(l *list, add func(name string, args ...arg) int) {
	if s.standing.shared {
		return
	}
	add("setresuid", minus, num(s.standing.uid), minus)
	add("capset", l.bytes(words(capVersion, 0)), l.bytes(rights(relayRights, relayRights)))
}

// asRoot adds the call by which the relay writes files that programs can only read.
func (s *Sandbox) asRoot(l *list) {
	if !s.standing.shared {
		l.do("setresuid", minus, num(0), minus)
	}
}

// setUp makes the places of a sandbox, drops the relay's rights and hands over the calls that every program
// makes before it is executed.
func (s *Sandbox) setUp() error {
	if err := s.observeStanding(); err != nil {
		return fmt.Errorf("observe the relay: %w", err)
	}
	if err := s.alone(); err != nil {
		return err
	}
	if err := s.addresses(); err != nil {
		return fmt.Errorf("make addresses: %w", err)
	}
	if err := s.answerNeighbors(); err != nil {
		return fmt.Errorf("listen on the interface: %w", err)
	}
	l := s.c.list()
	l.do("prctl", num(prSetDumpable), num(0))
	l.do("umask", num(0o022))
	l.do("mkdirat", num(atFDCWD), l.str(backend.ProgramDir), num(0o755))
	l.do("symlinkat", l.str(backend.ProgramDir+"/bridge"), num(atFDCWD), l.str(backend.BridgeDir))
	l.do("prctl", num(prAmbient), num(prAmbientClear), num(0), num(0), num(0))
	if !s.standing.shared {
		if s.cfg.Routed { // all users of a pod can write to its volumes and to the file of its termination message
			l.do("fchmodat", num(atFDCWD), l.str(path.Dir(backend.ProgramDir)), num(0o755))
			l.try("fchmodat", num(atFDCWD), l.str(TerminationLog), num(0o600))
		}
		l.do("setgroups", num(0), num(0))
		l.do("setresgid", num(s.standing.uid), num(s.standing.uid), num(s.standing.uid))
	}
	work := l.do("openat", num(atFDCWD), l.str(backend.WorkDir), num(openPath|openCloexec|openDirectory(s.c.arch)), num(0))
	program := l.do("openat", num(atFDCWD), l.str(backend.ProgramDir), num(openPath|openCloexec|openDirectory(s.c.arch)), num(0))
	r, err := s.c.run(l)
	if err == nil {
		s.work, s.program = int(r.results[work]), int(r.results[program])
		err = s.dropBounds()
	}
	if err == nil && !s.standing.shared {
		l = s.c.list()
		l.do("capset", l.bytes(words(capVersion, 0)), l.bytes(rights(relayRights|1<<capSetUID, relayRights)))
		s.asPrograms(l, l.do)
		_, err = s.c.run(l)
	}
	if err == nil {
		err = s.prelude()
	}
	if err != nil {
		return fmt.Errorf("set up the sandbox: %w", err)
	}
	return nil
}

// dropBounds makes sure that no program can get a capability.
func (s *Sandbox) dropBounds() error {
	for first := 0; first <= lastCapability; first += 32 {
		l := s.c.list()
		for c := first; c < first+32; c++ {
			l.try("prctl", num(prDropBounding), num(c), num(0), num(0), num(0)) // the kernel may know fewer; observe reads them back
		}
		if _, err := s.c.run(l); err != nil {
			return err
		}
	}
	return nil
}

const (
	rlimitCPU   = 0
	rlimitNproc = 6
)

// prelude hands over the calls that every program makes before it is executed.
func (s *Sandbox) prelude() error {
	// What holds a network of IPv4 need not hold IPv6: each interface has an address for its link by itself, at which its
	// neighbors answer.
	filter, err := seccomp.Compile(seccomp.New(seccomp.Variant{Scratch: true, NoIPv6: s.cfg.Routed}), s.c.arch)
	if err != nil {
		return err
	}
	l := s.c.list()
	limit := func(which, value int64, add func(string, ...arg) int) {
		b := binary.LittleEndian.AppendUint64(nil, uint64(value))
		add("prlimit64", num(0), num(which), l.bytes(binary.LittleEndian.AppendUint64(b, uint64(value))), num(0))
	}
	for _, r := range bounds.Rlimits {
		limit(int64(r.Number), r.Value, l.try) // the engine has set them as well; a hard limit cannot be raised
	}
	if s.cfg.Spec.MaxTasks > 0 && !s.cfg.UserOfOthers {
		limit(rlimitNproc, int64(s.cfg.Spec.MaxTasks)+1, l.do)
	}
	if n := int64(s.cfg.Spec.CPUTime.Seconds()); n > 0 {
		limit(rlimitCPU, n, l.do)
	}
	uid := num(s.standing.uid)
	l.do("setresuid", uid, uid, uid) // by which all capabilities are lost
	l.do("capset", l.bytes(words(capVersion, 0)), l.bytes(rights(0, 0)))
	l.do("prctl", num(prNoNewPrivs), num(1), num(0), num(0), num(0))
	if s.standing.landlock > 0 {
		s.landlock(l)
	}
	code := l.bytes(filter)
	head := l.bytes(make([]byte, 16))
	binary.LittleEndian.PutUint16(l.data[head.v:], uint16(len(filter)/8))
	l.store(arg{tagBytes, head.v + 8}, code)
	l.do("seccomp", num(seccompFilter), num(0), head)
	if len(l.data) > maxPacket/2 {
		return fmt.Errorf("the filter has %d bytes", len(filter))
	}
	a, err := s.c.now(nil, func(tag uint32) ([]byte, error) { return l.packet('F', tag) })
	if err == nil {
		_, err = a.value(0)
	}
	return err
}

// Provide puts files below ProgramDir.
func (s *Sandbox) Provide(ctx context.Context, list []backend.ProgramFile) error {
	err := ctx.Err()
	if err == nil {
		err = s.live()
	}
	if err == nil {
		err = s.provide(list)
	}
	if errors.Is(err, errGone) {
		err = fs.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("provide: %w", err)
	}
	return nil
}

func (s *Sandbox) provide(list []backend.ProgramFile) error {
	for _, f := range list {
		if err := s.provideOne(f); err != nil {
			return fmt.Errorf("write %s: %w", f.Name, err)
		}
	}
	return nil
}

// provideOne writes a file as root of the container, so that programs cannot write to it. Where they have
// the relay's user, Landlock refuses it to them.
func (s *Sandbox) provideOne(f backend.ProgramFile) error {
	if f.Name == "" || strings.HasPrefix(f.Name, "/") || path.Clean(f.Name) != f.Name || strings.HasPrefix(f.Name, "..") {
		return failure(22)
	}
	mode := 0o644
	if f.Exec {
		mode = 0o755
	}
	l := s.c.list()
	s.asRoot(l)
	for i, c := range f.Name {
		if c == '/' {
			l.try("mkdirat", num(s.program), l.str(f.Name[:i]), num(0o755))
		}
	}
	l.try("unlinkat", num(s.program), l.str(f.Name), num(0))
	fd := l.do("openat", num(s.program), l.str(f.Name), num(openWrite|openCreate|openExclusive|openCloexec), num(mode))
	rest := f.Data
	if len(rest) <= 64<<10 {
		if len(rest) > 0 {
			l.do("write", result(fd), l.bytes(rest), num(len(rest)))
		}
		l.finally("close", result(fd))
		rest = nil
	}
	s.asPrograms(l, l.finally)
	r, err := s.c.run(l)
	if err != nil || rest == nil {
		return err
	}
	defer s.c.drop(int(r.results[fd]))
	return s.c.writeFile(int(r.results[fd]), rest)
}

// writeFile writes all bytes to an open file.
func (c *conn) writeFile(fd int, data []byte) error {
	for len(data) > 0 {
		some := data[:min(len(data), 64<<10)]
		l := c.list()
		i := l.do("write", num(fd), l.bytes(some), num(len(some)))
		r, err := c.run(l)
		if err != nil {
			return err
		}
		n := int(r.results[i])
		if n <= 0 || n > len(some) {
			return errGone
		}
		data = data[n:]
	}
	return nil
}

// Tmpfs returns the options of the file systems in memory that a container needs, by path. /run is
// root's, and the others are the programs'.
func Tmpfs(spec backend.Spec, uid int) map[string]string {
	all := map[string]string{}
	for _, at := range places(spec) {
		all[at.Path] = at.EngineOptions()
		if at.Path != "/run" {
			all[at.Path] += fmt.Sprintf(",uid=%d,gid=%d", uid, uid)
		}
	}
	return all
}
