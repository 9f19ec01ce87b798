package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) eventsCommand() *cobra.Command {
	var follow bool
	var namespace string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show events of the running servers",
		Long: `Shows the last events of the running servers of the state directory: runs that
start and end, sessions that are created and killed, limits that were exceeded,
files that were signed. Each server keeps its last 256 events. --follow prints new
events, also of servers that start later, until it is interrupted. Events are not
a record; see "sandboxmcp audit" for that. An event with "lost" says how many
events before it could not be delivered in time. Runs that the command line does
in its own process have no events.

With --json it prints one JSON document, and with --follow one JSON object a line.`,
		Example: `  sandboxmcp events
  sandboxmcp events --follow --json`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&follow, "follow", false, "print new events as they come")
	f.StringVar(&namespace, "namespace", "", "show only events of the namespace `NAME` (default: all)")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		who := app.Everyone()
		if f.Changed("namespace") {
			ns, err := sandboxmcp.ParseNamespace(namespace)
			if err != nil {
				return err
			}
			who.Namespace = ns
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		if follow {
			err = a.Follow(ctx, cfg, who, a.printEvent)
			if errors.Is(err, errReaderGone) {
				a.status = exitBrokenPipe
				return nil
			}
			return err
		}
		return a.lastEvents(ctx, cfg, who)
	})
}

// lastEvents shows the events that the running servers keep, oldest first.
func (a *call) lastEvents(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller) error {
	peers, err := a.Servers(ctx, cfg, app.Place{})
	if err != nil {
		return err
	}
	all := []sandboxmcp.Event{}
	for _, p := range peers {
		have, err := p.Events(ctx, who)
		if err != nil {
			a.Say("server " + p.Peer().ID + ": " + err.Error())
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

// eventText returns the message of an event with its ids.
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

// printEvent prints one event. It fails if stdout is closed.
func (a *call) printEvent(e sandboxmcp.Event) error {
	line := clock(e.Timestamp) + "  " + string(e.Type) + "  " + string(e.Namespace) + "  " + app.OneLine(eventText(e)) + "\n"
	if a.json {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		line = string(printableJSON(text)) + "\n"
	}
	if _, err := io.WriteString(a.Stdout, line); err != nil {
		return errReaderGone
	}
	return nil
}
