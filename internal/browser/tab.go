package browser

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/chromedp/cdproto"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

// Bounds of a tab.
const (
	maxHTML    = 4 << 20 // characters
	maxURL     = 8 << 10 // bytes; scripts can give a page a URL of two megabytes
	maxImage   = 16 << 20
	maxLoaders = 64                    // documents that one tab may show one after the other
	poll       = 50 * time.Millisecond // between two looks for an element
)

var (
	errCrashed = errors.New("the page crashed")
	errChanged = errors.New("the page changed")
)

// document is a document of the tab's main frame.
type document struct {
	status  int
	refused bool            // it is an answer of the proxy
	reached map[string]bool // names of lifecycle events
}

// tab is the one page of a browser.
type tab struct {
	ctx  context.Context //nolint:containedctx // lives for one page
	conn *conn
	way  *egress.Forwarder

	mu      sync.Mutex
	session string
	frame   string // the main frame
	asked   string // URL of the last document that it asked for
	loader  string // of the document that it shows
	docs    map[string]*document
	crash   bool
	asking  bool          // a dialog is being answered
	next    bool          // another dialog was opened meanwhile
	changed chan struct{} // closed at the next change
}

func newTab(ctx context.Context, channel io.ReadWriteCloser, way *egress.Forwarder) *tab {
	t := &tab{ctx: ctx, way: way, docs: map[string]*document{}, changed: make(chan struct{})}
	t.conn = newConn(ctx, channel, t.event)
	return t
}

// attached reports whether the browser has opened the tab.
func (t *tab) attached() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session != ""
}

func (t *tab) lastAsked() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked
}

// docLocked returns the document of a loader; nil if there were too many.
func (t *tab) docLocked(loader string) *document {
	d := t.docs[loader]
	if d == nil && len(t.docs) < maxLoaders {
		d = &document{reached: map[string]bool{}}
		t.docs[loader] = d
	}
	return d
}

