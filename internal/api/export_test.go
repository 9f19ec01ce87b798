package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// NewHandler mounts the routes for peers of one identity, as a listener would.
func NewHandler(ctx context.Context, c Config, identity sandboxmcp.Identity) http.Handler {
	h := &handler{
		service: c.Service, logger: c.Logger, maxUpload: c.MaxUpload, stop: c.Stop, ending: ctx,
		identify: func(*http.Request) (sandboxmcp.Identity, error) { return identity, nil },
		beat:     heartbeat, followers: followers{each: maxFollow},
	}
	return h.mount()
}

// RouteInfo is a route as a test looks at it.
type RouteInfo struct {
	Pattern  string
	In, Out  reflect.Type // its input struct, or nil; its answer, or nil
	Doc      string
	Example  string
	Open     bool
	Operator bool
}

// Routes lists the routes of the unix socket, RESTRoutes those over HTTP.
func Routes() []RouteInfo     { return infos(localEndpoints()) }
func RESTRoutes() []RouteInfo { return infos(restEndpoints()) }

func infos(table []endpoint) []RouteInfo {
	var all []RouteInfo
	for _, e := range table {
		d := e.about()
		all = append(all, RouteInfo{d.pattern(), d.in, d.out, d.doc, d.example, d.open, d.operator})
	}
	return all
}

// Pump streams events as a follower gets them that has got those up to last.
func Pump(w http.ResponseWriter, events <-chan sandboxmcp.Event, last string, beat time.Duration) {
	h := &handler{beat: beat}
	h.pump(newSender(w), events, resumption{last: last})
}

// SchemaOf returns the schema of an answer.
func SchemaOf(t reflect.Type) (*jsonschema.Schema, error) { return schemaOf(t, false) }

// Limits of followers.
const (
	MaxFollow     = maxFollow
	MaxFollowEach = maxFollowEach
)

// ParseKind reports whether the server can set a field of that type from text.
func ParseKind(t reflect.Type, s string) error { return parse(reflect.New(t).Elem(), "field", s) }

// SetPatience sets how long [Client.Execute] waits for a cancelled run.
func (c *Client) SetPatience(d time.Duration) { c.patience = d }

// WithoutNulls returns a copy of an answer without null lists and maps.
func WithoutNulls(v any) any { return withoutNulls(v) }

// RemoteWithin is Remote with a limit on the time in which a connection is made.
var RemoteWithin = remote
