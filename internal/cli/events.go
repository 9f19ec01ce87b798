package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

const (
	followLook  = 200 * time.Millisecond // between two looks for servers
	followAgain = 2 * time.Second        // until one that did not answer is asked again
)

// guardCommands adds what watches over the servers to the tree of commands.
func (a *app) guardCommands(root *cobra.Command) {
	for _, c := range []*cobra.Command{a.limitsCommand(), a.eventsCommand()} {
		c.GroupID = "look"
		root.AddCommand(c)
	}
}

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var namespace string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happens in the running servers",
		Long: `Shows the last events of the running servers of the state directory: runs that
start and end, sessions that come and go, limits that were hit, files that were
signed. Each server keeps its last 256. With --follow it shows what happens from
now on, in servers that start later as well, until it is interrupted. Events are
no record: that is the audit. One that says "lost" came after others that could
not be shown in time. Runs of the command line itself are in no server.

With --json it is one JSON document, and with --follow one JSON object a line.`,
		Example: `  sandboxmcp events
  sandboxmcp events --follow --json`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&follow, "follow", false, "go on with what happens from now on")
	f.StringVar(&namespace, "namespace", "", "only of the namespace `NAME` (default: of all)")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		who := everyone()
		if f.Changed("namespace") {
			ns, err := sandboxmcp.ParseNamespace(namespace)
			if err != nil {
				return err
			}
			who.Namespace = ns
		}
		cfg, err := a.load()
		if err != nil {
			return err
		}
		if follow {
			return a.follow(ctx, cfg, who)
		}
		return a.lastEvents(ctx, cfg, who)
	})
}

// lastEvents shows what the running servers keep, the oldest first.
func (a *app) lastEvents(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller) error {
	peers, err := a.servers(ctx, cfg, place{})
	if err != nil {
		return err
	}
	all := []sandboxmcp.Event{}
	for _, p := range peers {
		have, err := p.Events(ctx, who)
		if err != nil {
			a.say("server " + p.Peer().ID + ": " + err.Error())
			continue
		}
		all = append(all, have...)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	slices.SortStableFunc(all, func(x, y sandboxmcp.Event) int { return x.Timestamp.Compare(y.Timestamp) })
	if a.json {
		a.printJSON(map[string]any{"events": all})
		return nil
	}
	rows := [][]string{{"TIME", "EVENT", "NAMESPACE", "WHAT"}}
	for _, e := range all {
		rows = append(rows, []string{clock(e.Timestamp), string(e.Type), string(e.Namespace), eventText(e)})
	}
	a.table(rows)
	return nil
}

// eventText is what happened, with the names that tell which.
func eventText(e sandboxmcp.Event) string {
	words := []string{e.Message}
	for _, k := range slices.Sorted(maps.Keys(e.Data)) {
		if v, ok := e.Data[k].(string); ok && strings.HasSuffix(k, "_id") {
			words = append(words, strings.TrimSuffix(k, "_id")+" "+v)
		}
	}
	text := strings.Join(words, ", ")
	if e.Dropped > 0 {
		text += " (" + strconv.FormatInt(e.Dropped, 10) + " before it lost)"
	}
	return text
}

// followers watch the servers of a state directory, each in a goroutine.
type followers struct {
	app *app
	cfg *config.Config
	who sandboxmcp.Caller
	end context.CancelCauseFunc

	since time.Time // what was before is not shown

	mu   sync.Mutex
	have map[string]time.Time // servers that are followed, or until then let alone
	said map[string]bool      // servers of which it was said that they do not answer

	out  sync.Mutex        // one line at a time; guards seen
	seen map[string]uint64 // the number of the last event, by the mark of who counts

	work sync.WaitGroup
}

// follow shows what happens from now on, until ctx ends or nobody reads it any
// more. Every server is asked for what it keeps as well: of one that starts later,
// or could not be heard for a while, nothing is missed, and nothing is shown twice.
func (a *app) follow(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller) error {
	own, end := context.WithCancelCause(ctx)
	defer end(nil)
	f := &followers{app: a, cfg: cfg, who: who, end: end, since: time.Now(), have: map[string]time.Time{}, said: map[string]bool{}, seen: map[string]uint64{}}
	defer f.work.Wait()
	defer end(nil)
	tick := time.NewTicker(followLook)
	defer tick.Stop()
	for {
		ids, err := api.IDs(cfg.StateDir)
		if err != nil {
			return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the servers of %s cannot be found", cfg.StateDir).WithCause(err)
		}
		f.look(own, ids)
		select {
		case <-tick.C:
		case <-own.Done():
			if errors.Is(context.Cause(own), errReaderGone) {
				a.status = exitBrokenPipe
			}
			return nil // it was to end
		}
	}
}

// look follows those servers that are not followed yet.
func (f *followers) look(ctx context.Context, ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(f.have, func(_ string, until time.Time) bool { return !until.IsZero() && now.After(until) })
	for _, id := range ids {
		if _, known := f.have[id]; !known {
			f.have[id] = time.Time{}
			f.work.Go(func() { f.watch(ctx, id) })
		}
	}
}

// watch tells what happens in a server until it ends.
func (f *followers) watch(ctx context.Context, id string) {
	c, err := api.Find(ctx, f.cfg.StateDir, id)
	var events <-chan sandboxmcp.Event
	if err == nil {
		events, err = c.Follow(ctx, f.who, true)
	}
	for e := range events { // none without a server
		if err = f.tell(e); err != nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have[id] = time.Now().Add(followAgain)
	if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) && !f.said[id] {
		f.said[id] = true
		f.app.say(err.Error())
	}
}

// tell shows an event, unless it is old or was shown.
func (f *followers) tell(e sandboxmcp.Event) error {
	line := clock(e.Timestamp) + "  " + string(e.Type) + "  " + string(e.Namespace) + "  " + oneLine(eventText(e)) + "\n"
	if f.app.json {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		line = string(text) + "\n"
	}
	f.out.Lock()
	defer f.out.Unlock()
	if mark, number, ok := strings.Cut(e.ID, "-"); ok {
		n, err := strconv.ParseUint(number, 10, 64)
		if err == nil && n <= f.seen[mark] {
			return nil
		}
		f.seen[mark] = n
	}
	if e.Timestamp.Before(f.since) {
		return nil
	}
	_, err := io.WriteString(f.app.stdout, line)
	if err != nil {
		f.end(errReaderGone)
	}
	return err
}
