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
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// Bounds of what a client that asked for it is told of a running call.
const (
	progressEvery = 250 * time.Millisecond // at most so often; where there is nothing new, once a second
	maxTold       = 4 << 10                // bytes of output in one notification
	maxToldAll    = 64 << 10               // and in all of a call, after which only the time is told
)

// outputGoesOn is the last that is told of a call's output.
const outputGoesOn = "[more output is in the answer]"

// reportProgress tells the client that its call is alive, with what it has put
// out since it was last told, if it gave a progress token. The returned function
// ends that and waits, so that nothing is said after the result; what was not
// told by then is in the result. The progress is nil without a token.
func (s *Server) reportProgress(ctx context.Context, req *mcp.CallToolRequest) (p *progress, stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	p = newProgress()
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

// progress holds what a running call has put out and its client was not told
// yet: text that is valid UTF-8, in which what is not of stdout is marked. To
// write to it takes no time, however slow the client is.
type progress struct {
	mu    sync.Mutex
	text  []byte    // not told yet
	room  int       // bytes that may still be added to it
	over  bool      // there was no room for something, and text says so
	last  origin    // which the end of text is of
	fresh bool      // a line begins
	half  [2][]byte // of each stream: a character whose end has not come
}

func newProgress() *progress { return &progress{room: maxToldAll, fresh: true} }

type origin int

const (
	stdout origin = iota
	stderr
)

// follow has a request's output told. A nil progress follows nothing.
func (p *progress) follow(req *sandboxmcp.Request) {
	if p != nil {
		req.Stdout, req.Stderr, req.Shown = streamOf{p, stdout}, streamOf{p, stderr}, p
	}
}

// streamOf is a stream of the program on its way to the client.
type streamOf struct {
	p      *progress
	stream origin
}

// Write takes bytes of the program.
func (s streamOf) Write(b []byte) (int, error) {
	s.p.add(s.stream, b)
	return len(b), nil
}

func (p *progress) add(s origin, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	b = append(p.half[s], b[:min(len(b), p.room+utf8.UTFMax)]...) // what is more than room is cut below
	end := len(b) - stream.Unfinished(b)
	p.half[s] = bytes.Clone(b[end:])
	if end == 0 {
		return
	}
	if s != p.last {
		p.last = s
		p.lineLocked()
		if s == stderr {
			p.putLocked("[stderr] ")
		} else {
			p.putLocked("[stdout] ")
		}
	}
	p.putLocked(stream.Text(b[:end]))
}

// WriteResult names the forms of what the program shows; the bytes come with the
// answer.
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
	p.lineLocked()
	p.putLocked("[display " + strings.Join(forms, ", ") + "]\n")
}

// lineLocked begins a line.
func (p *progress) lineLocked() {
	if !p.fresh {
		p.putLocked("\n")
	}
}

// putLocked adds valid text, as far as there is room.
func (p *progress) putLocked(text string) {
	switch {
	case p.over:
		return
	case len(text) > p.room:
		p.over = true
		text = strings.ToValidUTF8(text[:p.room], "") // whole characters
		p.text = append(append(p.text, text...), "\n"+outputGoesOn...)
		return
	}
	p.room -= len(text)
	p.text = append(p.text, text...)
	p.fresh = strings.HasSuffix(text, "\n")
}

// next takes what is to be told now.
func (p *progress) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.text), maxTold)
	for n < len(p.text) && !utf8.RuneStart(p.text[n]) {
		n--
	}
	text := string(p.text[:n])
	p.text = append(p.text[:0], p.text[n:]...)
	return text
}

// tell calls notify, until ctx ends or it fails, for what is new and else every
// second for the time. The values are seconds; each is above the one before.
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
			text = strconv.Itoa(second) + " s"
		}
		told = max(math.Round(now*1000)/1000, told+0.001)
		if notify(told, text) != nil {
			return // the connection ends, and says so elsewhere
		}
	}
}
