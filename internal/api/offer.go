package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/stack"
)

// offerAnswer is how long a server may take to accept a request that is offered to it.
const offerAnswer = 500 * time.Millisecond

const maxHeader = 16 << 10 // bytes of the header of a response

// Sole returns the client of the server with that id for [Client.ExecuteAlike]. It does not ask the server.
func Sole(stateDir, id string) *Client {
	c := newClient(stateDir, id+suffix)
	c.strict = true
	return c
}

// offer is a request whose header a server has accepted. The server has not got its body, so nothing runs yet.
type offer struct {
	question
	conn   net.Conn
	header io.LimitedReader // conn, bounded while a header is read
	in     *bufio.Reader
	stop   func() bool // the end of a context no longer closes conn

	io.Reader // of the body of the response
}

// offer sends the header of a request and waits until the server asks for the body. A server that is stopped
// or has another digest does not. If offer fails, the server has executed and recorded nothing. Except after
// an answer of the server that refuses the request, the error is then one that [Declined] reports.
func (c *Client) offer(ctx context.Context, q question, req sandboxmcp.Request) (*offer, error) {
	within, cancel := context.WithTimeout(ctx, offerAnswer)
	defer cancel()
	o, err := c.open(within, q, req)
	var coded *sandboxmcp.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return o, err
	case ctx.Err() != nil:
		return nil, cancelledCall(ctx)
	case errors.Is(err, syscall.ECONNREFUSED):
		c.forget()
	}
	return nil, declined("the server does not take the request").WithCause(err)
}

func (c *Client) open(ctx context.Context, q question, req sandboxmcp.Request) (o *offer, err error) {
	proof, err := c.proof()
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	o = &offer{question: q, conn: conn, header: io.LimitedReader{R: conn, N: maxHeader}}
	o.in = bufio.NewReader(&o.header)
	if _, err = conn.Write(o.head(proof)); err != nil {
		return nil, err
	}
	if _, _, o.body, err = encodeInput(q.path, body[sandboxmcp.Request]{req}); err != nil { // while the server reads the header
		return nil, err
	}
	res, err := o.answer()
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode != http.StatusContinue:
		return nil, o.refused(res)
	case !stop(): // ctx has ended
		return nil, context.Cause(ctx)
	}
	return o, nil
}

// head returns the header of the request.
func (o *offer) head(proof string) []byte {
	h := http.Header{}
	h.Set("Host", "sandboxmcp")
	h.Set("Connection", "close")
	h.Set("Content-Type", "application/json")
	h.Set("Transfer-Encoding", "chunked")
	h.Set("Expect", "100-continue")
	h.Set(alikeHeader, o.alike)
	if proof != "" {
		h.Set(proofHeader, proof)
	}
	var out bytes.Buffer
	_, _ = fmt.Fprintf(&out, "%s %s?%s HTTP/1.1\r\n", o.method, o.path, o.query.Encode())
	_ = h.Write(&out)
	out.WriteString("\r\n")
	return out.Bytes()
}

// answer reads the header of a response.
func (o *offer) answer() (*http.Response, error) {
	o.header.N = maxHeader
	res, err := http.ReadResponse(o.in, &http.Request{Method: o.method})
	o.header.N = math.MaxInt64
	return res, err
}

// send sends the body. The caller must close the body of the response, which closes the connection. So does the
// end of ctx.
func (o *offer) send(ctx context.Context) (res *http.Response, err error) {
	o.stop = context.AfterFunc(ctx, func() { _ = o.conn.Close() })
	defer func() {
		if err != nil {
			_ = o.Close()
		}
	}()
	if _, err = o.conn.Write(fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", len(o.body), o.body)); err != nil { // one chunk, and the end
		return nil, fmt.Errorf("send to %s: %w", o.path, err)
	}
	go prepareResult() // while the program runs
	if res, err = o.answer(); err != nil {
		return nil, fmt.Errorf("ask %s: %w", o.path, err)
	}
	if res.StatusCode == http.StatusOK {
		o.Reader = res.Body
		res.Body = o
		return res, nil
	}
	return nil, o.refused(res)
}

// PrepareExecute encodes a request. The first one of a process takes 0.3 ms longer than others.
func PrepareExecute() { _, _, _, _ = encodeInput(executePath, body[sandboxmcp.Request]{}) }

// commonResult has the parts of most results.
const commonResult = `{"artifacts":[],"resource_usage":{},"metadata":{},"results":[],"network":{"allowed":[]},"isolation":{"walls":[]},"receipt":{"signatures":[{}]}}`

// prepareResult decodes a result. The first one of a process takes 0.3 ms longer than others.
func prepareResult() {
	stack.Grow()
	_ = decodeExact([]byte(commonResult), new(sandboxmcp.Result))
}

// refused returns the error of a response that is one.
func (o *offer) refused(res *http.Response) error {
	data, err := whole(res.Body, o.path, maxResponse)
	if err != nil {
		return err
	}
	return failure(o.path, res.StatusCode, data)
}

// Close closes the connection.
func (o *offer) Close() error {
	o.stop()
	return o.conn.Close()
}
