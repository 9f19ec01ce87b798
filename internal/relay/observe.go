package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// Seen holds the observations of the relay's program, which runs as an ordinary program of the
// sandbox behind its walls.
type Seen struct {
	Status map[string]string // of /proc/self/status
	Kernel string            // release and version, of uname

	NoNewPrivs bool   // no program can gain rights
	Filtered   bool   // system calls are filtered
	Network    string // the wall that holds programs from the network, if there is no interface

	Refused     bool // the filter of package seccomp refused a call that it always refuses
	NoVsock     bool // no socket to the machine below can be made
	NoIPv6      bool // no socket of IPv6 can be made
	Sizes       []Size
	ReadOnly    bool     // neither the root file system can be written to nor a mount of Disks, TerminationLog excepted
	Disks       []string // mounts besides the known places that are on a disk and that programs may write to, see disks
	NoInterface bool     // there is no network interface but loopback
	Kept        bool     // files of programs cannot be written to
	NoDevice    bool     // Landlock refuses what the modes of files allow: to write to /dev/zero

	UID      int // that programs should have
	Landlock int // version of the Landlock that was seen to refuse; 0: none
}

// observed returns what was observed before a program was started, with the present wall of the network. A
// program runs as the observer's user, and could disturb or deceive a later observation. It can take down
// no wall.
func (s *Sandbox) observed(ctx context.Context) (Seen, error) {
	s.observing.Lock()
	defer s.observing.Unlock()
	if err := s.live(); err != nil {
		return Seen{}, fmt.Errorf("observe sandbox: %w", err)
	}
	if s.first == nil {
		seen, err := s.observe(ctx)
		if err != nil {
			return Seen{}, fmt.Errorf("observe sandbox: %w", err)
		}
		s.first = &seen
	}
	seen := *s.first
	seen.Network = s.network.wall()
	seen.UID = s.standing.uid
	if seen.NoDevice {
		seen.Landlock = s.standing.landlock
	}
	return seen, nil
}

// observe starts the relay's own program as every other program is started, and lets it observe its walls.
func (s *Sandbox) observe(ctx context.Context) (Seen, error) {
	r, w := io.Pipe()
	p, err := s.start(backend.Process{Argv: []string{s.cfg.Program}, Env: []string{}, OpenStdin: true, Stdout: w})
	if err != nil {
		return Seen{}, err
	}
	defer func() {
		_ = p.Signal(context.WithoutCancel(ctx), sigKILL)
		_ = r.Close()
		within(drainLimit, p.outputs[0].done)
		p.close()
		p.stdin.drop()
	}()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	c, err := newConn(ctx, &talk{ctx: ctx, p: p, r: r, w: w}, s.c.arch, s.effort, func(exit) {})
	if err != nil {
		return Seen{}, err
	}
	defer c.close()
	return c.look()
}

// talk is a stream to a program's stdin and from its stdout.
type talk struct {
	ctx  context.Context //nolint:containedctx // of one observation
	p    *running
	r    *io.PipeReader
	w    *io.PipeWriter
	once sync.Once
}

func (t *talk) Read(p []byte) (int, error)  { return t.r.Read(p) }
func (t *talk) Write(p []byte) (int, error) { return t.p.WriteStdin(t.ctx, p) }

func (t *talk) Close() error {
	t.once.Do(func() { _ = t.w.CloseWithError(io.EOF) })
	return nil
}

// Numbers that look needs.
const (
	prGetNoNewPrivs = 39
	optRefused      = 41 // IP_MSFILTER, which the filter refuses
	familyVsock     = 40
	familyInet6     = 10
	familyNetlink   = 16
	unameSize       = 6 * 65
	removeDirectory = 0x200
	textSize        = 8 << 10
	statfsSize      = 128
)

