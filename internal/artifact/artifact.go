// Package artifact takes files out of sandboxes: it collects and hashes them, keeps them
// with the result that they belong to, and returns them later.
//
// The files are hostile. The package reads them through backend.Files only. It takes
// regular files with plain names within bounds, and says for every other file why it was
// skipped. The bytes that it reads are the bytes that it hashes, keeps and serves.
package artifact

import (
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Config bounds how long and how much a Keeper keeps.
type Config struct {
	MaxAge   time.Duration    // of a result and its files; 0: 24 h
	MaxBytes int64            // of all results of a namespace; its newest is kept in any case; 0: 1 GiB
	Look     int              // named blobs after which a sweep stops looking for orphans; 0: 20 000
	Now      func() time.Time // nil: the machine's clock
}

// Keeper keeps results and files in a store. All methods may be called
// concurrently, and several processes may have Keepers on one state directory.
type Keeper struct {
	store *store.Store
	cfg   Config
	shard atomic.Uint32 // of the blobs: where the last sweep stopped
	left  leftBlobs

	roomMu sync.Mutex
	room   map[sandboxmcp.Namespace]roomSeen

	loading chan struct{} // has an element for each result that is being loaded
}

// maxLoading is how many results are loaded at a time. Each can hold two streams and 64 MiB
// of files, and any number may be asked for at once.
const maxLoading = 2

// NewKeeper makes a Keeper over an open state directory. It does not sign: the caller signs
// the artifacts that Collect returns, and Save keeps the signatures.
func NewKeeper(s *store.Store, cfg Config) *Keeper {
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 24 * time.Hour
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1 << 30
	}
	if cfg.Look == 0 {
		cfg.Look = 20_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Keeper{store: s, cfg: cfg, room: map[sandboxmcp.Namespace]roomSeen{}, loading: make(chan struct{}, maxLoading)}
	k.shard.Store(firstShard())
	return k
}

// absolute returns an artifact's path in the sandbox.
func absolute(name string) string { return path.Join(backend.WorkDir, name) }

// uri returns an artifact's URI: artifact://, the session or else the request, and the
// name, percent-encoded part by part.
func uri(request sandboxmcp.RequestID, session *sandboxmcp.SessionID, name string) string {
	owner := string(request)
	if session != nil {
		owner = string(*session)
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return "artifact://" + owner + "/" + strings.Join(parts, "/")
}
