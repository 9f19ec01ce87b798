package jail

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallLimits are the kernel parameters that init/net.c sets in each network namespace. An older kernel may lack the last two.
var smallLimits = [...][2]string{
	{"ipv4/tcp_rmem", "4096\t16384\t262144"},
	{"ipv4/tcp_wmem", "4096\t16384\t262144"},
	{"core/somaxconn", "128"},
	{"ipv4/tcp_max_tw_buckets", "1024"},
	{"core/tstamp_allow_data", "0"},
	{"core/optmem_max", "4096"},
}

// spawnerNetwork returns the network namespace of the next free spawner, in the form of /proc/PID/ns/net, and the
// values of smallLimits in it. A value is empty if the kernel lacks the parameter there.
func spawnerNetwork(t *testing.T, j *Jail) (name string, values []string) {
	t.Helper()
	network := &script{}
	network.give(network.keep("open the network namespace", unix.SYS_OPENAT, num(unix.AT_FDCWD), network.str("/proc/self/ns/net"), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0)))
	scripts := []*script{network}
	for _, l := range smallLimits {
		s := &script{}
		s.give(s.keep("open "+l[0], unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str("/proc/sys/net/"+l[0]), num(unix.O_RDONLY|unix.O_CLOEXEC), num(0)))
		scripts = append(scripts, s)
	}
	for i, s := range scripts {
		fds, err := j.once(t.Context().Done(), s, nil)
		if i > 0 && errors.Is(err, unix.ENOENT) {
			values = append(values, "")
			continue
		}
		if err != nil || len(fds) != 1 {
			t.Fatalf("a script in the spawner's network namespace: got %d descriptors, %v; want 1", len(fds), err)
		}
		var st unix.Stat_t
		var b [128]byte
		n := 0
		if i == 0 {
			err = unix.Fstat(fds[0], &st)
			name = fmt.Sprintf("net:[%d]", st.Ino)
		} else {
			n, err = unix.Read(fds[0], b[:])
			values = append(values, strings.TrimSpace(string(b[:max(n, 0)])))
		}
		closeAll(fds...)
		if err != nil {
			t.Fatal(err)
		}
	}
	return name, values
}

// TestFirstSpawnerHasANetworkOfItsOwn: when the jail has started, its first spawner is in a new network namespace, neither
// the server's nor the builder's, with the limits of a sandbox's. The first sandbox gets it, and the second another. No process of the
// jail keeps a descriptor of it.
func TestFirstSpawnerHasANetworkOfItsOwn(t *testing.T) {
	if most, err := os.ReadFile("/proc/sys/user/max_net_namespaces"); err == nil && (string(most) == "0\n" || string(most) == "1\n") {
		t.Skip("two network namespaces cannot be made")
	}
	j, err := Open(testConfig(t)) // one spawner
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	before, values := spawnerNetwork(t, j)
	for _, pid := range []string{"self", strconv.Itoa(j.pid)} {
		if theirs, err := os.Readlink("/proc/" + pid + "/ns/net"); err != nil || theirs == before {
			t.Errorf("the spawner's network namespace is that of process %s: %s, %v; want another", pid, theirs, err)
		}
	}
	for i, l := range smallLimits {
		if got := values[i]; got != l[1] && (i < 4 || got != "") {
			t.Errorf("%s is %q, want %q", l[0], got, l[1])
		}
	}
	first, second := made(t, j), made(t, j)
	defer func() { _ = errors.Join(first.Close(), second.Close()) }()
	if got := networkOf(t, first); got != before {
		t.Errorf("the first sandbox is in %s, want %s, which was made for it", got, before)
	}
	if got := networkOf(t, second); got == before {
		t.Errorf("the second sandbox has the network namespace of the first, %s", got)
	}
	for _, pid := range append(Children(strconv.Itoa(j.pid)), strconv.Itoa(j.pid)) {
		fds, err := os.ReadDir("/proc/" + pid + "/fd")
		if err != nil || len(fds) == 0 {
			t.Errorf("the descriptors of process %s: got %d, %v", pid, len(fds), err)
		}
		for _, fd := range fds {
			if to, _ := os.Readlink("/proc/" + pid + "/fd/" + fd.Name()); strings.HasPrefix(to, "net:") || strings.HasPrefix(to, "mnt:") {
				t.Errorf("process %s has descriptor %s of %s, want none of a namespace", pid, fd.Name(), to)
			}
		}
	}
}