// look reads the status of the program and tries calls.
func (c *conn) look() (Seen, error) {
	seen := Seen{Status: map[string]string{}}
	text, err := c.text("/proc/self/status")
	if err != nil {
		return seen, err
	}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			seen.Status[k] = strings.TrimSpace(v)
		}
	}
	l := c.list()
	l.size = 1024
	name := l.try("uname", answer(0))
	vsock := l.try("socket", num(familyVsock), num(1), num(0))
	six := l.try("socket", num(familyInet6), num(1), num(0))
	trace := l.try("ptrace", num(0), num(0), num(0), num(0))
	mount := l.try("unshare", num(0x10000000))
	// The filter looks at arguments: this option may be set, and that one not.
	fd := l.try("socket", num(inet), num(stream|sockFlags), num(0))
	allowed := l.try("setsockopt", result(fd), num(optSocket), num(optReuse), l.bytes(words(1)), num(4))
	refused := l.try("setsockopt", result(fd), num(0), num(optRefused), l.bytes(words(1)), num(4))
	nnp := l.try("prctl", num(prGetNoNewPrivs), num(0), num(0), num(0), num(0))
	root := l.try("mkdirat", num(atFDCWD), l.str("/sandboxmcp-observed"), num(0o700))
	kept := l.try("mkdirat", num(atFDCWD), l.str(backend.ProgramDir+"/observed"), num(0o700))
	l.try("unlinkat", num(atFDCWD), l.str(backend.ProgramDir+"/observed"), num(removeDirectory))
	device := l.try("openat", num(atFDCWD), l.str("/dev/zero"), num(openWrite|openCloexec), num(0))
	var sizes []int
	for i, at := range places(backend.Spec{}) {
		sizes = append(sizes, l.try("statfs", l.str(at.Path), answer(512+statfsSize*i)))
	}
	r, err := c.run(l)
	if err != nil {
		return seen, err
	}
	if len(r.bytes) < 512+statfsSize*len(sizes) {
		return seen, errGone
	}
	if r.results[name] == 0 {
		field := func(i int) string { s, _, _ := strings.Cut(string(r.bytes[65*i:65*i+65]), "\x00"); return s }
		seen.Kernel = field(2) + " " + field(3)
	}
	const eperm, eacces, eafnosupport, erofs, enoprotoopt = -1, -13, -97, -30, -92
	seen.NoVsock = r.results[vsock] == eafnosupport || r.results[vsock] == eperm
	seen.NoIPv6 = r.results[six] == eafnosupport
	seen.Refused = r.results[trace] == eperm && r.results[mount] == eperm && r.results[allowed] == 0 && r.results[refused] == enoprotoopt
	seen.NoNewPrivs = r.results[nnp] == 1
	seen.Filtered = seen.Status["Seccomp"] == "2"
	seen.ReadOnly = r.results[root] == erofs
	seen.NoDevice = r.results[device] == eacces
	seen.Kept = r.results[kept] == eacces
	for i, call := range sizes {
		var size Size
		if r.results[call] == 0 {
			u64 := func(at int) int64 { return int64(binary.LittleEndian.Uint64(r.bytes[512+statfsSize*i+at:])) }
			size = Size{multiply(u64(8), u64(16)), u64(40)}
		}
		seen.Sizes = append(seen.Sizes, size)
	}
	seen.Disks = c.disks()
	seen.ReadOnly = seen.ReadOnly && !slices.ContainsFunc(seen.Disks, func(at string) bool { return at != TerminationLog })
	devices, err := c.text("/proc/net/dev")
	if err == nil {
		seen.NoInterface = bounds.OnlyLoopback(devices)
	}
	return seen, nil
}

// text reads the beginning of a file.
func (c *conn) text(name string) (string, error) {
	l := c.list()
	l.size, l.from = textSize, 2
	fd := l.do("openat", num(atFDCWD), l.str(name), num(openCloexec), num(0))
	l.do("read", result(fd), answer(0), num(textSize))
	l.finally("close", result(fd))
	r, err := c.run(l)
	return string(r.bytes), err
}

