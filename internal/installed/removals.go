package installed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// removals are the ids of rows that this process has removed, or whose removal it has read in the record since it began. A reading of the table looks
// for removals in the record, too, by an index and without checking entries. So it misses one whose entry is changed or
// missing at that time. The reader reads such an entry again until it is as a server has written it.
type removals struct {
	reader *audit.Reader
	grown  atomic.Int64 // grows with each new id

	mu  sync.Mutex
	ids map[[16]byte]bool // beginnings of SHA-256 hashes: a writer of the database may have made ids of any length
}

// maxRemovals bounds the memory, to about 10 MiB. Callers remove packages as often as they want. With more, any id is
// forgotten, so that they keep no packages from others.
const maxRemovals = 1 << 18

func newRemovals(reader *audit.Reader) *removals {
	r := &removals{reader: reader, ids: map[[16]byte]bool{}}
	reader.Want(ActionRemoved, false, r.add)
	return r
}

// removedBy returns the ids of rows that an entry of a removal names.
func removedBy(metadata string) (ids []string) {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(metadata), &m) != nil || json.Unmarshal(m[KeyRemoved], &ids) != nil {
		return nil
	}
	return ids
}

func hashOf(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:])
}

// add adds what an entry says if a server has written it. With others, a writer of the database could let this process forget ids.
func (r *removals) add(_, metadata string, genuine bool) {
	if genuine {
		r.keep(removedBy(metadata))
	}
}

func (r *removals) keep(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		id := hashOf(id)
		if r.ids[id] {
			continue
		}
		if len(r.ids) >= maxRemovals {
			for other := range r.ids {
				delete(r.ids, other)
				break
			}
		}
		r.ids[id] = true
		r.grown.Add(1)
	}
}

func (r *removals) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[hashOf(id)]
}

func (r *removals) read(ctx context.Context, db store.Querier) error {
	return r.reader.Read(ctx, db, ActionRemoved)
}
