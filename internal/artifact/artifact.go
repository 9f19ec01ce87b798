// Package artifact takes files out of sandboxes: it collects them, hashes them,
// keeps them with the result that they belong to, and hands them out again.
//
// What it collects is hostile. It reads through backend.Files only, takes
// nothing but plain files of plain names within bounds, and says of everything
// else why it was left. The bytes that were read are the bytes that are hashed,
// kept and served.
package artifact

import (
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Config says how long and how much is kept.
type Config struct {
	MaxAge   time.Duration    // of a result with its files; 0: 24 h
	MaxBytes int64            // of all that is kept of a namespace's results, but for the newest; 0: 1 GiB
	Look     int              // named blobs after which a sweep leaves the others to the next; 0: 20 000
	Now      func() time.Time // nil: the machine's clock
}

// Keeper keeps results and files in a store. All methods may be called
// concurrently, and several processes may have Keepers on one state directory.
type Keeper struct {
	store *store.Store
	cfg   Config
	shard atomic.Uint32 // of the blobs; where the last look for orphans ended
	left  leftBlobs

	loading chan struct{} // has an element for each result that is being loaded
}

// maxLoading is how many results are loaded at a time. Each can hold two streams and 64 MiB
// of files, and any number may be asked for at once.
const maxLoading = 2

// NewKeeper makes a Keeper over an open state directory. It signs nothing: the
// caller signs what Collect returned, and Save keeps the signatures.
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
	k := &Keeper{store: s, cfg: cfg, loading: make(chan struct{}, maxLoading)}
	k.shard.Store(firstShard())
	return k
}

// absolute is an artifact's path in the sandbox.
func absolute(name string) string { return path.Join(backend.WorkDir, name) }

// uri is an artifact's address: artifact://, the session or else the request,
// and its name percent-encoded part by part.
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
