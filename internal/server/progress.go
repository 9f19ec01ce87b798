package server

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
)

// Limits of progress notifications.
const (
	progressEvery = 250 * time.Millisecond // shortest interval; without new output they come once a second
	maxTold       = 300                    // bytes of a line in a notification
	maxSeconds    = 20                     // bytes of the seconds before it
	maxToldAll    = 64 << 10               // bytes of output in all notifications of a call; later ones have only the time
)

// reportProgress sends progress notifications with the newest line of output, if the client gave a
// progress token. stop ends them and waits, so that none is sent after the result. Without a
// token p is nil. look may be nil; it returns what is said in a second without output.
func (s *Server) reportProgress(ctx context.Context, req *mcp.CallToolRequest, look func(context.Context) string) (p *progress, stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	p = newProgress()
	p.look = look
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("progress panicked", "panic", p)
			}
		}()
		p.tell(ctx, func(value float64, message string) error {
			return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: value, Message: message})
		})
	})
	return p, func() { cancel(); wg.Wait() }
}

// progress holds the newest line of a running call's output for its next notification, as valid
// UTF-8. A line that is not of stdout is marked. Writes never wait for the client.
type progress struct {
	look func(ctx context.Context) string // what is said in a second without output; nil: the time alone

	mu     sync.Mutex
	newest string     // the line to send next; empty: nothing is new
	room   int        // bytes of lines that may still be sent
	begun  [2][]byte  // beginning of the unfinished line of each stream
	doing  string     // what the server does for the call; empty: the program runs
	place  func() int // place in the queue; nil: it does not wait
}

func newProgress() *progress { return &progress{room: maxToldAll} }

type origin int

const (
	stdout origin = iota
	stderr
)

// follow adds a request's output, and its place in the queue, to p. It does nothing if p is nil.
func (p *progress) follow(req *sandboxmcp.Request) {
	if p != nil {
		req.Stdout, req.Stderr, req.Shown, req.Queued, req.Note = streamOf{p, stdout}, streamOf{p, stderr}, p, p.wait, p.note
	}
}

// note makes a text of the server the newest line, and repeats it each second until the program
// writes. It does nothing if p is nil.
func (p *progress) note(text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = clipBytes(visible([]byte(text)), maxTold-maxSeconds)
	p.setLocked("", []byte(text))
}

// wait is [sandboxmcp.Request].Queued.
func (p *progress) wait(place func() int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place, p.doing = place, ""
}

// streamOf is a writer that adds a stream of the program to a progress.
type streamOf struct {
	p      *progress
	stream origin
}

// Write adds bytes of the program.
func (s streamOf) Write(b []byte) (int, error) {
	s.p.add(s.stream, b)
	return len(b), nil
}

// lineEnds are the bytes that end a line. A program that counts up on one line ends it with \r.
const lineEnds = "\n\r"

func (p *progress) add(s origin, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = ""
	mark := ""
	if s == stderr {
		mark = "[stderr] "
	}
	last := bytes.LastIndexAny(b, lineEnds)
	if last < 0 {
		p.begun[s] = appendLine(p.begun[s], b)
	} else {
		done := bytes.TrimRight(b[:last], lineEnds) // the newest line with text
		from := bytes.LastIndexAny(done, lineEnds) + 1
		line := appendLine(nil, done[from:])
		if from == 0 { // it began earlier
			line = appendLine(p.begun[s], done)
		}
		p.setLocked(mark, line)
		p.begun[s] = appendLine(p.begun[s][:0], b[last+1:])
	}
	p.setLocked(mark, p.begun[s])
}

// appendLine adds b to the beginning of a line, as far as it is sent.
func appendLine(line, b []byte) []byte {
	return append(line, b[:min(len(b), maxTold-min(len(line), maxTold))]...)
}

// setLocked makes a line the newest one, unless nothing of it can be seen.
func (p *progress) setLocked(mark string, line []byte) {
	if text := visible(line); text != "" {
		p.newest = clipBytes(mark+text, maxTold)
	}
}

// visible returns a line as valid text without escape sequences, control characters and blanks
// around it.
func visible(line []byte) string {
	text := terminal.Plain(stream.Text(line[:len(line)-stream.Unfinished(line)]))
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text))
}

// clipBytes shortens valid text to at most n bytes.
func clipBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// WriteResult makes the MIME types of a displayed value the newest line. The value itself is in
// the answer.
func (p *progress) WriteResult(r sandboxmcp.RichResult) {
	var forms []string
	for form := range r {
		if strings.Contains(form, "/") {
			forms = append(forms, form)
		}
	}
	slices.Sort(forms)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked("", []byte("[display "+strings.Join(forms, ", ")+"]"))
}

// next removes and returns the text of the next notification; empty: there is no new line.
func (p *progress) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.newest
	p.newest = ""
	if len(text) > p.room {
		p.room = 0
		return ""
	}
	p.room -= len(text)
	return text
}

// quiet returns the text for a second without output.
func (p *progress) quiet(ctx context.Context, second int) string {
	text := strconv.Itoa(second) + " s"
	p.mu.Lock()
	place, doing := p.place, p.doing
	p.mu.Unlock()
	if doing != "" {
		return text + ", " + doing
	}
	if place != nil {
		if n := place(); n > 0 {
			return text + ", place " + strconv.Itoa(n) + " in the queue"
		}
	}
	if p.look != nil {
		if more := p.look(ctx); more != "" {
			return text + ", " + more
		}
	}
	return text
}

// tell calls notify for new output, and without output once a second, until ctx ends or
// notify fails. value is the time in seconds and always increases.
func (p *progress) tell(ctx context.Context, notify func(value float64, message string) error) {
	begun := time.Now()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	told, second := 0.0, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Since(begun).Seconds()
		text := p.next()
		if text == "" && int(now) <= second {
			continue
		}
		if second = int(now); text == "" {
			text = p.quiet(ctx, second)
		}
		told = max(math.Round(now*1000)/1000, told+0.001)
		if notify(told, text) != nil {
			return // the connection has failed and reports that itself
		}
	}
}
