package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// ContainerDir is where a container of ModeContainer sees the directory of its init, read-only.
// The container's program is ContainerInit.
const (
	ContainerDir  = "/.sandboxmcp"
	ContainerInit = ContainerDir + "/init"
)

// ReserveUID returns a user id of the jail's block for a container, which no other sandbox has. The
// caller passes it to Adopt, or returns it by ReleaseUID.
func (j *Jail) ReserveUID() int { return j.cfg.FirstUID + int(j.takeID()) }

// ReleaseUID returns a user id that was not passed to Adopt.
func (j *Jail) ReleaseUID(uid int) { j.giveID(uint32(uid - j.cfg.FirstUID)) }

// ContainerTmpfs returns the options of the file systems in memory that a container of
// ModeContainer has, by path. uid is the user and group of its init.
func ContainerTmpfs(z Size, uid int) map[string]string {
	all := map[string]string{AttachDir: "ro,nosuid,nodev,mode=755,size=4096,nr_inodes=2"}
	for _, at := range bounds.Places(z.WorkBytes, z.WorkInodes, z.TempBytes) {
		all[at.Path] = at.EngineOptions() + fmt.Sprintf(",uid=%d,gid=%d", uid, uid)
	}
	return all
}

// A Door is where the init of one container connects.
type Door struct {
	dir    string
	listen int
}

// OpenDoor makes a directory that is mounted at ContainerDir in the container: it holds init and the
// socket to which init connects. Its name begins with prefix. Only the server may enter parent. The
// caller closes the door when the container has ended.
func OpenDoor(parent, prefix string) (*Door, error) {
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	d := &Door{dir: dir, listen: -1}
	if err = os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the container's user has to pass through it
		return nil, errors.Join(err, d.Close())
	}
	err = writeInit(filepath.Join(dir, "init"))
	if err == nil {
		d.listen, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	}
	if err == nil {
		err = unix.Bind(d.listen, &unix.SockaddrUnix{Name: d.socket()})
	}
	if err == nil {
		err = os.Chmod(d.socket(), 0o666) //nolint:gosec // init connects as an ordinary user; the directory above is the server's own
	}
	if err == nil {
		err = unix.Listen(d.listen, 1)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the door of a container: %w", err), d.Close())
	}
	return d, nil
}

func writeInit(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555) //nolint:gosec // programs may read it: it is public
	if err != nil {
		return err
	}
	_, err = f.Write(initBytes)
	return errors.Join(err, f.Close())
}

// Dir returns the directory.
func (d *Door) Dir() string { return d.dir }

func (d *Door) socket() string { return filepath.Join(d.dir, "control") }

// Close removes the directory. Init stays in the container.
func (d *Door) Close() error {
	closeAll(d.listen)
	d.listen = -1
	return os.RemoveAll(d.dir)
}

// Wait waits until init connects and removes the socket, so that no program finds it. pid is the
// process id that the engine names as the container's; another process is refused. The caller
// closes both descriptors.
func (d *Door) Wait(ctx context.Context, pid int) (control, pidfd int, err error) {
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		return -1, -1, fmt.Errorf("the container has ended: %w", err)
	}
	control = -1
	for {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(d.listen), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
		if control, _, err = unix.Accept4(d.listen, unix.SOCK_CLOEXEC); err == nil {
			break
		}
		if err = ctx.Err(); err == nil && ended(pidfd) {
			err = errors.New("the container's init has ended before it connected")
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = os.Remove(d.socket())
	}
	if err == nil {
		var peer *unix.Ucred
		if peer, err = unix.GetsockoptUcred(control, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && int(peer.Pid) != pid {
			err = fmt.Errorf("process %d connected, and the container's is %d: the engine has to run on this machine, in the server's pid namespace", peer.Pid, pid)
		}
	}
	if err != nil {
		closeAll(control, pidfd)
		return -1, -1, err
	}
	return control, pidfd, nil
}

// Adopt makes a sandbox of a container whose init has connected, see Door. Init puts the walls of
// this package around itself, within those of the container. uid is the user of the container's
// init, from ReserveUID. Adopt takes ownership of it and of both descriptors. The caller closes the
// sandbox, which ends the container's processes. The jail is of ModeContainer.
func (j *Jail) Adopt(control, pidfd, uid int, cfg SlotConfig) (*Slot, error) {
	if cfg.Effort == nil {
		cfg.Effort = noEffort{}
	}
	s := &Slot{
		jail: j, pidfd: pidfd, uid: uid, own: uint32(uid - j.cfg.FirstUID), rules: -1, ptmx: -1, size: cfg.Size, network: -1, effort: cfg.Effort, Dirs: [5]int{-1, -1, -1, -1, -1},
		starting: map[uint32]*Proc{}, running: map[uint32]*Proc{}, answers: map[uint32]chan struct{}{}, gone: make(chan struct{}),
	}
	enc, err := j.encoded(cfg)
	if err == nil {
		s.probes = enc.probes
		packet := slices.Clone(enc.packet)
		binary.LittleEndian.PutUint32(packet[0:], 'M')
		binary.LittleEndian.PutUint32(packet[24:], makeHead)
		err = send(control, packet)
	}
	if err == nil {
		err = hearFor(control, answerLimit)
	}
	if err == nil {
		err = s.ready(control, enc.script)
	}
	if err == nil {
		if s.conn, err = newConn(control); err != nil {
			control = -1
		}
	}
	if err != nil {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		_ = waitPidfd(pidfd, 2*time.Second)
		closeAll(control, pidfd, s.rules)
		closeAll(s.Dirs[:]...)
		j.giveID(s.own)
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	go s.read()
	return s, nil
}

// containerPlaces makes the directories that programs expect in the container's own file systems,
// and opens them for the server.
func (s *script) containerPlaces() {
	s.do("mkdir "+programPlace, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(programPlace), num(0o755))
	s.do("symlink "+bridgePlace, unix.SYS_SYMLINKAT, s.str(programPlace+"/bridge"), num(unix.AT_FDCWD), s.str(bridgePlace))
	s.open("/mnt/data", programPlace, "/tmp")
}

// containerScript returns the builder's script of ModeContainer. It gives the builder a mount
// namespace of its own, in which trees are prepared for Attach.
func containerScript() *script {
	s := &script{}
	s.do("unshare", unix.SYS_UNSHARE, num(unix.CLONE_NEWNS))
	s.mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	s.mount("gallery", "/mnt", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k,nr_inodes=16")
	s.mkdir(galleryWork)
	s.gallery()
	return s
}

// containerOwn reports whether a mount of a container is one that the engine makes for it and that
// its user cannot write to: devices, terminals, queues and masks of files in /proc and /sys.
func containerOwn(place, kind string, options string) bool {
	switch {
	case place == "/dev":
		return kind == "tmpfs" && hasOption(options, "nosuid")
	case place == ptysPlace:
		return kind == "devpts"
	case place == "/dev/mqueue":
		return kind == "mqueue"
	case place == "/sys/fs/cgroup":
		return kind == "tmpfs" && hasOption(options, "nosuid")
	case strings.HasPrefix(place, "/proc/"): // of ReadonlyPaths and MaskedPaths; a mask of a file is the null device
		return kind == "proc" || kind == "tmpfs"
	}
	return false
}
