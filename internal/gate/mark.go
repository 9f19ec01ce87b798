package gate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// markName is the file that grows by a byte with every change.
const markName = "gate"

// mark tells whether something has changed, in whichever process.
type mark struct {
	path string

	mu    sync.Mutex
	moved chan struct{} // closed when this process has changed something
}

func newMark(stateDir string) mark {
	return mark{path: filepath.Join(stateDir, markName), moved: make(chan struct{})}
}

// size is where the mark is; 0 as long as nothing was ever changed.
func (m *mark) size() (int64, error) {
	st, err := os.Stat(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// move tells everybody.
func (m *mark) move() error {
	f, err := plainfile.Append(m.path, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	if closed := f.Close(); err == nil {
		err = closed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.moved)
	m.moved = make(chan struct{})
	return err
}

// next is closed at the next change of this process.
func (m *mark) next() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moved
}