// texts reads the beginnings of files with one packet. Each takes three calls of its list. A file that cannot be read is nil.
func (c *conn) texts(names []string) ([][]byte, error) {
	l := c.list()
	l.size = shortText * len(names)
	for i, name := range names {
		fd := l.try("openat", num(atFDCWD), l.str(name), num(openCloexec), num(0))
		l.try("read", result(fd), answer(shortText*i), num(shortText))
		l.try("close", result(fd))
	}
	r, err := c.run(l)
	if err != nil {
		return nil, err
	}
	if len(r.bytes) != l.size {
		return nil, errGone
	}
	all := make([][]byte, len(names))
	for i := range names {
		if n, failed := r.value(3*i + 1); failed == nil {
			all[i] = r.bytes[shortText*i:][:min(n, shortText)]
		}
	}
	return all, nil
}

// shortText is how much texts reads of each file.
const shortText = 1 << 10

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// living returns the processor time of a process and of the children that it has waited for, and the most
// memory that it has held. It returns 0 for a process that has ended.
func (c *conn) living(pid int) (cpu time.Duration, memory int64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/"
	stat, err := c.text(dir + "stat")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for i := 11; i < 15 && i < len(f); i++ { // fields 14 to 17 of proc_pid_stat(5), counted after the name
		n, _ := strconv.ParseInt(f[i], 10, 64) // 0 for a text of a guest that is no number
		cpu += time.Duration(max(n, 0)) * tick
	}
	status, err := c.text(dir + "status")
	if err != nil {
		return cpu, 0
	}
	for line := range strings.Lines(status) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")), 10, 53)
			memory = max(n, 0) << 10
		}
	}
	return cpu, memory
}

// NoRights reports whether a program has no capabilities and can get none.
func (s Seen) NoRights() bool {
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
		v, err := strconv.ParseUint(s.Status[set], 16, 64)
		if err != nil || v != 0 {
			return false
		}
	}
	return true
}

// Unprivileged reports whether a program has the user and group that it should have, and not root's group besides.
func (s Seen) Unprivileged(uid int) bool {
	want := strings.Repeat(strconv.Itoa(uid)+" ", 4)
	return !slices.Contains(strings.Fields(s.Status["Groups"]), "0") && strings.Join(strings.Fields(s.Status["Uid"]), " ")+" " == want && strings.Join(strings.Fields(s.Status["Gid"]), " ")+" " == want
}

// Size is the size of a file system. 0 means that it was not observed, or has no bound.
type Size struct{ Bytes, Files int64 }

// places returns the places that programs can write to.
func places(spec backend.Spec) [4]bounds.Place {
	return bounds.Places(min(spec.WorkBytes, spec.MemoryBytes/2), spec.WorkInodes, spec.TempBytes)
}

// Places returns the file systems in memory that a container needs.
func Places(spec backend.Spec) []bounds.Place {
	all := places(spec)
	return all[:]
}

// slack is what a file system may have above its size, which the kernel rounds.
const slack = 1 << 20

// Bounded reports whether bytes and numbers of files are bounded wherever programs can write.
func (s Seen) Bounded(spec backend.Spec) (bytes, files bool) {
	want := places(spec)
	bytes, files = len(s.Sizes) == len(want) && len(s.Disks) == 0, len(s.Sizes) == len(want) && len(s.Disks) == 0
	for i, want := range want {
		if i < len(s.Sizes) {
			got := s.Sizes[i]
			bytes = bytes && got.Bytes > 0 && got.Bytes <= want.Bytes+slack
			files = files && got.Files > 0 && got.Files <= want.Files
		}
	}
	return bytes, files
}

// multiply multiplies two numbers of a guest. It returns 0 if the product is no size.
func multiply(a, b int64) int64 {
	if a <= 0 || b <= 0 || a > math.MaxInt64/b {
		return 0
	}
	return a * b
}
