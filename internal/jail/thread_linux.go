package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ThreadRule is a file or directory that a confined thread may use, with everything below it.
type ThreadRule struct {
	Path  string // without links: what one leads to may not be used
	Read  bool   // read files
	List  bool   // list directories
	Exec  bool   // execute files
	Write bool   // write, make and remove files and directories
}

// rights returns the Landlock rights of a rule.
func (p ThreadRule) rights(dir bool, fs uint64) uint64 {
	var r uint64
	if p.Read {
		r |= llReadFile
	}
	if p.List {
		r |= llReadDir
	}
	if p.Exec {
		r |= llExecute
	}
	if p.Write {
		r |= fs &^ (llExecute | llReadFile | llReadDir | llIoctlDev)
	}
	if !dir {
		r &= llExecute | llWriteFile | llReadFile | llTruncate | llIoctlDev
	}
	return r & fs
}

// erratumSignals is the bit of the Landlock erratum by which threads of one process may signal
// each other although signals are scoped.
const erratumSignals = 1 << 1

// ThreadRules returns rules for [ConfineThread], or nil if the kernel has no Landlock. A rule for a path that is not there has no effect.
// ThreadRules opens the paths, and a file system that does not answer can keep it waiting for ever. The caller closes the file.
func ThreadRules(list []ThreadRule) (*os.File, error) {
	abi := landlockABI()
	if abi == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	fd, err := ruleset(abi, list)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "landlock"), nil
}

// ConfineThread confines the calling thread, and every process that it starts, for ever: it
// gets no further privileges, and may use only what the rules name. It returns the walls that were
// observed. The rules are those of [ThreadRules]. If they are nil, because the kernel has no Landlock, the walls
// do not have Landlock, and err is nil.
//
// Preconditions: the caller has locked its goroutine to the thread, which is not the main
// thread, and never unlocks it.
func ConfineThread(rules *os.File) (walls []string, err error) {
	if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("no_new_privs: %w", err)
	}
	if v, failed := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); failed != nil || v != 1 {
		return nil, errors.New("no_new_privs was not set")
	}
	walls = []string{WallNNP}
	if err = dropAround(); err != nil {
		return nil, err
	}
	if rules == nil {
		return walls, nil
	}
	abi := landlockABI()
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules.Fd(), uintptr(quiet(abi)), 0); e != 0 {
		return nil, fmt.Errorf("landlock: %w", e)
	}
	fd, err := unix.Open("/proc/thread-self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0) // a file that a thread may otherwise write
	if err == nil {
		closeAll(fd)
		return nil, errors.New("landlock does not hold")
	}
	switch {
	case errors.Is(err, unix.EACCES):
		walls = append(walls, landlockWall(abi))
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM): // it may hold, but that was not observed
		return nil, fmt.Errorf("landlock: %w", err)
	}
	return walls, nil
}

// kept are the capabilities of root that the programs of a confined thread may have: to read and write files of others, to take over
// their rights, to signal them and to listen at low ports. Landlock holds all of that. Each other capability gets around it, or around
// what else keeps such programs from others: for example, one with CAP_PERFMON reads the environment of any process, with CAP_NET_ADMIN it puts interfaces
// into the networks of sandboxes, and with CAP_SYS_RESOURCE it raises its limits.
var kept = []int{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE}

// dropAround takes the calling thread all capabilities but those kept. Programs that the thread starts do not get them back, because of no_new_privs.
func dropAround() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var mask [2]uint32
	for _, c := range kept {
		mask[c/32] |= 1 << (c % 32)
	}
	for i, keep := range mask {
		sets[i].Effective, sets[i].Permitted, sets[i].Inheritable = sets[i].Effective&keep, sets[i].Permitted&keep, sets[i].Inheritable&keep
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// DropTracing drops the calling thread's capability to trace processes of other users. The thread then cannot follow the links of these
// processes in /proc, such as /proc/PID/root.
//
// Preconditions: as for [ConfineThread].
func DropTracing() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	const tracing = 1 << unix.CAP_SYS_PTRACE
	sets[0].Effective, sets[0].Permitted, sets[0].Inheritable = sets[0].Effective&^tracing, sets[0].Permitted&^tracing, sets[0].Inheritable&^tracing
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// ruleset returns a Landlock ruleset. The caller closes it.
func ruleset(abi int, list []ThreadRule) (fd int, err error) {
	fs := handledFS(abi)
	attr := binary.LittleEndian.AppendUint64(nil, fs)
	attr = binary.LittleEndian.AppendUint64(attr, 0)
	size := 8
	if abi >= 4 {
		size = 16
	}
	if abi >= 6 {
		scope := uint64(llScopeSockets)
		if errata, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 2 /* LANDLOCK_CREATE_RULESET_ERRATA */); e == 0 && errata&erratumSignals != 0 {
			scope |= llScopeSignals
		}
		attr, size = binary.LittleEndian.AppendUint64(attr, scope), 24
	}
	r, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr[0])), uintptr(size), 0)
	if e != 0 {
		return -1, fmt.Errorf("landlock ruleset: %w", e)
	}
	for _, p := range list {
		if err := allowPlace(int(r), p, fs); err != nil {
			closeAll(int(r))
			return -1, err
		}
	}
	return int(r), nil
}

func allowPlace(rules int, p ThreadRule, fs uint64) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, p.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil { // it is not there, or behind a link, so it cannot be used
		return nil
	}
	defer closeAll(fd)
	var st unix.Statx_t // only what the kernel knows already: a user's file system, mounted in a home, may never answer
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return err
	}
	rights := p.rights(st.Mode&unix.S_IFMT == unix.S_IFDIR, fs)
	if rights == 0 {
		return nil
	}
	attr := binary.LittleEndian.AppendUint64(nil, rights)
	attr = binary.LittleEndian.AppendUint32(attr, uint32(fd))
	if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), 1 /* LANDLOCK_RULE_PATH_BENEATH */, uintptr(unsafe.Pointer(&attr[0])), 0, 0, 0); e != 0 {
		return fmt.Errorf("landlock rule for %s: %w", p.Path, e)
	}
	return nil
}
