package jail

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// rlimits are the resource limits of a process, by their number.
type rlimits [16]unix.Rlimit

// limitsOf reads the limits of a process. It asks for each, which takes a third of the time that the text of /proc/PID/limits
// takes. The caller looks afterwards whether the process still lives, because its id may be another's.
func limitsOf(pid int) (l rlimits, err error) {
	for i := range l {
		if err = unix.Prlimit(pid, i, nil, &l[i]); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.EPERM) {
		if err != nil {
			err = fmt.Errorf("observe limits: %w", err)
		}
		return l, err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits") // other users, and other groups, may read it
	if err != nil {
		return l, fmt.Errorf("observe limits: %w", err)
	}
	return limitsIn(string(text))
}

// limitsIn parses the text of /proc/PID/limits: a head, and the limits in the order of their numbers.
func limitsIn(text string) (l rlimits, err error) {
	const soft, hard, unit = 26, 47, 68 // columns
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != 1+len(l) {
		return l, fmt.Errorf("observe limits: got %d lines, want %d", len(lines), 1+len(l))
	}
	value := func(column string) uint64 {
		if column = strings.TrimSpace(column); column == "unlimited" {
			return unix.RLIM_INFINITY
		}
		n, bad := strconv.ParseUint(column, 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	for i, line := range lines[1:] {
		if len(line) < unit {
			return l, fmt.Errorf("observe limits: the line %q is short", line)
		}
		l[i] = unix.Rlimit{Cur: value(line[soft:hard]), Max: value(line[hard:unit])}
	}
	return l, err
}

// tasksLimited reports whether the task limit is set and at most want. The limit is lower
// than want if the server's own limit is lower.
func (l *rlimits) tasksLimited(want int) bool {
	if l == nil {
		return false
	}
	n := l[unix.RLIMIT_NPROC]
	return n.Cur == n.Max && n.Max <= uint64(want)
}

// butFiles returns the limits without that of open files: if the sandbox runs as
// the server's own user, its programs get fewer than init, see ownFiles.
func (l *rlimits) butFiles() rlimits {
	others := *l
	others[unix.RLIMIT_NOFILE] = unix.Rlimit{}
	return others
}
