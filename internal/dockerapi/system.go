package dockerapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Version names the programs of an engine.
type Version struct {
	Components []struct{ Name, Version string }
}

// Version returns the versions of the engine's programs.
func (a *Client) Version(ctx context.Context) (v Version, err error) {
	return v, a.Call(ctx, Request{Method: http.MethodGet, Path: "/version"}, &v)
}

// Info describes an engine and its machine.
type Info struct {
	Runtimes        map[string]struct{} // by name
	Architecture    string
	SecurityOptions []string
	KernelVersion   string
	SystemTime      string // RFC 3339
	NCPU            int    // processors
	SwapLimit       bool   // the kernel counts swap of containers
}

// Info returns what the engine reports about itself and its machine.
func (a *Client) Info(ctx context.Context) (i Info, err error) {
	return i, a.Call(ctx, Request{Method: http.MethodGet, Path: "/info"}, &i)
}

// filters returns a query that selects what has all of the values.
func filters(values map[string]string) url.Values {
	all := map[string]map[string]bool{}
	for name, value := range values {
		all[name] = map[string]bool{value: true}
	}
	text, _ := json.Marshal(all) // strings alone
	return url.Values{"filters": {string(text)}}
}

// mostEvent bounds the bytes of an event.
const mostEvent = 1 << 20

// Events are the events of an engine. The caller closes them.
type Events struct {
	body  io.Closer
	left  *io.LimitedReader
	texts *json.Decoder
}

// Events returns the events with some values, such as type and container, from one time by the engine's clock
// until another, which may come. A zero since means that only new events are returned.
func (a *Client) Events(ctx context.Context, since, until time.Time, values map[string]string) (*Events, error) {
	q := filters(values)
	if !since.IsZero() {
		q.Set("since", seconds(since))
	}
	q.Set("until", seconds(until))
	res, err := a.open(ctx, Request{Method: http.MethodGet, Path: "/events", Query: q}) //nolint:bodyclose // Events closes it
	if err != nil {
		return nil, err
	}
	left := &io.LimitedReader{R: res.Body}
	return &Events{res.Body, left, json.NewDecoder(left)}, nil
}

func seconds(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

// Next waits for the next event. It returns an error at the end of the time, of the context, or of the engine.
func (e *Events) Next() error {
	e.left.N = mostEvent
	return e.texts.Decode(&struct{}{})
}

// Close ends the events.
func (e *Events) Close() { _ = e.body.Close() }
