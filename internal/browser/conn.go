package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// Bounds of what a browser may send. Its messages are those of a program that runs code of
// strangers.
const (
	maxMessage  = 32 << 20
	maxMessages = 128 << 20 // all together
	maxEvent    = 1 << 20   // of what happens in a page; decoded, it takes up to thirty times as much
)

var errTooMuch = errors.New("the browser sent too much")

// conn is a connection of the DevTools protocol. Its methods may be called concurrently.
//
// It uses the transport of chromedp and not its Browser, which keeps events in queues
// without a bound, follows the nodes of pages, and whose goroutines end the process if a
// message makes them panic.
type conn struct {
	pipe  *chromedp.PipeConn
	event func(session string, method cdproto.MethodType, params []byte) // called by one goroutine; it may not wait
	over  chan struct{}                                                  // closed when no message will come

	mu    sync.Mutex
	next  int64
	waits map[int64]chan *cdproto.Message
	err   error // why it is over
}

// newConn serves a connection until it is closed. The caller calls pipe.Close.
func newConn(ctx context.Context, channel io.ReadWriteCloser, event func(string, cdproto.MethodType, []byte)) *conn {
	c := &conn{event: event, over: make(chan struct{}), waits: map[int64]chan *cdproto.Message{}}
	c.pipe = chromedp.NewPipeConn(&bounded{ReadCloser: channel}, channel)
	go c.read(ctx)
	return c
}

// bounded is a stream of messages that end with a zero byte, of which each and all together
// have a bound.
type bounded struct {
	io.ReadCloser
	message, all int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.all += n
	if end := bytes.LastIndexByte(p[:n], 0); end >= 0 {
		b.message = n - end - 1
	} else {
		b.message += n
	}
	if b.message > maxMessage || b.all > maxMessages {
		return 0, errTooMuch
	}
	return n, err
}

// read passes on what the browser sends.
func (c *conn) read(ctx context.Context) {
	defer close(c.over)
	defer func() {
		if p := recover(); p != nil { // the decoder works on bytes of an untrusted program
			c.end(fmt.Errorf("a message of the browser: %v", p))
		}
	}()
	for {
		var m cdproto.Message
		if err := c.pipe.Read(ctx, &m); err != nil {
			c.end(err)
			return
		}
		if m.ID == 0 {
			if len(m.Params) <= maxEvent {
				c.event(string(m.SessionID), m.Method, m.Params)
			}
			continue
		}
		c.mu.Lock()
		wait := c.waits[m.ID]
		delete(c.waits, m.ID)
		c.mu.Unlock()
		if wait != nil {
			wait <- &m // it has room for one
		}
	}
}

func (c *conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// params are the parameters of a command.
type params map[string]any

// send sends a command. Its answer arrives in the channel.
func (c *conn) send(ctx context.Context, session, method string, p params) (<-chan *cdproto.Message, error) {
	m := &cdproto.Message{SessionID: target.SessionID(session), Method: cdproto.MethodType(method)}
	if p != nil {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		m.Params = text
	}
	wait := make(chan *cdproto.Message, 1)
	c.mu.Lock()
	c.next++
	m.ID = c.next
	c.waits[m.ID] = wait
	c.mu.Unlock()
	return wait, c.pipe.Write(ctx, m)
}

// call sends a command and waits for its answer, which it decodes into res.
func (c *conn) call(ctx context.Context, session, method string, p params, res any) error {
	wait, err := c.send(ctx, session, method, p)
	if err != nil {
		return err
	}
	return c.answer(ctx, wait, res)
}

// answer waits for the answer of a command.
func (c *conn) answer(ctx context.Context, wait <-chan *cdproto.Message, res any) error {
	var m *cdproto.Message
	select {
	case m = <-wait:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.over:
		select {
		case m = <-wait:
		default:
			return c.lost()
		}
	}
	if m.Error != nil {
		return m.Error
	}
	if res == nil {
		return nil
	}
	return json.Unmarshal(m.Result, res)
}

// lost is the error of a connection that is over.
func (c *conn) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%w: %w", errLost, c.err)
}

// errLost means that the browser has ended, or that it sent what it may not send.
var errLost = errors.New("the browser ended")
