// Command sandboxmcp-agent is the first program of a sandbox's pod, see package agent. With the argument
// "copy PATH" it copies itself, for an init container that brings it to an image without it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 1:
		err = serve(context.Background())
	case len(os.Args) == 3 && os.Args[1] == "copy":
		err = duplicate(os.Args[2])
	default:
		err = errors.New("usage: sandboxmcp-agent [copy PATH]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxmcp-agent:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	keys, err := agent.ParseKeys(os.Getenv(agent.EnvKeys))
	if err != nil {
		return fmt.Errorf("%s: %w", agent.EnvKeys, err)
	}
	if text := os.Getenv(agent.EnvWait); text != "" {
		wait, bad := time.ParseDuration(text)
		if bad != nil {
			return fmt.Errorf("%s: %w", agent.EnvWait, bad)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(agent.Port)))
	if err != nil {
		return err
	}
	a := &agent.Agent{Keys: keys, Pod: os.Getenv(agent.EnvPod), Log: log.New(os.Stderr, "", log.LstdFlags)}
	conn, err := a.Serve(ctx, l)
	if err != nil {
		return err
	}
	if conn == nil {
		return errors.New("the server's connection was lost")
	}
	return agent.Become(conn)
}

// duplicate copies this program.
func duplicate(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755) //nolint:gosec // programs may read and run it: it is public
}
