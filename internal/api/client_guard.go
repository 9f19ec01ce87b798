package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// SetLimits has the server change the limits of a namespace, which has to be
// named, or tell them.
func (c *Client) SetLimits(ctx context.Context, l sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	var done sandboxmcp.LimitsChanged
	err := c.send(ctx, question{path: "/v1/limits", limit: maxResponse, time: 2 * callTimeout}, limitsRequest{Namespace: l.Namespace, Limits: l.Limits, Reset: l.Reset, Strict: l.Strict}, &done)
	return done, err
}

// Events asks for the last events of a namespace, or of all when it is empty,
// the oldest first.
func (c *Client) Events(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Event, error) {
	var l eventList
	err := c.get(ctx, "/v1/events", url.Values{"namespace": {string(ns)}}, &l)
	return l.Events, err
}

// Follow hands on what happens in a namespace, or in all when it is empty, from
// now on, or with recent beginning with the last events. It returns nil when the
// server has ended it, an error of tell as it is, and ctx's when that ends. While
// tell is busy nothing is read, and the server does not wait.
func (c *Client) Follow(ctx context.Context, ns sandboxmcp.Namespace, recent bool, tell func(sandboxmcp.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answered := time.AfterFunc(callTimeout, func() { cancel(context.DeadlineExceeded) }) // a server that hangs
	res, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/events/follow", query: url.Values{"namespace": {string(ns)}, "recent": {strconv.FormatBool(recent)}}})
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answered.Stop()
	for d := json.NewDecoder(res.Body); ; {
		var e sandboxmcp.Event
		err := d.Decode(&e)
		switch {
		case err == nil:
			if err = tell(e); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case isEnd(err):
			return nil
		default:
			return fmt.Errorf("decode answer of /v1/events/follow: %w", err)
		}
	}
}

// isEnd reports whether a stream has ended because the other side did, and not
// because it holds something else than was asked for.
func isEnd(err error) bool {
	var bad *json.SyntaxError
	var unfit *json.UnmarshalTypeError
	return !errors.As(err, &bad) && !errors.As(err, &unfit)
}
