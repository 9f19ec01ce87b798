// Command sandboxmcp-agent is the first program of a sandbox's pod, see package agent. Its settings are
// environment variables.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/agent"
)

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "sandboxmcp-agent:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	variable := os.Getenv //nolint:forbidigo // a pod gives the agent its settings in no other way
	keys, err := agent.ParseKeys(variable(agent.EnvKeys))
	if err != nil {
		return fmt.Errorf("%s: %w", agent.EnvKeys, err)
	}
	if text := variable(agent.EnvWait); text != "" {
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
	a := &agent.Agent{Keys: keys, Pod: variable(agent.EnvPod), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	conn, err := a.Serve(ctx, l)
	if err != nil {
		return err
	}
	if conn == nil {
		return errors.New("the server's connection was lost")
	}
	return agent.Become(conn)
}
