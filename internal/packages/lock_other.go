//go:build !linux && !darwin

package packages

import (
	"os"
	"path/filepath"
)

// lockFile opens the lock of a tree. This system has no sandboxes that could hold one, so
// nothing is locked.
func (p *Packages) lockFile(digest string, _ bool) (*os.File, error) {
	if err := p.makeDirs(); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(p.cfg.Dir, locksDir, digest), os.O_CREATE|os.O_RDWR, 0o600)
}
