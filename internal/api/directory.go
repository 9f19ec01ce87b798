package api

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// abandonedAfter is the age after which a file that a starting or ending server would have removed
// counts as left behind by a killed one.
const abandonedAfter = time.Hour

// openRunDir opens the directory of the sockets, and creates it if create is set. It
// refuses a directory that other users can write to.
func openRunDir(stateDir string, create bool) (*os.Root, *os.File, error) {
	if create {
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("make state directory: %w", err)
		}
	}
	state, err := os.OpenRoot(stateDir)
	if err != nil {
		return nil, nil, fmt.Errorf("open state directory: %w", err)
	}
	defer func() { _ = state.Close() }()
	if create {
		if err = state.MkdirAll(runDir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("make socket directory: %w", err)
		}
	}
	root, err := state.OpenRoot(runDir)
	if err != nil {
		return nil, nil, fmt.Errorf("open socket directory: %w", err)
	}
	dir, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return nil, nil, fmt.Errorf("open socket directory: %w", err)
	}
	if err := private(dir); err != nil {
		_ = dir.Close()
		_ = root.Close()
		return nil, nil, err
	}
	return root, dir, nil
}

// sweep removes what servers left behind that were killed while they started or ended: sockets that were
// not renamed, and proofs without a socket.
func sweep(root *os.Root, dir *os.File, now time.Time) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		id, proof := strings.CutSuffix(name, proofSuffix)
		if proof && slices.Contains(names, id+suffix) || !proof && !(strings.HasPrefix(name, ".") && strings.HasSuffix(name, suffix)) {
			continue
		}
		if fi, err := root.Lstat(name); err == nil && now.Sub(fi.ModTime()) > abandonedAfter {
			_ = root.Remove(name)
		}
	}
}

// mayAsk reports whether a server serves a user: its own user and root.
func mayAsk(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// trusted reports whether to talk to a process of a user: this user and root. Root talks
// to any user's server, because root can control that server anyway.
func trusted(uid uint32) bool {
	self := os.Geteuid()
	return uid == 0 || self == 0 || int(uid) == self
}
