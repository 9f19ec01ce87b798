package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxDirectories is how many directories the programs of a sandbox may have open. As long as a directory is open, a
// file system may keep the names that it has read from it. No memory limit counts them. ext4 keeps one block of
// names, which is up to 22 KiB, and Btrfs 4 KiB.
const maxDirectories = 4096

// overDirectories returns a description if the processes have too many directories open, and "" otherwise. tasks is the number
// of their tasks. It reads the calls of tasks and single descriptors only if the processes could have too many directories.
// That can take longer than one look, because programs can make such a read wait. A later look then gets the result.
func (s *Target) overDirectories(o *Objects, processes []string, tasks int) string {
	files := 0
	for _, p := range processes {
		files += countFiles(filesOf(p))
	}
	if s.directories.idle() && files+tasks*mostSent <= maxDirectories {
		return ""
	}
	excess, done := ask(o, s, &s.directories, "open directories", func() string {
		if files+filesSent(processes) <= maxDirectories {
			return ""
		}
		return excessOfDirectories(processes, maxDirectories)
	})
	if !done {
		s.counted = -idleCPU // count it again
	} else {
		s.restFrom(time.Now(), excess.took)
	}
	return excess.value
}

// excessOfDirectories is overDirectories for a bound, most. Descriptors that a process hides count as directories. So do the
// files that a waiting sendmsg may keep.
func excessOfDirectories(processes []string, most int) string {
	found := filesSent(processes)
	for _, p := range processes {
		if found > most {
			break
		}
		found += directoriesOf(p, most-found)
	}
	if found <= most {
		return ""
	}
	return fmt.Sprintf("more than %d open directories", most)
}

// directoriesOf counts the open directories of a process, until they are more than most.
func directoriesOf(p string, most int) int {
	dir := filesOf(p)
	names, err := readNames(dir)
	found := hiddenFiles(dir, err)
	for _, name := range names {
		var st unix.Statx_t // without asking the server of a network file system
		if unix.Statx(unix.AT_FDCWD, dir+"/"+name, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			found++
		}
		if found > most {
			break
		}
	}
	return found
}

// hiddenFiles returns how many descriptors a process has if its directory of descriptors in /proc, dir, could not be read. err
// is the error of that read. For a process that is ending, which cannot be read either, it returns 0.
func hiddenFiles(dir string, err error) int {
	if err == nil || errors.Is(err, fs.ErrNotExist) || !lives(filepath.Dir(dir)) {
		return 0
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	return int(info.Size()) // the number of descriptors; 0 before Linux 6.2
}

// filesOf returns the directory in /proc with the descriptors of a process. That of its first thread is empty once
// this thread has ended, or is ending; filesOf then returns the one of another thread. All threads have the same descriptors: the
// seccomp filter refuses others.
func filesOf(p string) string {
	dir := "/proc/" + p
	if info, err := os.Stat(dir + "/fd"); err == nil && info.Size() > 0 {
		return dir + "/fd"
	}
	text, _ := os.ReadFile(dir + "/status")
	_, shows := inStatus(string(text), "VmSize") // a thread loses its memory before its descriptors
	if threads, _ := inStatus(string(text), "Threads"); shows || threads == "1" {
		return dir + "/fd"
	}
	tasks, _ := readNames(dir + "/task")
	for _, t := range tasks {
		if t == p { // an ordinary user may not even list it
			continue
		}
		files := dir + "/task/" + t + "/fd"
		if names, err := readNames(files); len(names) > 0 || errors.Is(err, fs.ErrPermission) {
			return files
		}
	}
	return dir + "/fd"
}
