package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hostRoot has the ids of the host's root and of its group, as this process's user namespace shows
// them; "": no process has it here. A user namespace may show root as any id, and
// shows every id that it does not map as the overflow id.
type hostRoot struct{ uid, gid string }

// overflowID stands for the ids that a user namespace does not map (kernel.overflowuid).
const overflowID = "65534"

// rootSetting belongs to the host's root in every user namespace, and only root may write it. The kernel
// compares the user alone and asks for no capability.
const rootSetting = "/proc/sys/kernel/panic"

// findHostRoot looks at the owner of /proc, which is the host's root, whichever user namespace has mounted it.
// If an id could be root's and this cannot be ruled out, it counts as root's.
func findHostRoot() (hostRoot, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Statfs("/proc", &fs), unix.Stat("/proc", &st)); err != nil {
		return hostRoot{}, fmt.Errorf("look at /proc: %w", err)
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return hostRoot{}, errNoProc
	}
	r := hostRoot{strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))}
	if r.uid == overflowID && !mayBeHostRoot(unix.Faccessat(unix.AT_FDCWD, rootSetting, unix.W_OK, unix.AT_EACCESS)) {
		r.uid = ""
	}
	groups, err := os.ReadFile("/proc/self/gid_map")
	if err != nil {
		return hostRoot{}, fmt.Errorf("look at ids: %w", err)
	}
	if r.gid == overflowID && mapsID(string(groups), overflowID) {
		r.gid = "" // root's group is not mapped, so a process with this id has the mapped one
	}
	return r, nil
}

// mayBeHostRoot reports whether the error of an attempt to write rootSetting leaves open that this process is root.
func mayBeHostRoot(err error) bool {
	return !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM)
}

// mapsID reports whether the lines of a uid_map or gid_map, of which there may be several, have an id inside.
func mapsID(text, id string) bool {
	want, err := strconv.ParseUint(id, 10, 32)
	f := strings.Fields(text)
	for ; err == nil && len(f) >= 3; f = f[3:] {
		first, bad := strconv.ParseUint(f[0], 10, 32)
		count, worse := strconv.ParseUint(f[2], 10, 32)
		if bad == nil && worse == nil && want >= first && want-first < count {
			return true
		}
	}
	return false
}

// among reports whether one of a process's ids, as the lines Uid and Gid of its status show them, is root's.
func (r hostRoot) among(uids, gids []string) bool {
	return r.uid != "" && slices.Contains(uids, r.uid) || r.gid != "" && slices.Contains(gids, r.gid)
}

var (
	errNoProc      = errors.New("/proc is not mounted here")
	errForeignProc = errors.New("/proc shows the processes of another pid namespace: mount a new one (unshare --mount-proc)")
)

// checkProc fails unless /proc shows this process by its own process id. Otherwise, walls would be read from
// processes that have nothing to do with the sandbox.
func checkProc() error {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return errNoProc
	}
	if link != strconv.Itoa(os.Getpid()) {
		return errForeignProc
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("look at /proc: %w", err)
	}
	if ids := strings.Fields(fields(string(status), "NSpid")["NSpid"]); len(ids) > 1 { // its number in each namespace below that of the mount
		return errForeignProc
	}
	return nil
}
