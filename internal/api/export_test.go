package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/sandboxmcp/sandboxmcp"
)

// NewHandler mounts the routes for peers of one identity, as a listener would.
func NewHandler(ctx context.Context, c Config, identity sandboxmcp.Identity) http.Handler {
	h := &handler{
		service: c.Service, logger: c.Logger, maxUpload: c.MaxUpload, ending: ctx,
		identify: func(*http.Request) (sandboxmcp.Identity, error) { return identity, nil },
	}
	return h.mount()
}

// RouteInfo is a route as a test looks at it.
type RouteInfo struct {
	Pattern string
	In      reflect.Type // its input struct
}

// Routes lists the table.
func Routes() []RouteInfo {
	var all []RouteInfo
	for _, e := range endpoints() {
		info := RouteInfo{Pattern: e.pattern()}
		switch e.(type) {
		case executeRoute:
			info.In = reflect.TypeFor[body[sandboxmcp.Request]]()
		case followRoute:
			info.In = reflect.TypeFor[followIn]()
		case uploadRoute:
			info.In = reflect.TypeFor[uploadIn]()
		default: // do of a route takes a context, the service, the caller and the input
			info.In = reflect.ValueOf(e).FieldByName("do").Type().In(3)
		}
		all = append(all, info)
	}
	return all
}

// ParseKind reports whether the server can set a field of that type from text.
func ParseKind(t reflect.Type, s string) error { return parse(reflect.New(t).Elem(), "field", s) }
