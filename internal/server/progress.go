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

// Limits of progress notifications.
const (
	progressEvery = 250 * time.Millisecond // shortest interval; without new output they come once a second
	maxTold       = 4 << 10                // bytes of output in one notification
	maxToldAll    = 64 << 10               // bytes of output in all notifications of a call; later ones have only the time
)

// outputGoesOn ends the output in notifications when maxToldAll is reached.
const outputGoesOn = "[more output is in the answer]"

// reportProgress sends progress notifications with new output, if the client gave a progress
// token. stop ends them and waits, so that none is sent after the result. Without a token p
// is nil.
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

// progress buffers the output of a running call for its next notification, as valid UTF-8.
// Output that is not stdout is marked. Writes never wait for the client.
type progress struct {
	mu    sync.Mutex
	text  []byte    // output that was not sent yet
	room  int       // bytes that may still be added to text
	over  bool      // output was dropped, and text says so
	last  origin    // origin of the last bytes of text
	fresh bool      // text ends with a complete line
	half  [2][]byte // incomplete character at the end of each stream
}

func newProgress() *progress { return &progress{room: maxToldAll, fresh: true} }

type origin int

const (
	stdout origin = iota
	stderr
)

// follow adds a request's output to p. It does nothing if p is nil.
func (p *progress) follow(req *sandboxmcp.Request) {
	if p != nil {
		req.Stdout, req.Stderr, req.Shown = streamOf{p, stdout}, streamOf{p, stderr}, p
	}
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

func (p *progress) add(s origin, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	b = append(p.half[s], b[:min(len(b), p.room+utf8.UTFMax)]...) // putLocked cuts what exceeds room
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

// WriteResult adds the MIME types of a displayed value. The value itself is in the answer.
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

// next removes and returns the text of the next notification.
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
			text = strconv.Itoa(second) + " s"
		}
		told = max(math.Round(now*1000)/1000, told+0.001)
		if notify(told, text) != nil {
			return // the connection has failed and reports that itself
		}
	}
}
