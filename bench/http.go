//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

const (
	httpVersion = "2026-07-28" // of MCP: each call is one request
	httpKey     = "bench-key-0123456789"
)

// timedHTTP serves MCP over HTTP behind the product's door, with a clock around the engine as
// timedServe has one. It prints its address, and ends with its standard input.
func timedHTTP(ctx context.Context, o options, in io.Reader, out io.Writer) error {
	s, e, err := clockedServer(ctx, o, true)
	if err != nil {
		return err
	}
	defer shut(e)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	keys := []door.Key{{Secret: sandboxmcp.NewSecret(httpKey)}}
	stop := listen.Serve(ctx, l, listen.Served{
		Handler: door.New(door.Config{Own: e.Namespace(), Rules: door.Rules{Keys: keys, Rate: 5000}, Names: []string{"127.0.0.1"}, Logger: log}, s.HTTP(ctx)),
		Logger:  log, Connected: door.Connected,
	})
	defer stop()
	if _, err = fmt.Fprintf(out, "http://%s%s\n", l.Addr(), server.MCPPath); err != nil {
		return fmt.Errorf("print the address: %w", err)
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}

// httpClient is a minimal client of timedHTTP. Its calls may be made concurrently, but not
// inside.
type httpClient struct {
	clock
	cmd  *exec.Cmd
	in   io.Closer
	url  string
	http *http.Client
	next atomic.Int64
}

// overHTTP starts a timedHTTP and returns its client.
func (b *bed) overHTTP(ctx context.Context) (c *httpClient, err error) {
	dir, err := b.dir("http")
	if err != nil {
		return nil, err
	}
	times, err := newClock(dir)
	if err != nil {
		return nil, err
	}
	cmd := b.child(context.WithoutCancel(ctx), "serve-http", "-state", dir)
	cmd.ExtraFiles = []*os.File{times.file}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, times.file.Close())
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, in.Close(), times.file.Close())
	}
	c = &httpClient{clock: times, cmd: cmd, in: in, http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	line, err := bufio.NewReader(out).ReadString('\n')
	if c.url = strings.TrimSpace(line); err != nil {
		return nil, errors.Join(fmt.Errorf("start server: %w", err), c.close())
	}
	return c, nil
}

// close ends the server by closing its input.
func (c *httpClient) close() error {
	c.http.CloseIdleConnections()
	_ = c.in.Close()
	err := c.cmd.Wait()
	_ = c.file.Close()
	if err != nil {
		return fmt.Errorf("end server: %w", err)
	}
	return nil
}

// execute runs code by execute_code and checks what it prints.
func (c *httpClient) execute(ctx context.Context, args map[string]any, want string) (time.Duration, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.next.Add(1), "method": "tools/call", "params": map[string]any{
		"name": "execute_code", "arguments": args,
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": httpVersion, "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	}})
	if err != nil {
		return 0, fmt.Errorf("encode call: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make call: %w", err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-Api-Key": httpKey,
		"Mcp-Protocol-Version": httpVersion, "Mcp-Method": "tools/call", "Mcp-Name": "execute_code",
	} {
		req.Header.Set(name, value)
	}
	began := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("call: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	var a answer
	for line := range bytes.Lines(text) {
		line = bytes.TrimPrefix(line, []byte("data:"))
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) {
			if err = json.Unmarshal(line, &a); err != nil {
				return 0, fmt.Errorf("read answer: %w", err)
			}
		}
	}
	var got struct {
		Structured struct {
			Stdout string `json:"stdout"`
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(a.Result, &got); err != nil || got.Structured.Stdout != want {
		return 0, fmt.Errorf("execute_code did not print %q: %s: %.300s", want, resp.Status, text)
	}
	return took, nil
}

// httpModes measure calls over HTTP, and what HTTP adds to the engine's time in each.
func (b *bed) httpModes(ctx context.Context, i interpreter) []mode {
	single := mode{rows: []string{rowHTTP, rowHTTPAdded}, base: i.bare()}
	session := mode{rows: []string{rowHTTPSession, rowHTTPSessionAdded}, base: i.bare()}
	c, err := b.overHTTP(ctx)
	if err != nil {
		single.skip, session.skip = err.Error(), err.Error()
		return []mode{single, session}
	}
	b.web = c
	b.closers = append(b.closers, c.close)
	timed := func(id string) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) {
			whole, err := c.execute(ctx, helloOver(i, id), "1\n")
			if err != nil {
				return nil, err
			}
			inside, err := c.inside()
			return []float64{milliseconds(whole), milliseconds(whole - inside)}, err
		}
	}
	single.run, session.run = timed(""), timed("bench")
	return []mode{single, session}
}

// helloOver returns the arguments of a call that prints 1; in a session if id is not empty.
func helloOver(i interpreter, id string) map[string]any {
	args := map[string]any{"code": "print(1)", "language": string(i.Lang)}
	if id != "" {
		args["session_id"] = id
	}
	return args
}

// httpLoads repeat calls over HTTP.
func (b *bed) httpLoads(i interpreter, at []int) []load {
	single := load{name: rowHTTP, at: at}
	session := load{name: rowHTTPSession, at: at}
	if b.web == nil {
		single.skip, session.skip = "the server did not start", "the server did not start"
		return []load{single, session}
	}
	single.work = func(ctx context.Context, _ int) error {
		_, err := b.web.execute(ctx, helloOver(i, ""), "1\n")
		return err
	}
	session.work = func(ctx context.Context, worker int) error {
		_, err := b.web.execute(ctx, helloOver(i, "load-"+strconv.Itoa(worker)), "1\n")
		return err
	}
	return []load{single, session}
}
