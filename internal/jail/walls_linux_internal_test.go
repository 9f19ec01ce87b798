package jail

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// testConfig is a jail of this user. Its ids are of no range that a server
// leases, so that the two never meet.
func testConfig(t testing.TB) Config {
	t.Helper()
	arch, ok := seccomp.Native()
	if !ok {
		t.Skip("no table of system calls for this architecture")
	}
	compiled := func(v seccomp.Variant) []byte {
		filter, err := seccomp.Filter(v, arch)
		if err != nil {
			t.Fatal(err)
		}
		return filter
	}
	cfg := Config{
		Mode: ModeUser, Notices: HaveNotices(), Spawners: 1, Common: compiled(seccomp.Variant{Part: seccomp.Common}),
		Filter: compiled(seccomp.Variant{Part: seccomp.Rest, Notices: HaveNotices()}), Entering: compiled(seccomp.Variant{Part: seccomp.Rest, AllowSetns: true}),
	}
	if os.Geteuid() == 0 {
		cfg.Mode, cfg.FirstUID = ModeRoot, 1_940_000_000
	}
	return cfg
}

var testSize = Size{WorkBytes: 1 << 20, WorkInodes: 100, TempBytes: 1 << 20, MaxTasks: 20}

// observed builds one sandbox and returns its walls, or the reason why there is none.
func observed(t *testing.T, cfg Config) ([]string, error) {
	t.Helper()
	j, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = j.Close() }()
	turn, err := j.Turn()
	if err != nil {
		return nil, err
	}
	defer turn.Cancel()
	s, err := turn.New(SlotConfig{Size: testSize})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	o, err := s.Observe(0)
	return o.Walls, err
}

func whole(t *testing.T, cfg Config) []string {
	t.Helper()
	walls, err := observed(t, cfg)
	if err != nil {
		t.Fatalf("with every wall: got %v, want a sandbox", err)
	}
	for _, w := range cfg.Mode.Required(landlockABI()) {
		if !slices.Contains(walls, w) {
			t.Fatalf("with every wall: want %q observed, got %q", w, walls)
		}
	}
	return walls
}

// TestWallsOff leaves out each wall in turn. The wall must vanish from what is observed, so
// that such a sandbox would be refused, or no sandbox is built at all. A wall that is reported
// and not there is the worst fault.
func TestWallsOff(t *testing.T) {
	cfg := testConfig(t)
	all := whole(t, cfg)
	landlock := landlockWall(landlockABI())
	for off, want := range map[wall][]string{
		wallIDs:      {WallUnpriv},
		wallCgroupNS: {WallCgroupNS},
		wallCaps:     {WallNoCaps},
		wallNNP:      {WallNNP},
		wallLandlock: {landlock},
		wallSeccomp:  {WallSeccomp, WallNoVsock},
		wallCommon:   {WallSeccomp, WallNoVsock},
		wallRlimits:  {WallTasks},
		wallMounts:   {WallQuota},
		wallDump:     nil, // it shows in nothing that can be read from outside; see TestDumpable
	} {
		t.Run(string(off), func(t *testing.T) {
			if off == wallIDs && cfg.Mode == ModeUser {
				t.Skip("there the id map alone makes an ordinary user of it: nothing is left out")
			}
			c := cfg
			c.off = map[wall]bool{off: true}
			vanished(t, c, all, want)
		})
	}
}

// TestNamespacesOff does the same for each namespace that a sandbox is cloned into.
func TestNamespacesOff(t *testing.T) {
	cfg := testConfig(t)
	all := whole(t, cfg)
	for name, c := range map[string]struct {
		flag uint64
		want []string
	}{
		"user":  {unix.CLONE_NEWUSER, nil},
		"mount": {unix.CLONE_NEWNS, nil},
		"pid":   {unix.CLONE_NEWPID, nil},
		"ipc":   {unix.CLONE_NEWIPC, []string{WallIPCNS}},
		"uts":   {unix.CLONE_NEWUTS, []string{WallUTSNS}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := cfg
			conf.without = c.flag
			vanished(t, conf, all, c.want)
		})
	}
}

// vanished wants that without the named walls no sandbox comes to be, or that
// exactly these are no longer observed. None named: none may come to be.
func vanished(t *testing.T, cfg Config, all, want []string) {
	t.Helper()
	walls, err := observed(t, cfg)
	if err != nil {
		t.Logf("no sandbox comes to be: %v", err)
		return
	}
	var gone []string
	for _, w := range all {
		if !slices.Contains(walls, w) {
			gone = append(gone, w)
		}
	}
	t.Logf("no longer observed: %q", gone)
	for _, w := range want {
		if !slices.Contains(gone, w) {
			t.Errorf("without it: got %q observed, want it gone", w)
		}
	}
	if len(want) == 0 && len(gone) == 0 && cfg.without != 0 {
		t.Error("without a wall: got the same walls, want one less")
	}
	required := cfg.Mode.Required(landlockABI())
	if len(want) > 0 && !slices.ContainsFunc(gone, func(w string) bool { return slices.Contains(required, w) }) {
		t.Errorf("got %q gone, none of them required; want a required wall among them, so that the sandbox is refused", gone)
	}
}

