package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	maxLine      = 128 << 20    // bytes of one message; an upload of 50 MB is about 70 MB of base64
	keptBuffer   = 1 << 20      // a longer line buffer is not reused for the next line
	maxOpen      = 2 * maxCalls // requests of one connection that are not answered
	maxErrorText = 600          // bytes of a protocol error's message, because the SDK quotes whole requests
)

// conn is a connection of the SDK over two byte streams. It answers a line that is not a
// valid message itself, because the SDK would end the connection.
type conn struct {
	root     context.Context //nolint:containedctx // the connection's own lifetime, which the SDK's interface cannot carry
	fail     context.CancelCauseFunc
	incoming chan jsonrpc.Message // closed at the end of input
	drained  chan struct{}        // closed at the end of input

	closeOnce sync.Once
	closed    chan struct{}

	writeMu sync.Mutex
	out     io.Writer // guarded by writeMu

	mu       sync.Mutex
	open     map[jsonrpc.ID]bool // requests that are not answered; true: Read waits for the answer at end of file; guarded by mu
	answered chan struct{}       // gets a token when a call was answered
}

// newConn starts a goroutine that reads in. It ends at end of file, or when root ends and
// the current read returns.
func newConn(root context.Context, fail context.CancelCauseFunc, in io.Reader, out io.Writer) *conn {
	c := &conn{
		root: root, fail: fail, out: out,
		incoming: make(chan jsonrpc.Message),
		drained:  make(chan struct{}),
		closed:   make(chan struct{}),
		open:     map[jsonrpc.ID]bool{},
		answered: make(chan struct{}, 1),
	}
	go c.readLines(bufio.NewReaderSize(in, 64<<10))
	return c
}

// SessionID returns "", because a pipe has a single client.
func (c *conn) SessionID() string { return "" }

// Close stops reading. It does not close the streams.
func (c *conn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

// Read returns the next message. At end of file it waits up to answerGrace for calls in
// progress, so that `printf … | sandboxmcp serve` works.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-c.incoming:
		if !ok {
			c.awaitAnswers()
			return nil, io.EOF
		}
		return m, nil
	case <-c.root.Done():
		return nil, io.EOF
	case <-c.closed:
		return nil, io.EOF
	}
}

func (c *conn) awaitAnswers() {
	t := time.NewTimer(answerGrace)
	defer t.Stop()
	for {
		if !c.awaited() {
			return
		}
		select {
		case <-c.answered:
		case <-t.C:
			return
		case <-c.root.Done():
			return
		}
	}
}

// awaited reports whether there is a request for whose answer Read waits at end of file.
func (c *conn) awaited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, waits := range c.open {
		if waits {
			return true
		}
	}
	return false
}

// Write sends a message as one line, in one write.
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	line, err := encodeMessage(msg)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	var answered jsonrpc.ID
	if r, ok := msg.(*jsonrpc.Response); ok {
		answered = r.ID
	}
	return c.send(line, answered)
}

// send is the only place that writes to the client. answered is the request that the line answers, if it is valid.
func (c *conn) send(line []byte, answered jsonrpc.ID) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_, err := c.out.Write(line)
	if answered.IsValid() { // with writeMu, for register
		c.mu.Lock()
		delete(c.open, answered)
		c.mu.Unlock()
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
	if err != nil {
		err = &writeError{err}
		c.fail(err)
		return err
	}
	return nil
}

func (c *conn) readLines(r *bufio.Reader) {
	defer close(c.drained)
	defer close(c.incoming)
	var buf []byte
	for {
		line, tooLong, err := readLine(r, buf[:0])
		if tooLong {
			c.refuse(nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("the line is longer than %d bytes", maxLine))
		} else if !c.accept(line) {
			return
		}
		if err != nil {
			return
		}
		if buf = line; cap(buf) > keptBuffer {
			buf = nil
		}
	}
}

// readLine reads up to the next newline into buf. A line over the limit is read to its end
// and dropped.
func readLine(r *bufio.Reader, buf []byte) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(buf)+len(part) > maxLine {
			tooLong = true
			buf = buf[:0]
		}
		if !tooLong {
			buf = append(buf, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, tooLong, err
		}
	}
}

