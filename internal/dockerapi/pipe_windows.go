package dockerapi

import (
	"context"
	"net"

	"github.com/Microsoft/go-winio"
)

// DefaultHost is the address of an engine that is installed as usual.
const DefaultHost = "npipe:////./pipe/docker_engine"

func dialPipe(ctx context.Context, path string) (net.Conn, error) {
	return winio.DialPipeContext(ctx, path)
}
