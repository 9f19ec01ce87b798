package docker

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
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
		_, err = api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsConflict(err) { // the engine is removing it
			if err = gone(ctx, api, id); err != nil && ctx.Err() == nil && !client.IsErrConnectionFailed(err) {
				continue // an engine that was killed meanwhile may fail at it once
			}
		}
		break
	}
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case client.IsErrConnectionFailed(err):
		e.forget(api)
		e.leave(id, err)
		return nil
	}
	return e.failure("remove a container", err)
}

// gone waits until the engine has removed a container.
func gone(ctx context.Context, api *client.Client, id string) error {
	wait := api.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	select { // one of them is always sent
	case r := <-wait.Result:
		if r.Error != nil {
			return errors.New(r.Error.Message)
		}
		return nil
	case err := <-wait.Error:
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// leave remembers a container that could not be removed because no engine answers.
func (e *Engine) leave(id string, err error) {
	e.cfg.Logger.Warn("a container is removed when the engine answers again", "container", id, "error", err)
	e.leftMu.Lock()
	defer e.leftMu.Unlock()
	e.left = append(e.left, id)
}

// removeLeft removes the containers that were left.
func (e *Engine) removeLeft(ctx context.Context, api *client.Client) {
	e.leftMu.Lock()
	left := e.left
	e.left = nil
	e.leftMu.Unlock()
	for _, id := range left {
		_, err := api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			e.leave(id, err)
		}
	}
}
