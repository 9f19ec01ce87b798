// Command sandboxmcp-agent is the first program of a sandbox's pod, see package agent. Its settings are
// environment variables.
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
	if err := serve(context.Background()); err != nil {
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
