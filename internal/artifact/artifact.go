// Package artifact takes files out of sandboxes. It collects and hashes them, stores them
// with the result of their run, and returns them later.
//
// The files are hostile. The package reads them only through backend.Files. It takes
// regular files with plain names within limits, and reports for every other file why it was
// skipped. The bytes that it hashes are the bytes that it stores and serves.
package artifact

import (
	"cmp"
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

// Config limits how long and how much a Keeper stores.
type Config struct {
	MaxAge   time.Duration    // how long a result and its files are kept; 0: 24 h
	MaxBytes int64            // size of all results of a namespace; the newest is always kept; 0: 1 GiB
	Look     int              // a sweep stops looking for orphans after this many referenced blobs; 0: 20 000
	Now      func() time.Time // nil: the machine's clock
	Verify   Verify           // nil: files and long outputs are returned without a look at the receipt
}

// Verify checks that the server's key has signed a receipt, and returns its content.
type Verify func(sandboxmcp.Receipt) (sandboxmcp.ReceiptPredicate, error)

// Keeper stores results and files. Its methods may be called concurrently, and several
// processes may have Keepers on one state directory.
type Keeper struct {
	store *store.Store
	cfg   Config
	shard atomic.Uint32 // shard of the blobs at which the last sweep stopped
	left  leftBlobs

	maxAge, maxBytes atomic.Int64 // see Config; set by SetBounds

	roomMu sync.Mutex
	room   map[sandboxmcp.Namespace]roomSeen

	loading chan struct{} // has an element for each result that is being loaded
}

// maxLoading is how many results are loaded at a time. Each can hold two streams and 64 MiB
// of files, and clients can request any number at once.
const maxLoading = 2

// NewKeeper makes a Keeper on an open state directory. It does not sign: the caller signs
// the artifacts that Collect returns, and Save stores the signatures.
func NewKeeper(s *store.Store, cfg Config) *Keeper {
	if cfg.Look == 0 {
		cfg.Look = 20_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Keeper{store: s, cfg: cfg, room: map[sandboxmcp.Namespace]roomSeen{}, loading: make(chan struct{}, maxLoading)}
	k.SetBounds(cmp.Or(cfg.MaxAge, 24*time.Hour), cmp.Or(cfg.MaxBytes, 1<<30))
	k.shard.Store(firstShard())
	return k
}

// SetBounds replaces [Config.MaxAge] and [Config.MaxBytes]. What exceeds them is dropped by the next
// Sweep, or when its namespace keeps another result.
func (k *Keeper) SetBounds(maxAge time.Duration, maxBytes int64) {
	k.maxAge.Store(int64(maxAge))
	k.maxBytes.Store(maxBytes)
}

// absolute returns an artifact's path in the sandbox.
func absolute(name string) string { return path.Join(backend.WorkDir, name) }

// uri returns an artifact's URI: artifact://, the session's id or without a session the
// request's, and the name. Each part is percent-encoded.
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
