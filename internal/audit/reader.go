package audit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Reader reads the entries of some actions, of all namespaces and in their order, for the rooms of a process. All of them
// share one Reader, whose methods may be called concurrently.
//
// It uses no index: a writer of the database can make one that lacks an entry. Such a writer could also change an entry before
// it is read and restore it afterwards. So the Reader checks the content of all entries that are added once it has begun. It
// reads those that were missing or changed again until they are as a server has written them.
type Reader struct {
	log *Log

	mu sync.Mutex
	at reached
	of map[string]*wanted // by action
}

// wanted is what a Reader does with the entries of an action.
type wanted struct {
	hear  Hear
	old   bool // entries from before the first reading are wanted as well
	begun bool
}

// Hear is called with the request id and the metadata of an entry. It is called again for an entry that is read again. genuine
// says that the entry was checked and is as a server has written it.
type Hear func(request, metadata string, genuine bool)

// Reader returns a new reader of the record.
func (l *Log) Reader() *Reader { return &Reader{log: l, of: map[string]*wanted{}} }

// Want lets the Reader call hear, which may not call the Reader, for the entries of an action. If old is set, the first reading
// for the action reads the whole record. Otherwise it begins at the record's end. All calls of Want precede the readings.
func (r *Reader) Want(action string, old bool, hear Hear) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[action] = &wanted{hear: hear, old: old}
}

// Begun reports whether the record was read for an action.
func (r *Reader) Begun(action string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[action].begun
}

// Read reads what the record has got since the last reading. db is no transaction.
func (r *Reader) Read(ctx context.Context, db store.Querier, action string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.begin(ctx, db, action); err != nil {
		return err
	}
	var err error
	r.at, err = r.reading(db).since(ctx, r.at)
	return err
}

// Again is Read, but it reads only if entries were missing or changed when they were read.
func (r *Reader) Again(ctx context.Context, db store.Querier) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.doubtful() {
		r.at, err = r.reading(db).since(ctx, r.at)
	}
	return err
}

// Inside calls hear for the entries of an action that a transaction sees beyond those that were read. They are not
// remembered, because the transaction may be undone.
func (r *Reader) Inside(ctx context.Context, tx store.Querier, action string, hear Hear) error {
	r.mu.Lock()
	at, begun := r.at, r.of[action].begun
	r.mu.Unlock()
	one := reading{r.log, tx, map[string]Hear{action: hear}}
	if !begun {
		return one.whole(ctx)
	}
	_, err := one.since(ctx, at)
	return err
}

