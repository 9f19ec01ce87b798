package docker

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// lift lifts the processor limit of a container while its programs are killed. restore sets the limit again. With a
// small share, hundreds of killed tasks and the relay, which kills them, would take minutes. If the limit cannot be
// lifted, the end only takes longer. The engine accepts no limit above the number of its machine's processors.
func (x *box) lift(api *dockerapi.Client) (restore func() error) {
	own := int64(x.spec.CPUCores * 1e9)
	change := func(nano int64) error {
		ctx, cancel := context.WithTimeout(context.Background(), stateLimit) //nolint:forbidigo // it is called when the caller's context may have ended
		defer cancel()
		return api.ContainerLimitCPU(ctx, x.id, nano)
	}
	var err error
	restore = func() error { return nil }
	switch all := int64(x.cores) * 1e9; {
	case x.group.read():
		restore, err = x.group.restore, x.group.lift()
	case own > 0 && own < all:
		restore, err = func() error { return change(own) }, change(all)
	}
	if err != nil {
		x.b.cfg.Logger.Warn("the processor limit of a container cannot be lifted; the end of its programs takes longer", "container", x.id, "error", err)
	}
	return restore
}
