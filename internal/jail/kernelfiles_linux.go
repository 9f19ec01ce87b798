package jail

import (
	"path"

	"golang.org/x/sys/unix"
)

// kernelPlace is a directory of the template that covers /proc/sys. For each read of a file there the kernel takes
// as much memory as the read asks for, up to 4 MiB, which no memory limit counts.
const kernelPlace = "/etc/sandbox-sysctl"

// kernelFiles are files of /proc/sys that programs and libraries read, but those of a network namespace and those
// that change with each read. The directory has copies of them. A kernel may lack some. Each file delays the first
// sandbox of a server by some 40 µs.
var kernelFiles = [...]string{
	"fs/nr_open", "fs/pipe-max-size", "kernel/cap_last_cap", "kernel/pid_max", "kernel/random/boot_id", "kernel/threads-max",
	"vm/max_map_count", "vm/overcommit_memory",
}

// kernelValues returns files of /proc/sys whose values are known: they are constants of the kernel, or those
// of a new namespace.
func kernelValues() [][2]string {
	values := [][2]string{
		{"kernel/hostname", "sandbox"},
		{"kernel/ngroups_max", "65536"},
		{"kernel/ostype", "Linux"},
		{"net/core/somaxconn", "128"},
		{"net/ipv4/ip_local_port_range", "32768\t60999"},
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		values = append(values, [2]string{"kernel/osrelease", unix.ByteSliceToString(name.Release[:])}, [2]string{"kernel/version", unix.ByteSliceToString(name.Version[:])})
	}
	return values
}

// copyKernelFiles makes kernelPlace in the template. procSys is /proc/sys of the host.
func (s *script) copyKernelFiles(procSys string, made map[string]bool) {
	write := func(name string, text []byte) {
		s.mkdirs(path.Join(kernelPlace, path.Dir(name)), made)
		s.file(path.Join(kernelPlace, name), text)
	}
	for _, f := range kernelFiles {
		if text := readLine(path.Join(procSys, f)); len(text) > 0 {
			write(f, text)
		}
	}
	for _, f := range kernelValues() {
		write(f[0], []byte(f[1]+"\n"))
	}
}

// readLine reads a file of /proc with few system calls, because they delay the first sandbox. On error it
// returns nil.
func readLine(name string) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer closeAll(fd)
	var b [128]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return nil
	}
	return b[:n]
}
