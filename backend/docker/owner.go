package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// Labels of containers. An owner is the server's process: its machine, the machine's boot, the pid namespace with the time
// namespace, the process id in the first, and the time at which it was started by the second. No later process has the same.
const (
	labelOwner   = "sandboxmcp.owner"
	labelSandbox = "sandboxmcp.sandbox"
)

// self returns this process as an owner. Where there is no /proc, no other process knows whether it has ended.
func self() (string, error) {
	if runtime.GOOS != "linux" {
		return machine() + "/" + runtime.GOOS + "/" + strconv.Itoa(os.Getpid()), nil
	}
	return ownerOf(strconv.Itoa(os.Getpid()))
}

// machine returns a name of this machine that other machines which use the same engine do not have.
func machine() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(strings.TrimSpace(string(id))) == 0 {
		host, _ := os.Hostname() // an empty one is shared by machines whose names are not known
		id = []byte("host " + host)
	}
	sum := sha256.Sum256([]byte("sandboxmcp " + strings.TrimSpace(string(id)))) // the id itself is not for others
	return hex.EncodeToString(sum[:8])
}

func ownerOf(pid string) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	clock, _ := os.Readlink("/proc/self/ns/time") // older kernels have none
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	f := strings.Fields(rest)
	const startTime = 19 // field 22 of proc(5), counted after the name
	if len(f) <= startTime {
		return "", errors.New("/proc has no start time of a process")
	}
	return strings.Join([]string{machine(), strings.TrimSpace(string(boot)), space + clock, pid, f[startTime]}, "/"), nil
}

// dead reports whether an owner has certainly ended. It returns false if that is not known, as for a
// server on another machine, or in another pid or time namespace. here says that the engine is on this machine: none of
// its containers lives from an earlier boot to this one.
func dead(owner string, here bool) bool {
	us, err := self()
	f, own := strings.Split(owner, "/"), strings.Split(us, "/")
	switch {
	case err != nil || len(f) != 5 || len(own) != 5 || f[0] != own[0]:
		return false
	case f[1] != own[1]:
		return here
	case f[2] != own[2]:
		return false
	}
	now, err := ownerOf(f[3])
	return err == nil && now != owner || unused(f[3])
}

// unused reports whether no process has an id. It asks the kernel, because /proc may hide the processes of other users
// (hidepid).
func unused(pid string) bool {
	id, err := strconv.Atoi(pid)
	if err != nil || id <= 0 {
		return false
	}
	p, err := os.FindProcess(id)
	if err == nil {
		err = p.Signal(syscall.Signal(0))
	}
	return errors.Is(err, os.ErrProcessDone)
}

// sweep removes the containers of dead servers. A failure leaves them for a later server.
func (e *Engine) sweep(ctx context.Context, api *dockerapi.Client) {
	list, err := api.ContainerList(ctx, labelOwner)
	if err != nil {
		e.cfg.Logger.Warn("look for containers of dead servers", "error", err)
		return
	}
	for _, c := range list {
		if !dead(c.Labels[labelOwner], e.cfg.local()) || e.inherits(ctx, api, c) {
			continue
		}
		err := hasten(ctx, api, c.ID)
		e.cfg.Logger.Info("container of a dead server removed", "container", c.ID, "error", err)
	}
	sweepDirs(e.cfg.Dir, spaceEnded)
}

// dirPrefix begins the names of this process's directories: its id, and the pid namespace in which it has that.
func dirPrefix() string { return strconv.Itoa(os.Getpid()) + "." + pidSpace() + "-" }

// pidSpace returns the number of this process's pid namespace, or nothing if it is not known.
func pidSpace() string {
	space, _ := os.Readlink("/proc/self/ns/pid")
	return strings.Trim(space, "pid:[]")
}

// sweepDirs removes directories of dead servers. Servers in containers may share dir, and each has process ids of
// its own. ended reports whether the pid namespace of another server has certainly ended.
func sweepDirs(dir string, ended func(space string) bool) {
	all, _ := os.ReadDir(dir)
	gone := map[string]bool{pidSpace(): false} // by namespace, as each question reads all of /proc
	for _, d := range all {
		owner, _, _ := strings.Cut(d.Name(), "-")
		pid, space, _ := strings.Cut(owner, ".")
		if space == "" { // of an older release, or of a server that does not know its namespace; it may live
			continue
		}
		if _, known := gone[space]; !known {
			gone[space] = ended(space)
		}
		if space == pidSpace() && unused(pid) || gone[space] {
			_ = os.RemoveAll(filepath.Join(dir, d.Name()))
		}
	}
}

// spaceEnded reports whether no process has a pid namespace any more. Only the first namespace of the machine shows
// the processes of all others.
func spaceEnded(space string) bool {
	const first = "4026531836" // PROC_PID_INIT_INO
	if pidSpace() != first {
		return false
	}
	all, err := os.ReadDir("/proc")
	whole := false
	for _, d := range all {
		if d.Name() == "1" { // it has the first one, and may not be readable
			whole = true // without it, processes of other users are hidden (hidepid)
			continue
		}
		if _, other := strconv.Atoi(d.Name()); other != nil {
			continue
		}
		of, failed := os.Readlink("/proc/" + d.Name() + "/ns/pid")
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) || strings.Trim(of, "pid:[]") == space {
			return false
		}
	}
	return err == nil && whole
}

// inherits reports whether a container may have got the label of its owner from its image. If a person makes an image of
// a sandbox (docker commit), the image has the labels of the sandbox, and so do the containers of that image. No server
// has made these containers.
func (e *Engine) inherits(ctx context.Context, api *dockerapi.Client, c dockerapi.Listed) bool {
	i, err := api.ImageInspect(ctx, c.Image)
	if dockerapi.IsNotFound(err) { // images of containers that live are not removed
		return false
	}
	return err != nil || i.Config.Labels[labelOwner] == c.Labels[labelOwner]
}
