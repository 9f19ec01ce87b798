package docker

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Start starts a container and waits until its init has connected.
func (e *Engine) Start(spec process.ContainerSpec) (*process.Container, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit) //nolint:forbidigo // see process.Containers
	defer cancel()
	api, has, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	if bad := missing(spec.Trees); bad != "" {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s cannot be shown in a container", sandboxmcp.Quote(bad))
	}
	var door *jail.Door
	if err = os.MkdirAll(e.cfg.Dir, 0o700); err == nil {
		door, err = jail.OpenDoor(e.cfg.Dir, dirPrefix())
	}
	if err != nil {
		return nil, e.failure("make a directory in "+e.cfg.Dir, err)
	}
	wanted := options(spec, has.id(spec.Image), e.owner, door.Dir(), e.profile)
	if jail.HaveV6() {
		for _, device := range []string{"all", "default", "lo"} { // the engine turns it off where there is no network
			wanted.HostConfig.Sysctls["net.ipv6.conf."+device+".disable_ipv6"] = "0"
		}
	}
	id, err := api.ContainerCreate(ctx, wanted)
	if err != nil {
		if dockerapi.IsNotFound(err) || dockerapi.IsUnreachable(err) {
			e.forget(api)
		}
		return nil, errors.Join(e.failure("create a container", err), door.Close())
	}
	c := &process.Container{}
	c.Remove = func() error {
		ending, stop := context.WithTimeout(context.WithoutCancel(ctx), engineLimit)
		defer stop()
		return errors.Join(e.remove(ending, id), door.Close())
	}
	if err = e.start(ctx, api, door, id, c); err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

// start runs a container that was created, and takes its init's connection.
func (e *Engine) start(ctx context.Context, api *dockerapi.Client, door *jail.Door, id string, c *process.Container) error {
	if err := api.ContainerStart(ctx, id); err != nil {
		return e.failure("start a container", err)
	}
	state, err := api.ContainerInspect(ctx, id)
	if err != nil {
		return e.failure("look at a container", err)
	}
	if state.State.Pid == 0 {
		return e.failure("start a container", errors.New("its first process ended at once"))
	}
	c.PID = state.State.Pid
	if c.Control, c.PIDFD, err = door.Wait(ctx, c.PID); err != nil {
		return e.failure("start a container", err)
	}
	e.mu.Lock()
	c.Weak = append(c.Weak, e.weak...)
	e.mu.Unlock()
	if sharesUsers(c.PID) {
		c.Weak = append(c.Weak, "user namespace: the one of this machine (the engine has no userns-remap); programs have a user id that no other process has")
	}
	return nil
}

// sharesUsers reports whether a container has no user namespace of its own, or that is not known.
func sharesUsers(pid int) bool {
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	ours, ownErr := os.Readlink("/proc/self/ns/user")
	return err != nil || ownErr != nil || strings.EqualFold(theirs, ours)
}
