package jail

import (
	"os"
	"path"
)

// kernelPlace is a directory of the template that covers /proc/sys. For each read of a file there the kernel takes
// as much memory as the read asks for, up to 4 MiB, which no memory limit counts.
const kernelPlace = "/etc/sandbox-sysctl"

// kernelFiles are the files of /proc/sys that programs and libraries read. The directory has copies of them, and
// so neither the files of a network namespace nor those that change with each read. A kernel may lack some.
var kernelFiles = [...]string{
	"fs/file-max", "fs/nr_open", "fs/pipe-max-size", "fs/pipe-user-pages-soft",
	"kernel/cap_last_cap", "kernel/domainname", "kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/ngroups_max",
	"kernel/osrelease", "kernel/ostype", "kernel/pid_max", "kernel/random/boot_id", "kernel/random/entropy_avail",
	"kernel/random/poolsize", "kernel/randomize_va_space", "kernel/sem", "kernel/shmall", "kernel/shmmax", "kernel/shmmni",
	"kernel/threads-max", "kernel/version", "kernel/yama/ptrace_scope",
	"vm/max_map_count", "vm/mmap_min_addr", "vm/overcommit_memory", "vm/overcommit_ratio", "vm/swappiness",
}

// kernelValues are files of /proc/sys whose values in a sandbox are not those of the server.
var kernelValues = [...][2]string{
	{"kernel/hostname", "sandbox\n"},
	{"net/core/somaxconn", "128\n"},
	{"net/ipv4/ip_local_port_range", "32768\t60999\n"},
	{"net/ipv4/ip_unprivileged_port_start", "1024\n"},
}

// copyKernelFiles makes kernelPlace in the template. procSys is /proc/sys of the host.
func (s *script) copyKernelFiles(procSys string, made map[string]bool) {
	write := func(name string, text []byte) {
		s.mkdirs(path.Join(kernelPlace, path.Dir(name)), made)
		s.file(path.Join(kernelPlace, name), text)
	}
	for _, f := range kernelFiles {
		if b, err := os.ReadFile(path.Join(procSys, f)); err == nil {
			write(f, b)
		}
	}
	for _, f := range kernelValues {
		write(f[0], []byte(f[1]))
	}
}