// Follow is Read for all actions, if there was a reading. A server calls it regularly, so that callers need not wait while
// many new entries are read. It tells of an entry that is missing or was changed: servers leave no gap, and what
// this one has signed is there.
func (r *Reader) Follow(ctx context.Context, db store.Querier) error {
	type said struct {
		action, request, metadata string
		genuine                   bool
	}
	var all []said
	collect := reading{r.log, db, map[string]Hear{}}
	begun := false
	r.mu.Lock()
	at := r.at
	for action, w := range r.of {
		begun = begun || w.begun
		collect.of[action] = func(request, metadata string, genuine bool) {
			all = append(all, said{action, request, metadata, genuine})
		}
	}
	r.mu.Unlock()
	if !begun {
		return nil
	}
	signed := r.log.signed()
	next, err := collect.since(ctx, at)
	if at := next.entry.position; err == nil && at < signed {
		r.log.tellHidden(at + 1)
	}
	if err == nil && len(next.doubt) > 0 {
		last := next.last
		next, _, err = collect.again(ctx, next) // those that were dropped meanwhile are in doubt no more
		if next.last = last; err == nil && len(next.doubt) > 0 {
			r.log.tellHidden(next.doubt[0])
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range all { // a caller may have read some of them meanwhile, which changes nothing
		r.of[s.action].hear(s.request, s.metadata, s.genuine)
	}
	if err == nil && next.entry.position > r.at.entry.position {
		r.at = next
	}
	return err
}

// begin begins to read for an action. A place that the Reader has already stays: entries after it are read for all actions.
func (r *Reader) begin(ctx context.Context, db store.Querier, action string) error {
	w := r.of[action]
	if w.begun {
		return nil
	}
	one := reading{r.log, db, map[string]Hear{action: w.hear}}
	at, err := one.end(ctx)
	if err == nil && w.old {
		err = one.whole(ctx)
	}
	if err != nil {
		return err
	}
	w.begun = true
	if r.at.entry.position == 0 {
		r.at.entry = at
	}
	return nil
}

func (r *Reader) reading(db store.Querier) reading {
	of := map[string]Hear{}
	for action, w := range r.of {
		of[action] = w.hear
	}
	return reading{r.log, db, of}
}

// All calls hear for every entry of an action in the record. It checks no contents.
func All(ctx context.Context, db store.Querier, action string, hear Hear) error {
	return reading{&Log{}, db, map[string]Hear{action: hear}}.whole(ctx)
}

// reached is how far a Reader has come. The zero value is the beginning of the record.
type reached struct {
	entry entryPlace
	doubt []int64 // positions up to it whose entries were missing or changed when they were read
	last  bool    // entries after it were changed when they were read
}

// maxDoubtful bounds the positions in doubt. With more of them, a reader could not say what the record has, and fails.
const maxDoubtful = 1000

var errLost = fmt.Errorf("more than %d audit entries are missing or were changed; run `sandboxmcp audit verify`", maxDoubtful)

// doubtful reports whether entries were missing or changed when they were read.
func (p reached) doubtful() bool { return p.last || len(p.doubt) > 0 }

// reading is one reading of a [Reader].
type reading struct {
	log *Log
	db  store.Querier
	of  map[string]Hear // by action
}

// since reads what the record has got since a place. It returns the place to go on from, also with an error.
func (r reading) since(ctx context.Context, after reached) (reached, error) {
	there := after.entry.position == 0
	if !there {
		var err error
		if there, err = has(ctx, r.db, selectHashAt, after.entry.position, after.entry.hash); err != nil {
			return after, fmt.Errorf("read audit entries: %w", err)
		}
	}
	if !there { // the record may have another end now; what was in doubt stays so
		if err := r.whole(ctx); err != nil {
			return after, err
		}
		if at := after.entry.position; !slices.Contains(after.doubt, at) {
			after.doubt = append(slices.Clip(after.doubt), at)
		}
	}
	next, dropped, err := r.again(ctx, after)
	if err != nil {
		return after, err
	}
	lost := false
	err = r.log.checked(ctx, r.db, func(position int64, e *row, genuine bool) bool {
		r.hear(e, genuine)
		if next.last = !genuine; next.last { // a writer of the database could add an entry far behind the end, and remove it once it was read
			return true
		}
		known := max(next.entry.position, dropped)
		if next.entry.position == 0 { // entries before the first one were dropped, or have no MACs
			known = position
		}
		for gone := known + 1; gone < position; gone++ {
			if lost = len(next.doubt) >= maxDoubtful; lost {
				return false
			}
			next.doubt = append(next.doubt, gone)
		}
		next.entry = entryPlace{position, e.Hash}
		return true
	}, selectAfter, after.entry.position)
	if err == nil && lost {
		after.last = true
		return after, errLost
	}
	return next, err
}

// again reads the entries in doubt. It returns the place with those that still are, and the position up to which entries
// were dropped because of their age, if it has looked for that.
func (r reading) again(ctx context.Context, after reached) (next reached, dropped int64, err error) {
	next.entry = after.entry
	if len(after.doubt) > 0 && r.log.ends.mark != nil {
		if dropped, err = droppedTo(ctx, r.db, r.log.ends.mark.open); err != nil {
			return after, 0, fmt.Errorf("read audit entries: %w", err)
		}
	}
	for _, position := range after.doubt {
		found := position <= dropped
		err = r.log.checked(ctx, r.db, func(_ int64, e *row, genuine bool) bool {
			r.hear(e, genuine)
			if found = genuine; genuine && position == after.entry.position {
				next.entry.hash = e.Hash
			}
			return true
		}, selectAt, position)
		if err != nil {
			return after, 0, err
		}
		if !found {
			next.doubt = append(next.doubt, position)
		}
	}
	return next, dropped, nil
}

func (r reading) hear(e *row, genuine bool) {
	if hear := r.of[e.Action]; hear != nil && e.Metadata != nil {
		hear(e.RequestID, *e.Metadata, genuine)
	}
}

// whole reads the record from its beginning, and checks no contents.
func (r reading) whole(ctx context.Context) error {
	for action, hear := range r.of {
		if err := r.wholeOf(ctx, action, hear); err != nil {
			return fmt.Errorf("read audit entries: %w", err)
		}
	}
	return nil
}

func (r reading) wholeOf(ctx context.Context, action string, hear Hear) error {
	rows, err := r.db.QueryContext(ctx, selectAllOf, action)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var request, metadata string
		if err := rows.Scan(&request, &metadata); err != nil {
			return err
		}
		hear(request, metadata, false)
	}
	return rows.Err()
}

// end returns the place of the last entry that is as a server has written it, or the beginning if there is none.
func (r reading) end(ctx context.Context) (last entryPlace, err error) {
	for before := int64(math.MaxInt64); before > 0 && last.position == 0 && err == nil; { // a writer of the database may have added many behind it
		from := before
		before = 0 // until there is one more
		err = r.log.checked(ctx, r.db, func(position int64, e *row, genuine bool) bool {
			if before = position; genuine {
				last = entryPlace{position, e.Hash}
			}
			return !genuine
		}, selectLatest, from)
	}
	return last, err
}
