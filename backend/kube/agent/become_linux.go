package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// Program is where the relay's program is written in a pod.
const Program = "/run/relay"

// Become turns this process into the relay, with a connection as its stdin and stdout. It returns only
// if that fails.
func Become(conn *net.TCPConn) error {
	program := relay.Program(seccomp.Arch(runtime.GOARCH))
	if program == nil {
		return fmt.Errorf("there is no relay for %s", runtime.GOARCH)
	}
	if err := write(Program, program); err != nil {
		return err
	}
	f, err := conn.File() // a copy, which blocks
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	if err = syscall.SetNonblock(fd, false); err != nil {
		return err
	}
	for _, std := range []int{0, 1} {
		if err = syscall.Dup3(fd, std, 0); err != nil {
			return err
		}
	}
	return syscall.Exec(Program, []string{Program}, []string{})
}

func write(path string, program []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555) //nolint:gosec // programs may read it: it is public
	if err != nil {
		return err
	}
	_, err = f.Write(program)
	return errors.Join(err, f.Close())
}