// accept decodes a line and passes the message on, or answers a line that is not a message.
// It returns false if reading must stop.
func (c *conn) accept(line []byte) bool {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return true
	}
	switch {
	case !utf8.Valid(line):
		c.refuse(nil, jsonrpc.CodeParseError, "the line is not UTF-8")
		return true
	case !json.Valid(line):
		c.refuse(nil, jsonrpc.CodeParseError, "the line is not one JSON value")
		return true
	case line[0] == '[':
		c.refuse(nil, jsonrpc.CodeInvalidRequest, "batches are not taken; send one message a line")
		return true
	}
	if err := checkMessage(line); err != nil {
		c.refuseMessage(line, err.Error())
		return true
	}
	msg, err := decodeMessage(line)
	if err != nil {
		c.refuseMessage(line, "the line is not a JSON-RPC message: "+err.Error())
		return true
	}
	if r, ok := msg.(*jsonrpc.Request); ok && r.ID.IsValid() {
		if refusal := c.register(r); refusal != "" {
			c.refuseMessage(line, refusal)
			return true
		}
	}
	select {
	case c.incoming <- msg:
		return true
	case <-c.root.Done():
	case <-c.closed:
	}
	return false
}

// register adds a request to those that are not answered. It returns why the request is refused, or "". A client that
// sends and does not read would otherwise fill the memory with answers, also of requests with one id, which the SDK takes
// as soon as an answer is made. The refusal of a request waits until the client reads, so no more is read from it.
func (c *conn) register(r *jsonrpc.Request) (refusal string) {
	again := c.isOpen(r.ID)
	if again { // the client may have read the answer that is being written
		c.writeMu.Lock()
		again = c.isOpen(r.ID)
		c.writeMu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case again:
		return "a request with this id is not answered yet; give each request an id of its own"
	case len(c.open) >= maxOpen:
		return fmt.Sprintf("%d requests are not answered yet; wait for some of the answers", maxOpen)
	}
	c.open[r.ID] = r.Method != "subscriptions/listen" // which is answered when the client ends it
	return ""
}

func (c *conn) isOpen(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.open[id]
	return open
}

// decodeMessage calls the SDK's decoder and turns panics into errors. The message does not
// share memory with line, so the caller may reuse line.
func decodeMessage(line []byte) (msg jsonrpc.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return jsonrpc.DecodeMessage(line)
}

// refuseMessage answers valid JSON that is not a message, with its id if that is usable. It
// drops anything that looks like a response: answering responses could go on forever.
func (c *conn) refuseMessage(line []byte, message string) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	// Fields that do not decode stay empty; the answer then has id null.
	_ = json.Unmarshal(line, &m)
	if m.Method == nil && (m.Result != nil || m.Error != nil) {
		return
	}
	if len(m.ID) > 0 && (m.ID[0] == '{' || m.ID[0] == '[' || m.ID[0] == 't' || m.ID[0] == 'f') {
		m.ID = nil
	}
	c.refuse(m.ID, jsonrpc.CodeInvalidRequest, message)
}

func (c *conn) refuse(id json.RawMessage, code int64, message string) {
	if id == nil {
		id = json.RawMessage("null")
	}
	// A failed write ends the connection by itself.
	_ = c.send(errorLine(id, &jsonrpc.Error{Code: code, Message: message}), jsonrpc.ID{})
}

// encodeMessage returns the line of a message. It copies a result that the SDK has encoded,
// without scanning it again.
func encodeMessage(msg jsonrpc.Message) ([]byte, error) {
	r, ok := msg.(*jsonrpc.Response)
	if !ok {
		line, err := jsonrpc.EncodeMessage(msg)
		return append(line, '\n'), err
	}
	id, err := json.Marshal(r.ID.Raw())
	if err != nil {
		return nil, err
	}
	if r.Error != nil {
		return errorLine(id, r.Error), nil
	}
	line := make([]byte, 0, len(r.Result)+len(id)+40)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, id...)
	line = append(line, `,"result":`...)
	line = append(line, r.Result...)
	return append(line, "}\n"...), nil
}

// errorLine returns the line of a failed call. It repairs errors of the SDK, which may have
// no code, a message that repeats the request, and data that is not JSON.
func errorLine(id json.RawMessage, cause error) []byte {
	e := jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: cause.Error()}
	if wire := (*jsonrpc.Error)(nil); errors.As(cause, &wire) {
		if wire.Code != 0 {
			e.Code = wire.Code
		}
		if json.Valid(wire.Data) {
			e.Data = wire.Data
		}
	}
	if len(e.Message) > maxErrorText {
		e.Message = strings.ToValidUTF8(e.Message[:maxErrorText], "") + "…"
	}
	line, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   jsonrpc.Error   `json:"error"`
	}{"2.0", id, e})
	if err != nil { // cannot happen: every part was checked
		line = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`)
	}
	return append(line, '\n')
}
