package store

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// listenAgain is the pause before a lost connection is made again.
const listenAgain = time.Second

// listener is the connection on which the database notifies this process of changes. Without
// it a [Watch.Wait] still checks, but later. All its methods may be called on nil.
type listener struct {
	cancel context.CancelFunc
	work   sync.WaitGroup
	hears  atomic.Bool // the database notifies
}

// listen calls wake with each topic that a server has changed, and with "" when changes may
// have been missed.
func (p *postgres) listen(ctx context.Context, wake func(topic string)) *listener {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &listener{cancel: cancel}
	l.work.Go(func() {
		pause := time.NewTimer(0)
		defer pause.Stop()
		for ctx.Err() == nil {
			p.receive(ctx, &l.hears, wake)
			pause.Reset(listenAgain)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
		}
	})
	return l
}

// hearing reports whether the database notifies this process of changes.
func (l *listener) hearing() bool { return l != nil && l.hears.Load() }

// receive listens until ctx ends or the connection is lost.
func (p *postgres) receive(ctx context.Context, hears *atomic.Bool, wake func(topic string)) {
	conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, listenToAll); err != nil {
		return
	}
	wake("")
	hears.Store(true)
	defer hears.Store(false)
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		// Another schema of the same database may have the topic too. That costs one look.
		wake(n.Payload[strings.LastIndexByte(n.Payload, ' ')+1:]) // the name of a schema can have spaces
	}
}

// close ends the goroutine.
func (l *listener) close() {
	if l == nil {
		return
	}
	l.cancel()
	l.work.Wait()
}
