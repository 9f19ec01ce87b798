package vault

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Anybody can seal a value for the public half of the vault's key. So each row has a MAC, with a key that is derived from the
// private half. Rows without a right MAC are not used.

// macPurpose is the purpose for which the key of the MACs is derived from the key of the vault.
const macPurpose = "sandboxmcp vault secrets 1"

// stored is a row of table secrets.
type stored struct {
	version         int64
	namespace, key  string
	sealed          []byte
	created, expiry string

	mac sql.NullString // not valid: the row is of a release without MACs
}

func (r *stored) scan(row store.Row) error {
	return row.Scan(&r.version, &r.namespace, &r.key, &r.sealed, &r.created, &r.expiry, &r.mac)
}

// columns returns the columns that the MAC covers: all but the version, which the database gives.
func (r *stored) columns() []string {
	return []string{r.namespace, r.key, r.created, r.expiry, string(r.sealed)}
}

// rowKey derives the key of the MACs from an identity.
func rowKey(id *age.X25519Identity) (store.RowKey, error) {
	return hkdf.Key(sha256.New, []byte(id.String()), nil, macPurpose, sha256.Size)
}

// fitting returns for each row whether its MAC is right for one of the keys. If one is not, it reads the keys again: another
// process may have replaced them.
func (k *keys) fitting(rows []stored) ([]bool, error) {
	fits := make([]bool, len(rows))
	if !slices.ContainsFunc(rows, func(r stored) bool { return r.mac.Valid }) {
		return fits, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for fresh := k.all == nil; ; fresh = true {
		if fresh {
			if err := k.readLocked(); err != nil {
				return nil, keyError(k.place, err)
			}
		}
		for _, id := range k.all {
			key, err := rowKey(id)
			if err != nil {
				return nil, err
			}
			for n := range rows {
				fits[n] = fits[n] || rows[n].mac.Valid && key.Fits(rows[n].mac.String, rows[n].columns()...)
			}
		}
		if fresh || !wrong(rows, fits) {
			return fits, nil
		}
	}
}

// Reasons why a row of table secrets is not used.
const (
	reasonForged   = "secret %.100q of namespace %.100q was not stored by a server with the key of the vault, or was changed since"
	reasonReserved = "secret %.100q of namespace %.100q has a name that secrets may not have"
	reasonLapsed   = "secret %.100q of namespace %.100q is of an older release and has no MAC; add it again"
)

// fault returns why a row is not used, or "" if it is. fits says whether its MAC is right.
func (v *Vault) fault(r *stored, fits bool) string {
	reason := ""
	switch {
	case !r.mac.Valid:
		reason = reasonLapsed
	case !fits:
		reason = reasonForged
	case v.check(r.key, strings.Repeat("x", MinValue)) != nil:
		reason = reasonReserved
	default:
		return ""
	}
	return fmt.Sprintf(reason, r.key, r.namespace)
}

// usable returns the rows that may be used, and logs the others, each once. If a MAC is wrong, it calls again for the rows,
// unless that is nil: while the key is replaced, the rows may be from before and the key from after. It also returns the
// rows that it has judged. It fails if the key cannot be read, or is not the one that the secrets are sealed for.
func (v *Vault) usable(ctx context.Context, db store.Querier, rows []stored, again func() ([]stored, error)) (good, judged []stored, err error) {
	fits, err := v.key.fitting(rows)
	if err == nil && again != nil && wrong(rows, fits) {
		if rows, err = again(); err != nil {
			return nil, nil, v.unread(err)
		}
		fits, err = v.key.fitting(rows)
	}
	if err == nil && wrong(rows, fits) {
		err = v.checkKey(ctx, db)
	}
	if err != nil {
		return nil, rows, err
	}
	for n := range rows {
		if why := v.fault(&rows[n], fits[n]); why != "" {
			v.tell(why)
			continue
		}
		good = append(good, rows[n])
	}
	return good, rows, nil
}

// wrong reports whether a row has a wrong MAC.
func wrong(rows []stored, fits []bool) bool {
	for n := range rows {
		if rows[n].mac.Valid && !fits[n] {
			return true
		}
	}
	return false
}

// checkKey fails if the secrets are sealed for another key than this process has.
func (v *Vault) checkKey(ctx context.Context, db store.Querier) error {
	have, err := v.sealedFor(ctx, db)
	if err != nil || have == "" {
		return err
	}
	all, err := v.key.current(false)
	if err != nil {
		return err
	}
	_, err = v.identity(all, have)
	return err
}

// identity returns the identity of a recipient.
func (v *Vault) identity(all []*age.X25519Identity, recipient string) (*age.X25519Identity, error) {
	i := slices.IndexFunc(all, func(id *age.X25519Identity) bool { return id.Recipient().String() == recipient })
	if i < 0 {
		return nil, unavailable(v.key.place.String()+" is not the key that the secrets of this state directory are sealed for", nil).
			WithHint("restore the right key; or delete every secret and add them again")
	}
	return all[i], nil
}

// tell logs a row that is not used, once. The level is such that commands print it, too.
func (v *Vault) tell(why string) {
	if v.told.New(why) {
		v.cfg.Logger.Error("a secret in the database is not used", "reason", why)
	}
}

// Faults is [Vault.Faults] for the vault of a state directory that is not open. It uses the kind of the configuration and where
// its key is.
func Faults(ctx context.Context, db store.Querier, dir string, cfg Config) ([]string, error) {
	cfg.complete()
	return (&Vault{cfg: cfg, key: newKeys(dir, cfg)}).Faults(ctx, db)
}

// Faults returns a sentence for each stored secret that was forged or changed, or has a reserved name. If the key of the vault
// cannot be read, it returns none but of rows that are too large to be read.
func (v *Vault) Faults(ctx context.Context, db store.Querier) (faults []string, err error) {
	if v.cfg.Kind != Sealed {
		return nil, nil
	}
	var unread int
	if err = db.QueryRowContext(ctx, countLarge).Scan(&unread); err != nil {
		return nil, err
	}
	if unread > 0 {
		faults = append(faults, fmt.Sprintf("%d rows of table secrets are larger than a server makes them and were not read", unread))
	}
	rows, err := store.Select(ctx, db, (*stored).scan, selectSealed)
	if err != nil {
		return nil, err
	}
	fits, err := v.key.fitting(rows)
	if e, coded := errors.AsType[*sandboxmcp.Error](err); coded && e.Code == sandboxmcp.CodeVaultUnavailable {
		return faults, nil
	}
	if err != nil {
		return nil, err
	}
	for n := range rows {
		if why := v.fault(&rows[n], fits[n]); why != "" && rows[n].mac.Valid {
			faults = append(faults, why)
		}
	}
	return faults, nil
}
