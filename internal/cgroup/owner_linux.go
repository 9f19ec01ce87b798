package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The name of a tree's directory is sandboxmcp-<pid>-<start>-<n>: the owner's process id,
// its start time in ticks since boot, and a number for several trees of one process.
// Cgroups do not survive a reboot, so pid and start time identify the process. The owner
// also holds a lock on the directory. It shows a server in another pid namespace, which
// cannot interpret the pid, that the owner lives.
const ownerPrefix = "sandboxmcp-"

func ownerName(root string) (string, error) {
	start, err := startTime(root + "/proc/self/stat")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%d", ownerPrefix, os.Getpid(), start), nil
}

// startTime returns field 22 of a stat file of /proc. The second field is a name in
// parentheses and may contain any character.
func startTime(path string) (uint64, error) {
	var buf [4096]byte // the file has a few hundred bytes
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	text := buf[:n]
	_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return 0, fmt.Errorf("read %s: no start time", path)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// alive reports whether the owner of a directory lives, judged by the name. ok is false if
// the name is not that of a tree; such a directory must not be touched.
func alive(root, name string) (lives, ok bool) {
	rest, ours := strings.CutPrefix(name, ownerPrefix)
	parts := strings.Split(rest, "-")
	if !ours || len(parts) < 3 {
		return false, false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid < 1 {
		return false, false
	}
	start, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return false, false
	}
	now, err := startTime(fmt.Sprintf("%s/proc/%d/stat", root, pid))
	switch {
	case err == nil:
		return now == start, true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return false, true
	default: // the process is hidden or its file unreadable, so assume that it lives
		return true, true
	}
}

// lock takes the owner's lock. The kernel releases it with the last copy of the descriptor,
// at the latest when the process ends.
func lock(dir *os.File) error {
	return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// sweep removes the directories of dead owners in base that have no processes, and returns
// how many it has removed.
func sweep(root, base string, plain bool) (int, error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0, fmt.Errorf("sweep control groups: %w", err)
	}
	removed := 0
	var errs []error
	for _, e := range entries {
		lives, ok := alive(root, e.Name())
		if !e.IsDir() || !ok || lives {
			continue
		}
		gone, err := sweepOwner(filepath.Join(base, e.Name()), plain)
		if gone {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

func sweepOwner(path string, plain bool) (bool, error) {
	dir, err := openDirectory(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // another server swept it
	}
	if err != nil {
		return false, fmt.Errorf("sweep control groups: %w", err)
	}
	defer dir.Close()
	if lock(dir) != nil {
		return false, nil // the owner lives in another pid namespace
	}
	if plain {
		return true, os.RemoveAll(path)
	}
	err = removeEmpty(path, 3)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EBUSY): // processes of a server that has just died; the next sweep removes it
		return false, nil
	default:
		return false, fmt.Errorf("sweep control groups: %w", err)
	}
}

// removeEmpty removes a group and the groups below it. It does not end processes.
func removeEmpty(path string, depth int) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && depth > 0 {
			errs = append(errs, removeEmpty(filepath.Join(path, e.Name()), depth-1))
		}
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, fmt.Errorf("remove %s: %w", path, err))
	}
	return errors.Join(errs...)
}
