//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// client is a minimal MCP client of a server on stdin and stdout. It is minimal so that
// mostly the server is measured.
type client struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	next int
	stop context.CancelFunc
}

// dial starts a server and performs the handshake.
func dial(ctx context.Context, p program) (*client, error) {
	return dialWith(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
		cmd.Env, cmd.Dir = p.env, p.cwd()
		return cmd
	})
}

func dialWith(ctx context.Context, command func(context.Context) *exec.Cmd) (*client, error) {
	// The server is ended by close, even if ctx has ended, so that it can clean up. A
	// killed server leaves its cgroups for the next one to remove.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &client{cmd: command(ctx), stop: stop}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.in, c.out = in, bufio.NewReaderSize(out, 1<<20)
	if err = c.cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("start server: %w", err)
	}
	_, _, err = c.call("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "bench", "version": "1"}})
	if err == nil {
		_, err = io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shake hands: %w", err), c.close())
	}
	return c, nil
}

// close ends the server by closing its input, and kills it if that is not enough.
func (c *client) close() error {
	defer c.stop()
	if c.in == nil || c.cmd.Process == nil {
		return nil
	}
	_ = c.in.Close()
	t := time.AfterFunc(5*time.Second, c.stop)
	defer t.Stop()
	_, _ = io.Copy(io.Discard, c.out)
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("end server: %w", err)
	}
	return nil
}

// answer is a server's response to a call.
type answer struct {
	ID     *int            `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// call sends a request and returns its result and the time from the first byte written to
// the last byte of the response line.
func (c *client) call(method string, params any) (json.RawMessage, time.Duration, error) {
	c.next++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	if err != nil {
		return nil, 0, fmt.Errorf("encode call: %w", err)
	}
	line = append(line, '\n')
	began := time.Now()
	if _, err := c.in.Write(line); err != nil {
		return nil, 0, fmt.Errorf("write call: %w", err)
	}
	for {
		got, err := c.out.ReadBytes('\n')
		took := time.Since(began)
		if err != nil {
			return nil, 0, fmt.Errorf("read answer: %w", err)
		}
		var a answer
		if err := json.Unmarshal(got, &a); err != nil {
			return nil, 0, fmt.Errorf("read answer: %w", err)
		}
		if a.ID == nil || *a.ID != c.next {
			continue // a notification
		}
		if a.Error != nil {
			return nil, 0, errors.New("the server answered: " + a.Error.Message)
		}
		return a.Result, took, nil
	}
}

// toolResult is the part of a tool's result that is used.
type toolResult struct {
	IsError bool `json:"isError"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
}

// tool calls a tool and decodes its answer into out.
func (c *client) tool(name string, args, out any) (time.Duration, error) {
	raw, took, err := c.call("tools/call", map[string]any{"name": name, "arguments": args})
	if err != nil {
		return 0, err
	}
	var r toolResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, fmt.Errorf("read answer of %s: %w", name, err)
	}
	body := []byte(r.Structured)
	if len(body) == 0 && len(r.Content) > 0 {
		body = []byte(r.Content[0].Text)
	}
	if r.IsError {
		return 0, fmt.Errorf("%s failed: %.300s", name, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return 0, fmt.Errorf("read answer of %s: %w", name, err)
	}
	return took, nil
}

// execute runs code by execute_code and checks what it prints.
func (c *client) execute(lang, code, want string) (time.Duration, error) {
	var raw json.RawMessage
	took, err := c.tool("execute_code", map[string]any{"code": code, "language": lang}, &raw)
	if err != nil {
		return 0, err
	}
	var res struct {
		Stdout string `json:"stdout"`
	}
	if err := json.Unmarshal(raw, &res); err != nil || res.Stdout != want {
		return 0, fmt.Errorf("execute_code did not print %q: %.300s", want, raw)
	}
	return took, nil
}
