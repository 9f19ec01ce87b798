package vault

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// looked are the secrets of a namespace as last read. They are current if the number of
// rows and their highest version and MACs are unchanged. A server gives no version twice, but a writer of the database may.
type looked struct {
	count  int
	newest int64
	macs   string // of all rows
	items  []Item // without values
	closed error  // why the values cannot be unsealed; nil: they can

	mu     sync.Mutex // held while the values are unsealed; never inside a transaction
	sealed [][]byte
	set    *Set // nil until the values are unsealed
}

// clockSlack is how far ahead of this server's clock a secret with a lifetime may have been created. The clock of each
// server is at most a minute from that of a database that they share. If the clock is set back further, such a
// secret is not used until the clock has come to its creation again. So a clock that is set back once at most
// doubles the time for which a secret is used.
const clockSlack = 3 * time.Minute

var nothing = &looked{set: &Set{}}

// lookSealed returns the secrets of a namespace without their values. It reads the rows
// only if they have changed, or if the lifetime of one has passed: its row then says so, unless a writer of the database
// has changed it. If the key cannot be used, it returns all that is stored: a person may have to delete it, and the record has
// which secrets a run should have got. Then open fails.
func (v *Vault) lookSealed(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace) (*looked, error) {
	clock := v.cfg.Now()
	now, latest := store.FormatTime(clock), store.FormatTime(clock.Add(clockSlack))
	if version, err := v.added().Version(ctx); err == nil && version == 0 {
		return nothing, nil
	}
	l := &looked{}
	if err := db.QueryRowContext(ctx, countAll, ns, now, latest).Scan(&l.count, &l.newest, &l.macs); err != nil {
		return nil, v.unread(err)
	}
	if l.count == 0 {
		return nothing, nil
	}
	v.mu.Lock()
	had := v.cache[ns]
	v.mu.Unlock()
	if had != nil && had.count == l.count && had.newest == l.newest && had.macs == l.macs && !slices.ContainsFunc(had.items, v.expired) {
		return had, nil
	}
	read := func() ([]stored, error) { return store.Select(ctx, db, (*stored).scan, selectAll, ns, now, latest) }
	rows, err := read()
	if err != nil {
		return nil, v.unread(err)
	}
	good, rows, err := v.usable(ctx, db, rows, read)
	l.note(rows)
	if e, coded := errors.AsType[*sandboxmcp.Error](err); coded && e.Code == sandboxmcp.CodeVaultUnavailable {
		good, l.closed = rows, e // open returns it
	} else if err != nil {
		return nil, err
	}
	for _, r := range good {
		i, err := r.item()
		if err != nil {
			return nil, fmt.Errorf("look into the vault: %w", err)
		}
		if !i.lasts(clock) {
			continue
		}
		l.items, l.sealed = append(l.items, i), append(l.sealed, r.sealed)
	}
	return l, nil
}

// note keeps what tells whether the rows have changed since.
func (l *looked) note(rows []stored) {
	l.count, l.newest = len(rows), 0
	all := make([]string, len(rows))
	for n, r := range rows {
		l.newest = max(l.newest, r.version)
		if len(r.mac.String) <= 64 {
			all[n] = r.mac.String
		}
	}
	l.macs = strings.Join(all, ",")
}

// item returns a secret without its value.
func (r *stored) item() (i Item, err error) {
	i.Version, i.Key, i.mac = r.version, r.key, r.mac.String
	if i.created, err = store.ParseTime(r.created); err == nil && r.expiry != "" {
		i.expires, err = store.ParseTime(r.expiry)
	}
	return i, err
}

// lasts reports whether a secret may be used at a time. The statements ask the same, but a writer of the database can
// make a comparison of theirs say anything, such as by a time that is a blob: each blob is later than each text.
func (i *Item) lasts(now time.Time) bool {
	return i.expires.IsZero() || i.expires.After(now) && !i.created.After(now.Add(clockSlack))
}

// unread is the error of a vault that could not be read.
func (v *Vault) unread(err error) error {
	return fmt.Errorf("look into the vault: %w", v.cfg.Store.ReadError(err))
}

