package gate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Endings are the grants that were revoked or used, as the audit record says. A process reads the record once from its
// beginning, when it first needs a grant, and from then on only what was added. It uses no index, because a writer of the
// database can make one that lacks an entry. What was read once stays, also if its entry is gone. All gates of a process may
// share one Endings, whose zero value is ready to use.
type Endings struct {
	mu   sync.Mutex
	at   audit.Place
	of   map[name]ending // nil: nothing was read
	full bool            // there were more than maxEndings
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

// add adds what an entry says. A grant that was used by several runs counts as revoked: no server makes such entries.
func (e *Endings) add(request, metadata string) {
	var m struct {
		Used    string   `json:"grant_id"`
		Revoked []string `json:"grant_ids"`
	}
	if json.Unmarshal([]byte(metadata), &m) != nil {
		return
	}
	if m.Used != "" {
		was := e.of[nameOf(m.Used)]
		by := nameOf(request)
		e.set(nameOf(m.Used), ending{was.revoked || was.used && was.by != by, true, by})
	}
	for _, id := range m.Revoked {
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

// read adds the endings that the record has got since the last call. db may be a transaction: then e is only of that.
func (e *Endings) read(ctx context.Context, log *audit.Log, db store.Querier) (err error) {
	if e.of == nil {
		e.of = map[name]ending{}
	}
	e.at, err = log.Since(ctx, db, actionApproval, e.at, e.add)
	return e.checked(err)
}

// Follow reads what the record has got since the last reading, if there was one. A server calls it regularly, so that callers
// need not wait while many new entries are read.
func (e *Endings) Follow(ctx context.Context, log *audit.Log, db store.Querier) error {
	e.mu.Lock()
	at, begun := e.at, e.of != nil
	e.mu.Unlock()
	if !begun {
		return nil
	}
	type said struct{ request, metadata string }
	var all []said
	next, err := log.Since(ctx, db, actionApproval, at, func(request, metadata string) { all = append(all, said{request, metadata}) })
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range all { // a caller may have read some of them meanwhile, which changes nothing
		e.add(s.request, s.metadata)
	}
	if err == nil && next.After(e.at) {
		e.at = next
	}
	return err
}

// readAll reads the whole record.
func (e *Endings) readAll(ctx context.Context, db store.Querier) error {
	e.of = map[name]ending{}
	return e.checked(audit.All(ctx, db, actionApproval, e.add))
}

func (e *Endings) checked(err error) error {
	if err == nil && e.full {
		return errors.New("the audit names more revoked grants than persons can have revoked")
	}
	return err
}

func (e *Endings) fits(r *stored) bool { return e.of[nameOf(r.id)].fits(r) }

// begun reports whether the record was read.
func (e *Endings) begun() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of != nil
}

// judge returns a function that reports whether a row agrees with the audit record. It has read the record when it returns.
// What a transaction sees beyond the last commit is not remembered, because the transaction may be undone.
func (e *Endings) judge(ctx context.Context, log *audit.Log, db store.Querier) (fits func(r *stored) bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	own := &Endings{at: e.at}
	if _, inside := db.(*sql.Tx); inside {
		err = own.read(ctx, log, db)
	} else {
		err = e.read(ctx, log, db)
	}
	return func(r *stored) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.fits(r) && own.fits(r)
	}, err
}

// latest is judge, but it reads the record only if entries were missing or changed when they were read. They may be revocations.
func (e *Endings) latest(ctx context.Context, log *audit.Log, db store.Querier) (fits func(r *stored) bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.Doubtful() {
		err = e.read(ctx, log, db)
	}
	return func(r *stored) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.fits(r)
	}, err
}