// TestDumpable: init may not be read by others of its user, which its files in
// /proc show by whom they belong to. The wall is a second one behind the pid
// namespace.
func TestDumpable(t *testing.T) {
	cfg := testConfig(t)
	j, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	s := made(t, j)
	defer func() { _ = s.Close() }()
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(s.PID())+"/environ", &st); err != nil {
		t.Fatal(err)
	}
	if int(st.Uid) == s.UID() && os.Geteuid() == 0 {
		t.Errorf("init's files: got owner %d, the user of its sandbox, so that it is dumpable; want root", st.Uid)
	}
}

// TestEndedIsNotInterrupted: signals to the thread that looks, as the runtime sends
// them, do not make a process that lives look ended.
func TestEndedIsNotInterrupted(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(self)
	stop, stopped, thread := make(chan struct{}), make(chan struct{}), unix.Gettid()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			}
		}
	}()
	for range 20_000 {
		if ended(self) {
			t.Error("ended of this process: got true, want false")
			break
		}
	}
	close(stop)
	<-stopped
}

// TestReadings: readings of the kernel's files are not confused by text that only looks like
// them.
func TestReadings(t *testing.T) {
	const own = "1 0 0:1 / /mnt/data rw - tmpfs d rw,size=1k,nr_inodes=2\n1 0 0:1 / /tmp rw - tmpfs d rw,size=1k,nr_inodes=2\n" +
		"1 0 0:1 / /dev/shm rw - tmpfs d rw,size=1k,nr_inodes=2\n1 0 0:1 / /run rw - tmpfs d rw,size=1k,nr_inodes=2\n"
	for name, c := range map[string]struct {
		info        string
		root, quota bool
	}{
		"good":           {own + "1 0 0:1 / / ro - tmpfs r ro\n1 0 0:1 / /usr ro,nosuid - ext4 x rw\n1 0 0:1 / /proc rw - proc p rw\n", true, true},
		"writable root":  {own + "1 0 0:1 / / rw - tmpfs r rw\n", false, true},
		"writable usr":   {own + "1 0 0:1 / / ro - tmpfs r ro\n1 0 0:1 / /usr rw - ext4 x rw\n", false, true},
		"no root":        {own, false, true},
		"host's tmp":     {strings.Replace(own, "/tmp rw - tmpfs d rw,size=1k,nr_inodes=2", "/tmp rw - ext4 d rw", 1) + "1 0 0:1 / / ro - tmpfs r ro\n", false, false},
		"no size":        {strings.Replace(own, "size=1k,", "", 1) + "1 0 0:1 / / ro - tmpfs r ro\n", true, false},
		"unreadable row": {own + "1 0 0:1 / / ro tmpfs r ro\n", false, false},
		"nothing":        {"", false, false},
	} {
		if root, quota := mountWalls(c.info, Config{}); (root == WallRoot) != c.root || root == WallRootBut || quota != c.quota {
			t.Errorf("mounts, %s: got %q %v, want %v %v", name, root, quota, c.root, c.quota)
		}
	}
	for limit, want := range map[unix.Rlimit]bool{
		{Cur: 21, Max: 21}: true, {Cur: 20, Max: 20}: true, {Cur: 20, Max: 21}: false, {Cur: 96365, Max: 96365}: false, {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}: false,
	} {
		if got := (&rlimits{unix.RLIMIT_NPROC: limit}).tasksLimited(21); got != want {
			t.Errorf("limit %v: got %v, want %v", limit, got, want)
		}
	}
	if (*rlimits)(nil).tasksLimited(21) {
		t.Error("unknown limits are a limit of tasks")
	}
	good := map[string]string{"Seccomp": "2", "NoNewPrivs": "1", "CapInh": "0", "CapPrm": "0", "CapEff": "0", "CapBnd": "0", "CapAmb": "0", "Uid": "5 5 5 5", "Gid": "5 5 5 5"}
	if got := statusWalls(good, hostRoot{"0", "0"}, false); len(got) != 4 {
		t.Errorf("a good status: %q", got)
	}
	for key, value := range map[string]string{"Seccomp": "1", "NoNewPrivs": "0", "CapBnd": "0000000000000001", "CapEff": "", "Uid": "5 0 5 5", "Gid": "5 5 5 0"} {
		bad := maps.Clone(good)
		bad[key] = value
		if got := statusWalls(bad, hostRoot{"0", "0"}, false); len(got) != 3 {
			t.Errorf("%s %q: still %q", key, value, got)
		}
	}
	bad := maps.Clone(good)
	bad["CapBnd"], bad["NoNewPrivs"] = "1", "0"
	if got := statusWalls(bad, hostRoot{"0", "0"}, true); len(got) != 2 {
		t.Errorf("a full bounding set without no_new_privs: %q", got)
	}
}

