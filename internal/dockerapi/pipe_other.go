//go:build !windows

package dockerapi

import (
	"context"
	"errors"
	"net"
)

// DefaultHost is the address of an engine that is installed as usual.
const DefaultHost = "unix:///var/run/docker.sock"

func dialPipe(context.Context, string) (net.Conn, error) {
	return nil, errors.New("only Windows has named pipes of this kind")
}