// open unseals the values and caches them.
func (v *Vault) open(ns sandboxmcp.Namespace, l *looked) (*Set, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set != nil {
		return l.set, nil
	}
	if l.closed != nil {
		return nil, l.closed
	}
	known := map[string]sandboxmcp.Secret{} // by the MAC of the row: a writer of the database may have given another row its number and key
	v.mu.Lock()
	had := v.cache[ns] // its set is not nil
	v.mu.Unlock()
	if had != nil {
		for _, i := range had.set.Items {
			known[i.mac] = i.Value
		}
	}
	set := &Set{Items: slices.Clone(l.items)}
	for n := range set.Items {
		i := &set.Items[n]
		value, ok := known[i.mac]
		if !ok {
			plain, err := v.key.unseal(l.sealed[n])
			if err == nil {
				value, err = unpack(ns, i.Key, plain)
			}
			if err != nil {
				if _, coded := errors.AsType[*sandboxmcp.Error](err); coded {
					return nil, err
				}
				return nil, unavailable("the secret "+i.Key+" of the namespace "+string(ns)+" cannot be unsealed", err).
					WithHint("its key is another one, or the row was changed: restore the key, or delete the secret and add it again")
			}
		}
		i.Value = value
	}
	l.set, l.sealed = set, nil
	v.mu.Lock()
	defer v.mu.Unlock()
	if had = v.cache[ns]; had == nil || had.newest <= l.newest {
		v.cache[ns] = l
	}
	return set, nil
}

// pack returns the plaintext to seal: the names of namespace and key, then the value.
func pack(ns sandboxmcp.Namespace, key, value string) []byte {
	return []byte("1\x00" + string(ns) + "\x00" + key + "\x00" + value)
}

// unpack returns the value if the names in the plaintext match.
func unpack(ns sandboxmcp.Namespace, key string, plain []byte) (sandboxmcp.Secret, error) {
	value, ok := bytes.CutPrefix(plain, pack(ns, key, ""))
	if !ok {
		return sandboxmcp.Secret{}, errors.New("it belongs to another secret")
	}
	return sandboxmcp.NewSecret(string(value)), nil
}

// sealedMore bounds how many bytes sealing adds to the value and its names.
const sealedMore = 300

// keyLease is held while a value is sealed and while the key is replaced. So no value is
// sealed for a key that is about to be removed.
const keyLease = "vault.lock"

// addSealed seals a value and adds it to the database.
func (v *Vault) addSealed(ctx context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	if v.cfg.Volatile {
		return volatileError()
	}
	lease, err := v.cfg.Store.Lease(ctx, keyLease)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release() }()
	id, err := v.current(ctx)
	if err != nil {
		return err
	}
	now := v.cfg.Now().UTC()
	r := &stored{namespace: string(c.Namespace), key: s.Key, created: store.FormatTime(now)}
	if s.TTL > 0 {
		r.expiry = store.FormatTime(now.Add(s.TTL))
	}
	if err = r.seal(pack(c.Namespace, s.Key, s.Value.Reveal()), id); err != nil {
		return unavailable("the secret cannot be sealed", err)
	}
	return v.added().Update(ctx, insert(r, len(s.Value.Reveal()), id.Recipient()), v.cfg.Audit.Op(v.entry(c, "add", s.Key)))
}

// seal sets the sealed value of a row and its MAC.
func (r *stored) seal(plain []byte, id *age.X25519Identity) (err error) {
	if r.sealed, err = seal(plain, id.Recipient()); err != nil {
		return err
	}
	key, err := rowKey(id)
	r.mac = sql.NullString{String: key.MAC(r.columns()...), Valid: err == nil}
	return err
}

// added is the topic that changes with each secret that is added. As long as it has not changed, no
// run needs to look for secrets, which takes a statement.
func (v *Vault) added() *store.Watch { return v.cfg.Store.Watch("vault") }

func volatileError() error {
	return unavailable("the audit is in memory, and a sealed vault needs the state directory", nil).
		WithHint("set SANDBOXMCP_AUDIT=sqlite, or SANDBOXMCP_VAULT=memory")
}

// sealedFor returns the key that the secrets are sealed for, and "" if there are none.
func (v *Vault) sealedFor(ctx context.Context, db store.Querier) (have string, err error) {
	err = db.QueryRowContext(ctx, selectRecipient).Scan(&have)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", v.unread(err)
	}
	return have, nil
}

// current returns the key to seal with. If there are secrets, it is the key that they are
// sealed for; it fails if that key is missing. Otherwise it is the current key, which is made if
// there is none. The caller holds keyLease.
func (v *Vault) current(ctx context.Context) (*age.X25519Identity, error) {
	have, err := v.sealedFor(ctx, v.cfg.Store.DB())
	if err != nil {
		return nil, err
	}
	all, err := v.key.current(have == "" && !v.cfg.Given)
	if err != nil {
		return nil, err
	}
	if have == "" {
		return all[0], nil
	}
	return v.identity(all, have)
}

// insert returns the step that adds a row. length is that of its value.
func insert(r *stored, length int, to *age.X25519Recipient) store.Op {
	return func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, setRecipient, to.String()); err != nil {
			return err
		}
		var count, sum int
		if err := tx.QueryRowContext(ctx, countOthers, r.namespace, r.key, r.created).Scan(&count, &sum); err != nil {
			return err
		}
		if err := tooMuch(count+1, max(0, sum-count*sealedMore)+length); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, deleteOne, r.namespace, r.key); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, insertOne, r.namespace, r.key, r.sealed, r.created, r.expiry, r.mac.String)
		return err
	}
}

