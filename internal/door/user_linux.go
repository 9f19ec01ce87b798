package door

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ownUser reports whether the program at the other end of a connection on this machine has
// the user of this process, and is not this process itself: it also connects to addresses
// that programs in sandboxes name. If that cannot be found out, it reports false.
func ownUser(c net.Conn) bool {
	for { // the listener's wrappers
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	if !usersAreKnown() {
		return false
	}
	switch c := c.(type) {
	case *net.UnixConn:
		uid, pid, err := unixPeer(c)
		return err == nil && uid == os.Geteuid() && pid != os.Getpid()
	case *net.TCPConn:
		s, err := findSocket(c.RemoteAddr(), c.LocalAddr())
		return err == nil && s.uid == os.Geteuid() && !ownSocket(s.inode)
	}
	return false
}

// usersAreKnown reports whether user ids that the kernel shows are those of users. In a user
// namespace that maps some of them only, all others look like one id.
func usersAreKnown() bool {
	if text, err := os.ReadFile("/proc/self/uid_map"); err == nil {
		if f := strings.Fields(string(text)); len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == "4294967295" {
			return true
		}
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	return err == nil && strings.TrimSpace(string(text)) != strconv.Itoa(os.Geteuid())
}

func unixPeer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	if failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); failed != nil {
		return 0, 0, failed
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}

// socket is a connection of this network namespace as the kernel lists it.
type socket struct {
	uid   int
	inode string
}

var errNoSocket = errors.New("the connection is not listed")

// findSocket finds the connection from local to remote. It finds open connections alone: the
// kernel shows those that a program has closed as those of root.
func findSocket(local, remote net.Addr) (socket, error) {
	from, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return socket{}, err
	}
	to, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return socket{}, err
	}
	for _, family := range []struct {
		file string
		six  bool
	}{{"/proc/self/net/tcp", false}, {"/proc/self/net/tcp6", true}} {
		if !family.six && !from.Addr().Unmap().Is4() {
			continue
		}
		s, err := searchSockets(family.file, hexAddr(from, family.six), hexAddr(to, family.six))
		if err == nil {
			return s, nil
		}
	}
	return socket{}, errNoSocket
}

// searchSockets reads a list of the kernel up to a connection.
func searchSockets(file, from, to string) (socket, error) {
	f, err := os.Open(file)
	if err != nil {
		return socket{}, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadString('\n')
		if strings.Contains(line, to) {
			if s, ok := parseSocket(line, from, to); ok {
				return s, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return socket{}, errNoSocket
		}
		if err != nil {
			return socket{}, err
		}
	}
}

// established is the state of an open connection in the kernel's list.
const established = "01"

// parseSocket parses a line of /proc/net/tcp if it is that of an open connection with both
// addresses.
func parseSocket(line, from, to string) (socket, bool) {
	f := strings.Fields(line)
	if len(f) < 10 || f[1] != from || f[2] != to || f[3] != established || f[9] == "0" {
		return socket{}, false
	}
	uid, err := strconv.Atoi(f[7])
	return socket{uid: uid, inode: f[9]}, err == nil
}

// hexAddr writes an address as /proc/net/tcp and tcp6 do: 32-bit words in the byte order of
// the machine, which is little-endian wherever this runs.
func hexAddr(a netip.AddrPort, six bool) string {
	bytes := a.Addr().Unmap().AsSlice()
	if six {
		b := a.Addr().As16()
		bytes = b[:]
	}
	bytes = slices.Clone(bytes)
	for word := range slices.Chunk(bytes, 4) {
		slices.Reverse(word)
	}
	return strings.ToUpper(hex.EncodeToString(bytes)) + fmt.Sprintf(":%04X", a.Port())
}

// ownSocket reports whether this process has a socket open. If that cannot be found out, it
// reports true.
func ownSocket(inode string) bool {
	const dir = "/proc/self/fd"
	d, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, n := range names {
		if to, err := os.Readlink(dir + "/" + n); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
