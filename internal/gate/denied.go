package gate

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// denial is a question that a person denied.
type denial[S Subject[S]] struct {
	subject S
	at      time.Time
}

// Denied reports whether a person has denied the namespace a subject that matches within the
// last ten minutes. A denial from before the clock was set back does not count. If the questions cannot be read, it returns false. Open subjects are not
// considered.
func (g *Gate[S]) Denied(ctx context.Context, ns sandboxmcp.Namespace, match func(S) bool) bool {
	all, err := g.denials.Get(ctx)
	if err != nil {
		return false
	}
	now := g.now()
	for _, d := range all[ns] {
		if !d.at.After(now.Add(clockSlack)) && now.Sub(d.at) < deniedFor && match(d.subject) {
			return true
		}
	}
	return false
}

// readDenials reads the recent denials of each namespace.
func (g *Gate[S]) readDenials(ctx context.Context) (map[sandboxmcp.Namespace][]denial[S], error) {
	rows, err := g.cfg.Store.DB().QueryContext(ctx, selectDenied, format(g.now().Add(-deniedFor)))
	if err != nil {
		return nil, g.unreadable(err)
	}
	defer func() { _ = rows.Close() }()
	of := map[sandboxmcp.Namespace][]denial[S]{}
	for rows.Next() {
		a, err := g.scanApproval(rows)
		if err != nil {
			return nil, g.unreadable(err)
		}
		if a.state == whole {
			of[a.info.Namespace] = append(of[a.info.Namespace], denial[S]{a.subject, a.decided})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, g.unreadable(err)
	}
	return of, nil
}