// event notes what happens in the tab.
func (t *tab) event(session string, method cdproto.MethodType, text []byte) {
	var e struct {
		FrameID  string `json:"frameId"`
		LoaderID string `json:"loaderId"`
		Name     string `json:"name"`
		Type     string `json:"type"`
		Request  struct {
			URL string `json:"url"`
		} `json:"request"`
		Response struct {
			Status  int               `json:"status"`
			Headers map[string]string `json:"headers"`
		} `json:"response"`
	}
	switch method {
	case "Page.lifecycleEvent", "Network.requestWillBeSent", "Network.responseReceived":
		if json.Unmarshal(text, &e) != nil {
			return
		}
	case "Page.javascriptDialogOpening", "Inspector.targetCrashed":
	default:
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if session != t.session || e.FrameID != "" && e.FrameID != t.frame {
		return
	}
	switch method {
	case "Page.lifecycleEvent":
		if d := t.docLocked(e.LoaderID); d != nil && len(d.reached) < maxLoaders {
			t.loader = e.LoaderID
			d.reached[e.Name] = true
		}
	case "Network.requestWillBeSent":
		if e.Type == "Document" {
			t.asked = e.Request.URL
		}
	case "Network.responseReceived":
		if d := t.docLocked(e.LoaderID); d != nil && e.Type == "Document" {
			d.status = e.Response.Status
			d.refused = t.way.Refused(func(name string) string { return e.Response.Headers[name] })
		}
	case "Page.javascriptDialogOpening":
		t.answerDialogLocked()
	case "Inspector.targetCrashed":
		t.crash = true
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// answerDialogLocked accepts a dialog, also the question before the page is left. A page shows one
// dialog at a time. A browser that was taken over can tell of any number, so there is one goroutine.
func (t *tab) answerDialogLocked() {
	if t.asking {
		t.next = true // the next dialog, whose event came before the goroutine has noticed the answer
		return
	}
	t.asking = true
	session := t.session
	go func() {
		for more := true; more; {
			_ = t.conn.call(t.ctx, session, "Page.handleJavaScriptDialog", params{"accept": true}, nil)
			t.mu.Lock()
			more, t.next = t.next && t.ctx.Err() == nil, false
			t.asking = more
			t.mu.Unlock()
		}
	}()
}

// await waits until ready, which is called with mu held, or until the page has crashed.
func (t *tab) await(ctx context.Context, ready func() bool) error {
	for {
		t.mu.Lock()
		done, crash, changed := ready(), t.crash, t.changed
		t.mu.Unlock()
		switch {
		case crash:
			return errCrashed
		case done:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.conn.over:
			return t.conn.lost()
		}
	}
}

// view opens a page and returns it once what is asked for has happened.
func (t *tab) view(ctx context.Context, ask Ask) (View, error) {
	if err := t.attach(ctx); err != nil {
		return View{}, err
	}
	first, err := t.navigate(ctx, ask.URL)
	if err != nil {
		return View{}, err
	}
	err = t.await(ctx, func() bool {
		begun := t.docs[first] != nil && len(t.docs[first].reached) > 0
		d := t.docs[t.loader]
		// a page that a download interrupts has no load event
		return begun && d != nil && (d.reached[lifecycle[ask.Until]] || d.reached["networkIdle"])
	})
	if err != nil {
		return View{}, err
	}
	if err = t.awaitElement(ctx, ask.Selector); err != nil {
		return View{}, err
	}
	v, err := t.read(ctx)
	if err == nil && ask.Screenshot {
		v.Screenshot, err = t.screenshot(ctx)
	}
	return v, err
}

// attach opens the tab and asks for its events.
func (t *tab) attach(ctx context.Context) error {
	var opened struct {
		TargetID string `json:"targetId"`
	}
	if err := t.conn.call(ctx, "", "Target.createTarget", params{"url": "about:blank"}, &opened); err != nil {
		return err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := t.conn.call(ctx, "", "Target.attachToTarget", params{"targetId": opened.TargetID, "flatten": true}, &attached); err != nil {
		return err
	}
	t.mu.Lock()
	t.session, t.frame = attached.SessionID, opened.TargetID
	t.mu.Unlock()
	var waits []<-chan *cdproto.Message
	for _, c := range []struct {
		session, method string
		params          params
	}{
		{"", "Browser.setDownloadBehavior", params{"behavior": "deny"}},
		{attached.SessionID, "Inspector.enable", nil},
		{attached.SessionID, "Page.enable", nil},
		{attached.SessionID, "Page.setLifecycleEventsEnabled", params{"enabled": true}},
		{attached.SessionID, "Network.enable", params{"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0}},
	} {
		wait, err := t.conn.send(ctx, c.session, c.method, c.params)
		if err != nil {
			return err
		}
		waits = append(waits, wait)
	}
	for _, wait := range waits {
		if err := t.conn.answer(ctx, wait, nil); err != nil {
			return err
		}
	}
	return nil
}

// navigate goes to a URL and returns the loader of its document.
func (t *tab) navigate(ctx context.Context, u *url.URL) (loader string, err error) {
	t.mu.Lock()
	t.asked = u.String()
	t.mu.Unlock()
	var gone struct {
		LoaderID   string `json:"loaderId"`
		ErrorText  string `json:"errorText"`
		IsDownload bool   `json:"isDownload"`
	}
	if err := t.conn.call(ctx, t.session, "Page.navigate", params{"url": u.String()}, &gone); err != nil {
		return "", err
	}
	if gone.IsDownload {
		gone.ErrorText = "net::ERR_ABORTED"
	}
	if gone.ErrorText != "" {
		return "", t.unreached(ctx, gone.ErrorText)
	}
	return gone.LoaderID, nil
}

// evaluate evaluates an expression in a world of its own, whose objects the page's scripts
// cannot change. Its value is decoded into res. It fails with errChanged if the page was
// left, and with a thrownError.
func (t *tab) evaluate(ctx context.Context, expression string, res any) error {
	var world struct {
		ID int `json:"executionContextId"`
	}
	if err := t.conn.call(ctx, t.session, "Page.createIsolatedWorld", params{"frameId": t.frame, "worldName": "sandboxmcp"}, &world); err != nil {
		return changedIf(err)
	}
	var value struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Thrown *struct {
			Exception struct {
				ClassName string `json:"className"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := t.conn.call(ctx, t.session, "Runtime.evaluate", params{"expression": expression, "contextId": world.ID, "returnByValue": true}, &value); err != nil {
		return changedIf(err)
	}
	if value.Thrown != nil {
		return thrownError(value.Thrown.Exception.ClassName)
	}
	return json.Unmarshal(value.Result.Value, res)
}

// thrownError is the class of an exception.
type thrownError string

func (e thrownError) Error() string { return "the page threw " + sandboxmcp.Quote(string(e)) }

// changedIf returns errChanged for an error of the browser: the frame or its world is gone.
func changedIf(err error) error {
	if _, ok := errors.AsType[*cdproto.Error](err); ok {
		return errChanged
	}
	return err
}

// again calls a function until the page does not change meanwhile and it says that it is done.
func (t *tab) again(ctx context.Context, look func() (done bool, err error)) error {
	for {
		done, err := look()
		if err != nil && !errors.Is(err, errChanged) || err == nil && done {
			return err
		}
		timer := time.NewTimer(poll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-t.conn.over:
			timer.Stop()
			return t.conn.lost()
		}
		t.mu.Lock()
		crash := t.crash
		t.mu.Unlock()
		if crash {
			return errCrashed
		}
	}
}

// awaitElement waits until an element is visible.
func (t *tab) awaitElement(ctx context.Context, selector string) error {
	if selector == "" {
		return nil
	}
	quoted, err := json.Marshal(selector)
	if err != nil {
		return err
	}
	expression := `[...document.querySelectorAll(` + string(quoted) + `)].slice(0, 100).some(e => e.getClientRects().length && getComputedStyle(e).visibility === 'visible')`
	return t.again(ctx, func() (visible bool, err error) {
		err = t.evaluate(ctx, expression, &visible)
		if _, thrown := errors.AsType[thrownError](err); thrown {
			return false, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is not a CSS selector", sandboxmcp.Quote(selector)).WithHint("use a selector such as main h1")
		}
		return visible, err
	})
}

// read returns the page that the tab shows.
func (t *tab) read(ctx context.Context) (v View, err error) {
	var page struct {
		URL   string `json:"url"`
		HTML  string `json:"html"`
		Large bool   `json:"large"`
	}
	expression := `(() => { const d = document.documentElement, h = d ? d.outerHTML : ''; return h.length > ` + strconv.Itoa(maxHTML) + ` ? {large: true} : {url: document.URL, html: h} })()`
	err = t.again(ctx, func() (bool, error) { return true, t.evaluate(ctx, expression, &page) })
	if _, thrown := errors.AsType[thrownError](err); thrown || page.Large || utf8.RuneCountInString(page.HTML) > maxHTML {
		return v, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the page has more than %d characters", maxHTML).With("limit_bytes", maxHTML)
	}
	if err != nil {
		return v, err
	}
	if len(page.URL) > maxURL {
		return v, failed("the page has a URL of more than %d bytes", maxURL)
	}
	refused := false
	t.mu.Lock()
	if d := t.docs[t.loader]; d != nil {
		v.Status, refused = d.status, d.refused
	}
	t.mu.Unlock()
	if v.URL, err = url.Parse(page.URL); err != nil {
		return v, failed("the page has a URL that cannot be parsed")
	}
	switch {
	case refused, v.URL.Scheme == "chrome-error":
		return v, t.unreached(ctx, "it could not be reached")
	case v.URL.Scheme != "http" && v.URL.Scheme != "https":
		return v, notPage(v.URL.Scheme)
	}
	v.HTML = []byte(page.HTML)
	return v, nil
}

// screenshot returns a picture of the window.
func (t *tab) screenshot(ctx context.Context) ([]byte, error) {
	var picture struct {
		Data []byte `json:"data"`
	}
	if err := t.conn.call(ctx, t.session, "Page.captureScreenshot", params{"format": "png"}, &picture); err != nil {
		return nil, err
	}
	if len(picture.Data) > maxImage {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the screenshot has more than %d bytes", maxImage)
	}
	return picture.Data, nil
}
