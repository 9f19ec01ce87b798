package gate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Endings are the grants that were revoked or used, as the audit record says. A process reads the record once from its
// beginning, when it first needs a grant, and from then on only what was added. What was read once, and what this process itself
// has recorded, stays, also if its entry is gone. All gates of a process may share one Endings.
type Endings struct {
	reader *audit.Reader

	mu   sync.Mutex
	of   map[name]ending
	full bool // there were more than maxEndings

	taken map[name]map[name]bool // by run of this process: the grants for one run that it uses
}

// NewEndings returns endings that the reader reads. The reader has no other ones.
func NewEndings(reader *audit.Reader) *Endings {
	e := &Endings{reader: reader, of: map[name]ending{}, taken: map[name]map[name]bool{}}
	reader.Want(actionApproval, true, e.add)
	return e
}

// maxEndings bounds the memory, to about 100 MiB. There is one ending for each decision of a person at most.
const maxEndings = 1 << 20

// name is the beginning of the SHA-256 of an id. A writer of the database may have made ids of any length.
type name [16]byte

func nameOf(id string) name {
	sum := sha256.Sum256([]byte(id))
	return name(sum[:])
}

// ending is what the audit record says about a grant.
type ending struct {
	revoked, used bool
	by            name // the run that has used it
}

// fits reports whether a row agrees with the audit record: the grant was not revoked, and no other run has used it.
func (e ending) fits(r *stored) bool {
	return !e.revoked && (!e.used || r.request != "" && nameOf(r.request) == e.by)
}

// add adds what an entry says, also if no server has written it: that only closes. A grant that was used by several runs counts
// as revoked: no server makes such entries.
func (e *Endings) add(request, metadata string, _ bool) {
	var m struct {
		Used    string   `json:"grant_id"`
		Revoked []string `json:"grant_ids"`
	}
	if json.Unmarshal([]byte(metadata), &m) != nil {
		return
	}
	if m.Used != "" {
		e.used(m.Used, request)
	}
	e.revoked(m.Revoked)
}

// used adds that a run has used a grant.
func (e *Endings) used(id, request string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.of[nameOf(id)]
	by := nameOf(request)
	e.set(nameOf(id), ending{was.revoked || was.used && was.by != by, true, by})
}

// take notes that a run of this process is about to use a grant for one run.
func (e *Endings) take(id string, run sandboxmcp.RequestID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	by := nameOf(string(run))
	if e.taken[by] == nil {
		e.taken[by] = map[name]bool{}
	}
	e.taken[by][nameOf(id)] = true
}

// takenBy reports whether a run of this process that has not ended uses a grant.
func (e *Endings) takenBy(id string, run sandboxmcp.RequestID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taken[nameOf(string(run))][nameOf(id)]
}

// Over notes that a run of this process has ended. Its caller may have chosen its id, and may choose it again once the result
// of the run is no longer kept. The grants for one run that it has used are not those of the next run. An engine also calls Over
// before that begins: the last connection of the earlier run may have taken a grant after the run had ended.
func (e *Endings) Over(run sandboxmcp.RequestID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.taken) > 0 {
		delete(e.taken, nameOf(string(run)))
	}
}

// revoked adds that grants were revoked.
func (e *Endings) revoked(ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		was := e.of[nameOf(id)]
		was.revoked = true
		e.set(nameOf(id), was)
	}
}

func (e *Endings) set(id name, end ending) {
	if _, known := e.of[id]; !known && len(e.of) >= maxEndings {
		e.full = true
		return
	}
	e.of[id] = end
}

// fits reports whether a row agrees with the audit record, as far as that was read.
func (e *Endings) fits(r *stored) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[nameOf(r.id)].fits(r)
}

// checked returns err, or an error if not all endings are known.
func (e *Endings) checked(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.full {
		return errors.New("the audit names more revoked grants than persons can have revoked")
	}
	return err
}

// begun reports whether the record was read.
func (e *Endings) begun() bool { return e.reader.Begun(actionApproval) }

// judge returns a function that reports whether a row agrees with the audit record. It has read the record when it returns.
// What a transaction sees beyond the last commit is not remembered, because the transaction may be undone.
func (e *Endings) judge(ctx context.Context, db store.Querier) (fits func(r *stored) bool, err error) {
	own := &Endings{of: map[name]ending{}}
	if _, inside := db.(*sql.Tx); inside {
		err = own.checked(e.reader.Inside(ctx, db, actionApproval, own.add))
	} else {
		err = e.reader.Read(ctx, db, actionApproval)
	}
	return func(r *stored) bool { return e.fits(r) && own.fits(r) }, e.checked(err)
}

// latest is judge, but it reads the record only if entries were missing or changed when they were read. They may be revocations.
func (e *Endings) latest(ctx context.Context, db store.Querier) (fits func(r *stored) bool, err error) {
	return e.fits, e.checked(e.reader.Again(ctx, db))
}
