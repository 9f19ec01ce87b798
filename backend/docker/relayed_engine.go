package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// lookAround learns of the engine's machine. It is called with mu held.
func (e *Engine) lookAround(ctx context.Context, api *dockerapi.Client) error {
	info, err := api.Info(ctx)
	if err != nil {
		return e.failure("connect", err)
	}
	e.runtimes = slices.Sorted(maps.Keys(info.Runtimes))
	arch, ok := seccompArch(info.Architecture)
	if !ok {
		return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "the engine's machine is a %s, for which there is no system call filter", sandboxmcp.Quote(info.Architecture))
	}
	if e.arch != arch { // containers that are being made read it
		e.arch = arch
	}
	e.maps = mapsUsers(info)
	return nil
}

// mapsUsers reports whether the engine maps user ids of containers to other ids of its machine.
func mapsUsers(info dockerapi.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return o == "name=userns" || o == "name=rootless" })
}

// offers returns an error if the engine does not have a runtime.
func (e *Engine) offers(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.runtimes, name) {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "the engine has no runtime %s; it has %s", sandboxmcp.Quote(name), strings.Join(e.runtimes, ", ")).
		WithHint("name it under runtimes in the engine's daemon.json and restart the engine, or set docker_runtime: runc")
}

// lost forgets the connection if an error says that the engine or the image is gone.
func (e *Engine) lost(api *dockerapi.Client, err error) {
	if dockerapi.IsNotFound(err) || dockerapi.IsUnreachable(err) {
		e.forget(api)
	}
}

// policy returns the digest of the walls of containers of a runtime.
func (e *Engine) policy(name string) string {
	h := sha256.Sum256([]byte(name + "\n" + e.profile))
	return hex.EncodeToString(h[:])
}

// provideProgram writes the relay into a directory that all containers show read-only.
func (e *Engine) provideProgram() error {
	e.program.Lock()
	defer e.program.Unlock()
	if e.programDir != "" {
		return nil
	}
	if err := os.MkdirAll(e.cfg.Dir, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(e.cfg.Dir, dirPrefix())
	if err != nil {
		return err
	}
	if err = os.Chmod(dir, 0o711); err == nil { //nolint:gosec // the container's users have to pass through it
		err = writeProgram(filepath.Join(dir, "relay"), relay.Program(e.arch))
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return err
	}
	e.programDir = dir
	return nil
}

func writeProgram(path string, program []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555) //nolint:gosec // programs may read it: it is public
	if err != nil {
		return err
	}
	_, err = f.Write(program)
	return errors.Join(err, f.Close())
}

// removeProgram removes it.
func (e *Engine) removeProgram() error {
	e.program.Lock()
	defer e.program.Unlock()
	dir := e.programDir
	e.programDir = ""
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}
