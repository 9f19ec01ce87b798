package jail

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Builder is the first process of a jail. It makes what the jail shows when it is told, so it can be
// started before that is known.
type Builder struct {
	mode             Mode
	firstUID, cgroup int

	started             chan struct{} // closed when the fields below are set
	err                 error
	control, pid, pidfd int
	taken               atomic.Bool
}

// StartBuilder starts a builder, with these fields of a Config. Its namespaces are made in the background. The caller
// gives it to Open or closes it. Both wait for its start. A launcher that is not nil is used or closed; cgroup
// is then 0.
func StartBuilder(mode Mode, firstUID, cgroup int, launcher *Launcher) *Builder {
	b := &Builder{mode: mode, firstUID: firstUID, cgroup: cgroup, started: make(chan struct{})}
	goOn := b.begin(launcher)
	go func() {
		launcher := 0
		if goOn != nil {
			launcher = goOn()
		}
		if b.err != nil {
			b.err = fmt.Errorf("start builder: %w", b.err)
			closeAll(b.control)
		}
		failed := b.err != nil
		close(b.started)
		if launcher > 0 && !failed {
			await(launcher)
		}
	}()
	return b
}

// take returns the builder if it was started with these fields, was not taken before and lives; otherwise nil. A
// builder that has ended meanwhile says nothing of the walls that this machine can build.
func (b *Builder) take(cfg Config) *Builder {
	if b == nil || b.mode != cfg.Mode || b.firstUID != cfg.FirstUID || b.cgroup != cfg.Cgroup || b.taken.Swap(true) {
		return nil
	}
	<-b.started
	if b.err == nil && !ended(b.pidfd) {
		return b
	}
	b.end()
	return nil
}

// Close ends a builder that no jail has taken.
func (b *Builder) Close() {
	if b == nil || b.taken.Swap(true) {
		return
	}
	<-b.started
	b.end()
}

// end ends a builder that was started, or was tried to be.
func (b *Builder) end() {
	if b.err != nil {
		return
	}
	_ = unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0)
	await(b.pid)
	closeAll(b.control, b.pidfd)
}

// begin starts the builder, or its launcher unless it gets one. If it returns a function, that goes on with the launcher,
// and returns it.
func (b *Builder) begin(started *Launcher) (goOn func() (launcher int)) {
	l := launch{namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, cgroup: b.cgroup}
	switch b.mode {
	case ModeRoot: // the builder's uid 0 is the first host id of the block, never the host's root
		l.uid, l.size, l.ids, l.groups = idMap{0, b.firstUID}, idsPerBlock, true, true
		l.gid = l.uid
	case ModeUser:
		l.uid, l.gid, l.size = idMap{0, os.Geteuid()}, idMap{0, os.Getegid()}, 1
	case ModePlain, ModeContainer:
		started.Close()
		b.control, b.pid, b.err = l.connected(&b.pidfd)
		return nil
	}
	control, launcher, ok := started.take()
	if !ok {
		control, launcher, b.err = l.connected(nil)
	}
	if b.control = control; b.err != nil {
		return nil
	}
	asked := send(control, l.packet()) // at once, because the goroutine may have to wait for a processor
	return func() int {
		b.pid, b.pidfd, b.err = answered(launcher, control, asked)
		return launcher
	}
}

// sealedInit returns a sealed memory file with the program of init/init.c. The
// caller closes it.
func sealedInit() (int, error) {
	const name, flags = "sandboxmcp-init", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC) // executable also where vm.memfd_noexec is 1
	if errors.Is(err, unix.EINVAL) {                       // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	n, err := unix.Write(fd, initBytes)
	if err == nil && n < len(initBytes) {
		err = errors.New("short write")
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		closeAll(fd)
		return -1, fmt.Errorf("seal init: %w", err)
	}
	return fd, nil
}
