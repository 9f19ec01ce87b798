package process

import (
	"io/fs"
	"sync"
)

// uses counts the uses of a sandbox's descriptors by the server. A new use never waits, as it would for a sync.RWMutex
// while the end of the sandbox waits for other uses: it fails.
type uses struct {
	mu   sync.Mutex
	now  int           // uses that go on; guarded by mu
	none chan struct{} // nil before shut; then closed when no use goes on; guarded by mu
}

// take begins a use, which ends when release is called. It fails after shut. It does not wait.
func (u *uses) take() (release func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.none != nil {
		return nil, fs.ErrClosed
	}
	u.now++
	return u.release, nil
}

func (u *uses) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now--; u.now == 0 && u.none != nil {
		close(u.none)
	}
}

// shut makes later uses fail, and returns when no use goes on. It is called once.
func (u *uses) shut() {
	u.mu.Lock()
	none := make(chan struct{})
	if u.none = none; u.now == 0 {
		close(none)
	}
	u.mu.Unlock()
	<-none
}
