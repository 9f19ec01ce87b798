package docker

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
)

// engineLimit bounds the time in which the engine starts or removes a container.
const engineLimit = time.Minute

// removeTries bounds the attempts at a removal that the engine has begun and not completed.
const removeTries = 3

// remove removes a container and returns when it is gone. If the engine has stopped, the container
// has ended with it or with init, and it is removed when an engine answers again.
func (e *Engine) remove(ctx context.Context, id string) error {
	api, _, err := e.connect(ctx)
	if err != nil {
		e.leave(id, err)
		return nil
	}
	for range removeTries {
		err = api.ContainerRemove(ctx, id)
		if dockerapi.IsConflict(err) { // the engine is removing it
			if err = gone(ctx, api, id); err != nil && ctx.Err() == nil && !dockerapi.IsUnreachable(err) {
				continue // an engine that was killed meanwhile may fail at it once
			}
		}
		break
	}
	switch {
	case err == nil, dockerapi.IsNotFound(err):
		return nil
	case dockerapi.IsUnreachable(err):
		e.forget(api)
		e.leave(id, err)
		return nil
	}
	return e.failure("remove a container", err)
}

// gone waits until the engine has removed a container.
func gone(ctx context.Context, api *dockerapi.Client, id string) error {
	_, err := api.ContainerWait(ctx, id, dockerapi.Removed)
	if dockerapi.IsNotFound(err) {
		return nil
	}
	return err
}

// leave remembers a container that could not be removed because no engine answers.
func (e *Engine) leave(id string, err error) {
	e.cfg.Logger.Warn("a container is removed when the engine answers again", "container", id, "error", err)
	e.leftMu.Lock()
	defer e.leftMu.Unlock()
	e.left = append(e.left, id)
}

// removeLeft removes the containers that were left.
func (e *Engine) removeLeft(ctx context.Context, api *dockerapi.Client) {
	e.leftMu.Lock()
	left := e.left
	e.left = nil
	e.leftMu.Unlock()
	for _, id := range left {
		err := hasten(ctx, api, id)
		if err != nil && !dockerapi.IsNotFound(err) && !dockerapi.IsConflict(err) {
			e.leave(id, err)
		}
	}
}

// hasten raises the processor limit of a container and then removes it. With a small limit, hundreds of killed tasks need
// minutes to end. The new limit is one processor, because every machine has that many.
func hasten(ctx context.Context, api *dockerapi.Client, id string) error {
	soon, cancel := context.WithTimeout(ctx, stateLimit)
	defer cancel()
	_ = api.ContainerLimitCPU(soon, id, 1e9) // if it fails, the removal only takes longer
	return api.ContainerRemove(ctx, id)
}
