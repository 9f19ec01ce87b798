package door

import (
	"context"
	"net"
	"sync"
)

type userKey struct{}

// Connected is for the field Connected of listen.Served. It lets the door find out whether
// the program at the other end of a connection has the server's user.
func Connected(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, userKey{}, sync.OnceValue(func() bool { return ownUser(c) }))
}

// fromOwnUser reports whether a program of the server's user sent a request.
func fromOwnUser(ctx context.Context) bool {
	ask, ok := ctx.Value(userKey{}).(func() bool)
	return ok && ask()
}
