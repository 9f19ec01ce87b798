package egress

import (
	"context"
	"net"
	"strconv"
)

// Judge decides whether a host may be connected to, beside the check of its address. It returns
// why not, or nil. host is a name or an address.
type Judge func(ctx context.Context, host string, port int) error

type judgeKey struct{}

// WithJudge returns a context for [Dialer] and [Judged]. A [Forwarder] that is made with it, too,
// asks the judge before each connection.
func WithJudge(ctx context.Context, j Judge) context.Context {
	return context.WithValue(ctx, judgeKey{}, j)
}

// Judged asks the judge of a context for a host:port. A caller that may reuse connections calls
// it for each request. Without a judge it returns nil.
func Judged(ctx context.Context, address string) error {
	j, ok := ctx.Value(judgeKey{}).(Judge)
	if !ok {
		return nil
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	return j(ctx, host, port)
}