// TestWallOfASharedDirectory: the root is called read-only, or so except for the shared directory,
// only if all rows of the mount table agree.
func TestWallOfASharedDirectory(t *testing.T) {
	const rest = "1 0 0:1 / / ro - tmpfs r ro\n"
	row := func(place, options string) string { return "1 0 8:1 /x " + place + " " + options + " - ext4 d rw\n" }
	good, plain := row("/workspace", "rw,nosuid,nodev,idmapped"), row("/workspace", "rw,nosuid,nodev")
	for name, c := range map[string]struct {
		mode Mode
		info string
		want string
	}{
		"root":                {ModeRoot, good, WallRootBut},
		"root, not mapped":    {ModeRoot, plain, ""},
		"user":                {ModeUser, plain, WallRootBut},
		"set-user-ID":         {ModeUser, row("/workspace", "rw,nodev"), ""},
		"devices":             {ModeUser, row("/workspace", "rw,nosuid"), ""},
		"covered":             {ModeUser, plain + row("/workspace", "ro,nosuid"), WallRoot},
		"absent":              {ModeRoot, "", WallRoot},
		"mount in it":         {ModeRoot, good + row("/workspace/a", "rw,nosuid,nodev,idmapped"), WallRootBut},
		"weaker mount in it":  {ModeRoot, good + row("/workspace/a", "rw,nosuid,nodev"), ""},
		"closed mount in it":  {ModeRoot, good + row("/workspace/a", "ro"), WallRootBut},
		"open mount in it":    {ModeUser, row("/workspace", "ro") + row("/workspace/a", "rw,nosuid,nodev"), WallRootBut},
		"a name like its own": {ModeUser, plain + row("/workspaces", "rw,nosuid,nodev"), ""},
	} {
		cfg := Config{Mode: c.mode, Shared: Shared{Host: "/x", Inside: "/workspace", Writable: true}}
		if got, _ := mountWalls(rest+c.info, cfg); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got, _ := mountWalls(rest+good, Config{Mode: ModeRoot, Shared: Shared{Host: "/x", Inside: "/workspace"}}); got != "" {
		t.Errorf("a directory that may not be writable: got %q, want no wall", got)
	}
}

// TestSharedNeedsItsFilter: under a filter that does not refuse set-user-ID bits, a wall is missing.
func TestSharedNeedsItsFilter(t *testing.T) {
	cfg := testConfig(t)
	cfg.Shared = Shared{Host: t.TempDir(), Inside: "/workspace", Writable: true}
	if err := os.Chown(cfg.Shared.Host, 65534, 65534); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	walls, err := observed(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(walls, WallNoSetID) || !slices.Contains(walls, WallRootBut) {
		t.Errorf("got %q, want no %q", walls, WallNoSetID)
	}
	j := &Jail{cfg: cfg, abi: landlockABI()}
	if !slices.Contains(j.Required(), WallNoSetID) {
		t.Errorf("required: got %q, want %q among them", j.Required(), WallNoSetID)
	}
}

// TestLandlockIsQuiet: no Landlock domain of a sandbox writes audit records, where the kernel
// can turn them off.
func TestLandlockIsQuiet(t *testing.T) {
	for abi, want := range map[int]uint64{6: 0, 7: 5, 9: 5} {
		here, _ := wallScript(plan{abi: abi})
		alone, _ := wallScript(plan{abi: abi, plain: &plain{uid: -1}})
		fork, _ := childWalls(plan{abi: abi})
		for kind, s := range map[string]*script{"namespaces": here, "plain": alone, "fork": fork} {
			found := 0
			for _, c := range s.calls {
				if c.nr != unix.SYS_LANDLOCK_RESTRICT_SELF {
					continue
				}
				found++
				if c.arg[1] != want {
					t.Errorf("%s, ABI %d: flags of Landlock: got %d, want %d", kind, abi, c.arg[1], want)
				}
			}
			if found != 1 {
				t.Errorf("%s: got %d Landlock domains, want 1", kind, found)
			}
		}
	}
}

// A sandbox does not set its name. That would wake every program of other sandboxes that
// polls /proc/sys/kernel/hostname.
func TestNoSandboxSetsItsName(t *testing.T) {
	s, _ := wallScript(plan{abi: landlockABI(), root: true, tasks: 1, wantProc: true, notices: true})
	for i, c := range s.calls {
		if c.nr == unix.SYS_SETHOSTNAME {
			t.Errorf("call %d, %q, sets the name; want none that does", i, s.names[i])
		}
	}
}
