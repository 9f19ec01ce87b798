package gate

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// A grant has a MAC over its row, so that a writer of the database without the signing key cannot make or change one.
// Such a writer can still put back an earlier copy of a row. So the gate also reads the audit record: its entries name
// the grants that were revoked, and the run that has used a grant for one run.

// grantPurpose is the purpose for which the secret of the MACs is derived from the signing key.
const grantPurpose = "sandboxmcp grants 1"

// stored is a row of table grants. Only rows that are not marked as revoked are read.
type stored struct {
	id, namespace, subject, digest, scope, session, request, approval, actor, granted, expires string

	mac sql.NullString // not valid: the row is of a release without MACs
}

func (r *stored) scan(row store.Row) error {
	return row.Scan(&r.id, &r.namespace, &r.subject, &r.digest, &r.scope, &r.session, &r.request, &r.approval, &r.actor, &r.granted, &r.expires, &r.mac)
}

// usedBy returns the row as it is once who's run has used the grant, if that is an unused one for one run.
func (r *stored) usedBy(who Who) stored {
	used := *r
	if used.scope == string(sandboxmcp.GrantOnce) && used.request == "" {
		used.request = string(who.RequestID)
	}
	return used
}

// columns returns the columns before the MAC, in the order of insertGrant. The MAC covers all of them. The last one is
// revoked_at, which is empty in each row with a MAC.
func (r *stored) columns() []string {
	return []string{r.id, r.namespace, r.subject, r.digest, r.scope, r.session, r.request, r.approval, r.actor, r.granted, r.expires, ""}
}

// values returns the columns as arguments of a statement.
func (r *stored) values() []any {
	all := make([]any, 0, 12)
	for _, c := range r.columns() {
		all = append(all, c)
	}
	return all
}

// asked is what the audit record says of a question. The zero value says that there is none.
type asked struct {
	sha256  string
	session string // for which a grant is if the person gives none
}

// askedFor returns a question as the record has it, and whether a person has denied it. A person may name a question by its id
// alone, and a writer of the database can change its row. The caller compares the result with the row that it opens. The entries
// are read back to that of the question: no server asks two with one id.
func (g *Gate[S]) askedFor(ctx context.Context, id string) (of asked, denied bool, err error) {
	a, err := g.find(ctx, id)
	if err != nil {
		return of, false, nil //nolint:nilerr // the transaction of the decision finds the same, and says so
	}
	hear := func(e audit.Written) bool {
		var m struct {
			ID     string `json:"approval_id"`
			SHA256 string `json:"sha256"`
			Grant  string `json:"grant_id"`
		}
		switch {
		case json.Unmarshal([]byte(e.Metadata), &m) != nil || m.ID != id:
		case e.Phase != sandboxmcp.PhaseIntent: // kinds may have one action for questions and answers, and an answer names what the row says
			denied = denied || m.Grant == ""
		default:
			of = asked{m.SHA256, e.SessionID}
		}
		return of == asked{}
	}
	err = g.cfg.Audit.Genuine(ctx, g.cfg.Store.DB(), a.info.Namespace, [2]string{g.kind.Asked, g.kind.Denied}, hear)
	if err != nil {
		return asked{}, false, g.unreadable(err)
	}
	return of, denied, nil
}

// Reasons why a row of table grants is not in force.
const (
	reasonForged = "grant %.100q of namespace %.100q was not made by a server with the signing key, or was changed since"
	reasonBack   = "grant %.100q of namespace %.100q was revoked or used, and was put back as it was before"
)

func reasonOf(reason string, r *stored) string { return fmt.Sprintf(reason, r.id, r.namespace) }

// Faults returns a sentence for each stored grant of any kind that was forged, changed, or put back after it was revoked
// or used. derive is as in [Config.Key].
func Faults(ctx context.Context, db store.Querier, derive func(purpose string) ([]byte, error)) (faults []string, err error) {
	var unread int
	if err = db.QueryRowContext(ctx, countLarge).Scan(&unread); err != nil {
		return nil, err
	}
	if unread > 0 {
		faults = append(faults, fmt.Sprintf("%d rows of table grants are larger than a server makes them and were not read", unread))
	}
	all, err := store.Select(ctx, db, (*stored).scan, selectGrants, "", "", "")
	if err != nil {
		return nil, err
	}
	s, seen := store.NewRowMACs(derive, grantPurpose), &Endings{} // seen is filled by the first row that needs it
	for n := range all {
		r := &all[n]
		if !r.mac.Valid {
			continue // a release without MACs made it; it is not in force, and not forged
		}
		if !s.Fit(r.mac.String, r.columns()...) {
			faults = append(faults, reasonOf(reasonForged, r))
			continue
		}
		if seen.of == nil {
			seen.of = map[name]ending{}
			if err := seen.checked(audit.All(ctx, db, actionApproval, seen.add)); err != nil {
				return nil, err
			}
		}
		if !seen.fits(r) {
			faults = append(faults, reasonOf(reasonBack, r))
		}
	}
	return faults, nil
}

// told logs the grants that are not in force, each once.
type told struct {
	store.Told

	log *slog.Logger
}

// fault logs a row that is not in force, with one of the reasons above.
func (t *told) fault(reason string, r *stored) {
	if t.New(r.id) {
		t.log.Error("a grant in the database opens nothing", "reason", reasonOf(reason, r))
	}
}

// lapsed logs the ids of grants that a release without MACs has made, in one line. open is an example: the command that
// opens the subject of one of them again.
func (t *told) lapsed(all []string, open string) {
	fresh := 0
	for _, id := range all {
		if t.New(id) {
			fresh++
		}
	}
	if fresh > 0 {
		t.log.Warn("grants of an older release have no MAC and open nothing any more; open their subjects again", "count", len(all), "grants", all[:min(len(all), 20)], "example", open)
	}
}
