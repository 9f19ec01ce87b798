package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
)

// Execute has the server run a request and hands on what the program writes,
// to the writers of the request, while it runs. When ctx ends the server ends
// the run, and the error is cancelled. The namespace has to be named.
func (c *Client) Execute(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	res, err := c.execute(ctx, req)
	if err != nil && ctx.Err() != nil {
		return res, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the run was cancelled").WithCause(context.Cause(ctx))
	}
	return res, err
}

func (c *Client) execute(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	body, err := json.Marshal(newProgram(req))
	if err != nil {
		return sandboxmcp.Result{}, fmt.Errorf("encode request: %w", err)
	}
	answer, err := c.ask(ctx, question{method: http.MethodPost, path: "/v1/execute", body: body})
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	d := json.NewDecoder(io.LimitReader(answer.Body, 2*maxResult))
	d.UseNumber()
	for {
		var e event
		err := d.Decode(&e)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
			return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the server ended before the program did").
				WithHint("ask again")
		case err != nil:
			return sandboxmcp.Result{}, fmt.Errorf("decode answer of /v1/execute: %w", err)
		case e.Result != nil:
			return *e.Result, nil
		case e.Error != nil:
			return sandboxmcp.Result{}, coded("/v1/execute", e.Error)
		case e.Stream == "stdout" && req.Stdout != nil:
			_, _ = req.Stdout.Write(e.Data)
		case e.Stream == "stderr" && req.Stderr != nil:
			_, _ = req.Stderr.Write(e.Data)
		}
	}
}

// Start has the server run a request in the background. It returns at once,
// with the status running.
func (c *Client) Start(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	var res sandboxmcp.Result
	err := c.send(ctx, question{path: "/v1/start", limit: maxResponse, time: workTimeout, exact: true}, newProgram(req), &res)
	return res, err
}
