//go:build unix

package session

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// owner is this process in the state directory: a file that is locked for as
// long as the process lives. The kernel gives the lock back however it ends, so
// that nobody has to guess by numbers of processes or by clocks.
type owner struct {
	dir string

	mu   sync.Mutex
	name string
	file *os.File
}

const (
	ownerDir    = "owners"
	ownerSuffix = ".owner"
)

// id is the owner's name; empty before enter.
func (o *owner) id() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.name
}

// enter makes the file, once.
func (o *owner) enter() (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.name != "" {
		return o.name, nil
	}
	dir := filepath.Join(o.dir, ownerDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	mark := make([]byte, 6)
	_, _ = rand.Read(mark) // never fails
	name := strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(mark)
	f, err := os.OpenFile(filepath.Join(dir, name+ownerSuffix), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return "", errors.Join(err, f.Close())
	}
	o.name, o.file = name, f
	return name, nil
}

// leave removes the file.
func (o *owner) leave() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil {
		return nil
	}
	err := errors.Join(os.Remove(o.path(o.name)), o.file.Close())
	o.file = nil
	return err
}

func (o *owner) path(name string) string { return filepath.Join(o.dir, ownerDir, name+ownerSuffix) }

// lives tells whether another owner's process is there. What cannot be told is
// taken for alive: nobody's session is called gone by mistake.
func (o *owner) lives(name string) bool {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return false
	}
	f, err := plainfile.Open(o.path(name))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// bury removes what a dead owner has left.
func (o *owner) bury(name string) {
	if !o.lives(name) {
		_ = os.Remove(o.path(name))
	}
}