func (v *Vault) deleteSealed(ctx context.Context, c sandboxmcp.Caller, key string) error {
	return v.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, deleteOne, c.Namespace, key)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, unknown(key))
		}
		return v.cfg.Audit.Op(v.entry(c, "delete", key))(ctx, tx)
	})
}

// Sweep deletes the secrets that have expired and returns their number.
func (v *Vault) Sweep(ctx context.Context) (int, error) {
	if v.cfg.Kind != Sealed {
		return 0, nil // secrets in memory are removed when they are read
	}
	now := store.FormatTime(v.cfg.Now())
	gone := 0
	if err := v.cfg.Store.DB().QueryRowContext(ctx, countExpired, now).Scan(&gone); err != nil {
		return 0, v.unread(err)
	} else if gone == 0 {
		return 0, nil
	}
	gone = 0
	err := v.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, deleteExpired, now)
		if err != nil {
			return err
		}
		defer rows.Close()
		of := map[sandboxmcp.Namespace][]string{}
		for rows.Next() {
			var ns sandboxmcp.Namespace
			var key string
			if err := rows.Scan(&ns, &key); err != nil {
				return err
			}
			of[ns] = append(of[ns], key)
			gone++
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for ns, keys := range of {
			slices.Sort(keys)
			if err := v.cfg.Audit.Op(v.entry(sandboxmcp.Caller{Namespace: ns, Actor: "sweep"}, "expire", keys...))(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	return gone, err
}

// Rotate makes a new key, seals every secret for it and returns their number. Both keys are
// kept until that is done, so a failure loses no secret and running servers continue. Then
// the old key is removed.
func (v *Vault) Rotate(ctx context.Context, c sandboxmcp.Caller) (int, error) {
	switch {
	case v.cfg.Kind != Sealed:
		return 0, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "only a sealed vault has a key, and this one is of kind %s", v.cfg.Kind)
	case v.cfg.Volatile:
		return 0, volatileError()
	}
	lease, err := v.cfg.Store.Lease(ctx, keyLease)
	if err != nil {
		return 0, err
	}
	defer func() { _ = lease.Release() }()
	if err = v.key.place.tidy(); err != nil {
		return 0, keyError(v.key.place, err)
	}
	old, err := v.key.current(!v.cfg.Given)
	if err == nil {
		err = v.checkKey(ctx, v.cfg.Store.DB()) // with another key no secret would be taken along
	}
	if err != nil {
		return 0, err
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return 0, unavailable("a key cannot be made", err)
	}
	if err = v.key.replace(append([]*age.X25519Identity{id}, old...)); err != nil {
		return 0, err
	}
	count, sealed := 0, false
	entry := v.entry(c, "rotate the key")
	err = v.cfg.Store.Update(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if count, err = v.reseal(ctx, tx, id); err != nil {
			return err
		}
		entry.Metadata = map[string]any{"secrets": count, "vault": Sealed, "was": old[0].Recipient().String(), "is": id.Recipient().String()}
		err = v.cfg.Audit.Op(entry)(ctx, tx)
		sealed = err == nil
		return err
	})
	if err != nil {
		return 0, errors.Join(err, v.giveUp(old, sealed))
	}
	return count, v.key.replace([]*age.X25519Identity{id})
}

// giveUp ends a rotation that failed. sealed says that every secret had been sealed for the new
// key and only the commit failed. The database may have committed all the same, such as when the
// connection to it was lost. Then both keys stay until the next rotation.
func (v *Vault) giveUp(old []*age.X25519Identity, sealed bool) error {
	if sealed {
		return nil
	}
	return v.key.replace(old)
}

// reseal seals every secret for another key, in a transaction. It leaves rows alone that may not be used, such as forged
// ones: with a new MAC they could be.
func (v *Vault) reseal(ctx context.Context, tx *sql.Tx, id *age.X25519Identity) (int, error) {
	rows, err := store.Select(ctx, tx, (*stored).scan, selectSealed)
	if err != nil {
		return 0, err
	}
	all, _, err := v.usable(ctx, tx, rows, nil)
	if err != nil {
		return 0, err
	}
	for n := range all {
		r := &all[n]
		plain, failed := v.key.unseal(r.sealed)
		if failed != nil {
			return 0, unavailable("a secret cannot be unsealed, so nothing was changed", failed).WithHint("restore the key that it was sealed for, or delete the secret")
		}
		if err = r.seal(plain, id); err != nil {
			return 0, err
		}
		if _, err = tx.ExecContext(ctx, updateSealed, r.sealed, r.mac.String, r.version); err != nil {
			return 0, err
		}
	}
	_, err = tx.ExecContext(ctx, setRecipient, id.Recipient().String())
	return len(all), err
}
