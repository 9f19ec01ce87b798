package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// question is one call: what is asked, how long its answer may be and how long
// it may take.
type question struct {
	method, path string
	query        url.Values
	body         []byte    // nil: none, or stream
	stream       io.Reader // a body that is not held in memory
	size         int64     // of stream; -1: not known
	limit        int64
	time         time.Duration
	exact        bool // numbers of no known type stay as they are written
}

// get asks for something small that is there.
func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	return c.call(ctx, question{method: http.MethodGet, path: path, query: query, limit: maxResponse, time: callTimeout}, out)
}

// post sends a body and takes a small answer, at once.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	return c.send(ctx, question{path: path, limit: maxResponse, time: callTimeout}, in, out)
}

// work is [Client.post] for what may take a while.
func (c *Client) work(ctx context.Context, path string, in, out any) error {
	return c.send(ctx, question{path: path, limit: maxBridge, time: workTimeout}, in, out)
}

func (c *Client) send(ctx context.Context, q question, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", q.path, err)
	}
	q.method, q.body = http.MethodPost, data
	return c.call(ctx, q, out)
}

func (c *Client) call(ctx context.Context, q question, out any) error {
	ctx, cancel := context.WithTimeout(ctx, q.time)
	defer cancel()
	res, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := whole(res.Body, q.path, q.limit)
	if err != nil || out == nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if q.exact {
		d.UseNumber()
	}
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("decode answer of %s: %w", q.path, err)
	}
	return nil
}

// ask sends a question. What comes back is an answer whose body is the caller's
// to read and to close; a failure that the server answered is an error.
func (c *Client) ask(ctx context.Context, q question) (*http.Response, error) {
	var body io.Reader = http.NoBody
	switch {
	case q.stream != nil:
		body = q.stream
	case q.body != nil:
		body = bytes.NewReader(q.body)
	}
	target := url.URL{Scheme: "http", Host: "control", Path: q.path, RawQuery: q.query.Encode()}
	req, err := http.NewRequestWithContext(ctx, q.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", q.path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if q.stream != nil {
		if req.ContentLength = q.size; q.size == 0 {
			req.Body = http.NoBody
		}
		req.Header.Set("Expect", "100-continue") // so that a refusal comes before all of it is sent
	}
	res, err := c.http.Do(req)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("ask %s: %w", q.path, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", q.path, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	data, err := whole(res.Body, q.path, maxResponse)
	if err != nil {
		return nil, err
	}
	return nil, failure(q.path, res.StatusCode, data)
}

func whole(r io.Reader, path string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("answer of %s is longer than %d bytes", path, limit)
	}
	return data, nil
}

// failure makes an error of the body of an answer again.
func failure(path string, status int, data []byte) error {
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("answer of %s is status %d without a body", path, status)
	}
	return coded(path, fields)
}

// coded makes an error of an error body again. A code that this version does
// not know is no code of ours.
func coded(path string, fields map[string]any) error {
	code, _ := fields["error"].(string)
	e := &sandboxmcp.Error{Code: sandboxmcp.Code(code)}
	e.Message, _ = fields["message"].(string)
	e.Hint, _ = fields["hint"].(string)
	if e.Code.Row().Code != e.Code {
		return fmt.Errorf("answer of %s has the unknown code %q", path, code)
	}
	for _, k := range []string{"error", "message", "hint"} {
		delete(fields, k)
	}
	if len(fields) > 0 {
		e.Fields = fields
	}
	return e
}
