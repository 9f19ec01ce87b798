package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// serveProxy serves a connection to the proxy's port.
func (l *Link) serveProxy(c net.Conn) {
	v := l.newVisit(c, backend.ProxyPort)
	v.host = ""
	r, ok := v.request(ViaProxy)
	if !ok {
		return
	}
	if !r.absolute {
		v.refuse(ViaProxy, http.StatusBadRequest, "this is a proxy: the request line has to name a host")
		return
	}
	v.host, v.port = r.host, r.port
	if r.Method == http.MethodConnect {
		v.connect(r)
		return
	}
	switch v.port {
	case 0:
		v.port = 80
	case 443:
		v.refuse(ViaProxy, http.StatusBadRequest, "port 443 speaks TLS and goes by CONNECT")
		return
	}
	v.forward(ViaProxy, r)
}

// http serves HTTP on a connection that a program made to an address, without the proxy.
func (v *visit) http() {
	r, ok := v.request(ViaHTTP)
	if !ok {
		return
	}
	switch {
	case r.Method == http.MethodConnect:
		v.refuse(ViaHTTP, http.StatusMethodNotAllowed, "CONNECT is for the proxy at 127.0.0.1:312")
		return
	case v.host == "" && r.host == "":
		v.refuse(ViaHTTP, http.StatusBadRequest, "no name stands for this address, and the request has no Host")
		return
	case v.host != "" && r.host != "" && r.host != v.host:
		v.denyHost(string(r.host), ViaHTTP, "the connection is for "+string(v.host)+", and the request is for another host")
		v.answer(http.StatusForbidden, "the request is for another host than the connection")
		return
	case r.port != 0 && r.port != v.port:
		v.refuse(ViaHTTP, http.StatusForbidden, "the request names another port than the connection's")
		return
	}
	if v.host == "" {
		v.host = r.host
	}
	v.forward(ViaHTTP, r)
}

// usualHead is how many bytes of a head the cost of a connection includes.
const usualHead = 4 << 10

// chargeHead takes the cost of a long head from the sandbox's share. It does not wait: the next connection of the sandbox
// does.
func (l *Link) chargeHead(bytes int) {
	if bytes > usualHead {
		l.effort.Spend(time.Duration(bytes-usualHead) * backend.CostHeadByte)
	}
}

// request reads the head of a request. It answers and counts a refused one and returns
// false.
func (v *visit) request(via Via) (*request, bool) {
	head, err := readHead(v.br)
	v.l.chargeHead(len(head))
	var r *request
	if err == nil {
		r, err = parseRequest(head, v.br)
	}
	if err == nil {
		return r, true
	}
	if h, ok := errors.AsType[hostError](err); ok {
		if via == ViaProxy {
			v.port = 80
		}
		v.port = cmp.Or(h.port, v.port)
		v.denyHost(h.host, via, "it is no host name")
		v.answer(http.StatusForbidden, err.Error())
		return nil, false
	}
	if h, ok := errors.AsType[headError](err); ok {
		v.refuse(via, http.StatusBadRequest, string(h))
		return nil, false
	}
	switch {
	case errors.Is(err, errUnsaid): // the program sent nothing: not a request
	case isTimeout(err):
		v.refuse(via, http.StatusRequestTimeout, "no request came in time")
	default:
		v.deny(via, "the request was incomplete")
	}
	return nil, false
}

// connect serves CONNECT. It dials the host before it answers, so that the answer can
// say why the dial failed.
func (v *visit) connect(r *request) {
	if r.ContentLength != 0 {
		v.refuse(ViaConnect, http.StatusBadRequest, "CONNECT has no body")
		return
	}
	up := v.reach(ViaConnect)
	if up == nil {
		return
	}
	defer v.l.untrack(up)
	v.up = up
	if _, err := io.WriteString(v.c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	v.speakSoon()
}

// speakSoon is speak with a new deadline for the program's first bytes.
func (v *visit) speakSoon() {
	v.in.allow(0)
	v.headDeadline()
	v.speak()
}

// reach asks the policy and dials. If the host is refused or not reached, it answers the
// program and returns nil.
func (v *visit) reach(via Via) net.Conn {
	if v.up != nil {
		return v.up
	}
	verdict := v.decide(via)
	if !verdict.Allowed {
		v.closed(verdict)
		return nil
	}
	up, err := v.dial(via, verdict)
	if err == nil {
		return up
	}
	if c, ok := errors.AsType[closedError](err); ok {
		v.closed(c.verdict)
		return nil
	}
	if b, ok := errors.AsType[*BlockedError](err); ok {
		v.answer(http.StatusForbidden, place(v.host, v.port)+" is open, but its address is "+b.What+"; an operator can allow it with egress_private_hosts")
		return nil
	}
	v.answer(http.StatusBadGateway, place(v.host, v.port)+" could not be reached: "+Unreachable(err))
	return nil
}

// forward sends a newly written request to the host and the answer to the program.
func (v *visit) forward(via Via, r *request) {
	up := v.reach(via)
	if up == nil {
		return
	}
	defer v.l.untrack(up)
	f := v.l.newFlow()
	v.in.allow(f.idle)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer v.l.survive()
		end := func() { _ = up.Close() } // also ends the answer
		if err := v.send(f, up, r); err != nil {
			end()
			return
		}
		v.leaving(end, false)
	}()
	whole := v.back(f, up, r)
	_ = up.Close()
	if !whole {
		reset(v.c)
		<-sent
		return
	}
	v.in.stop() // do not wait for a request body that goes on
	<-sent
	if v.br.Buffered()+r.rest.Buffered() > 0 {
		v.deny(via, "a second request came on the connection")
	}
	v.linger()
}

// hop lists the hop-by-hop fields, and the fields that the proxy writes itself. The proxy
// answers Expect.
var hop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true, "Transfer-Encoding": true,
	"Upgrade": true, "Proxy-Authorization": true, "Proxy-Authenticate": true, "Http2-Settings": true, "Expect": true,
	"Host": true, "Content-Length": true, // send and back write their own
}

// leftOut returns the names of fields that are not passed on.
func leftOut(h http.Header) map[string]bool {
	out := map[string]bool{}
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			if _, has := h[name]; has { // a head may name thousands that it does not have
				out[name] = true
			}
		}
	}
	for name := range hop {
		out[name] = true
	}
	return out
}

// send writes the request to the host. An error means that the program's request was
// incomplete.
func (v *visit) send(f *flow, up net.Conn, r *request) error {
	w := bufio.NewWriterSize(up, 16<<10)
	host := string(v.host)
	if v.port != 80 {
		host = place(v.host, v.port)
	}
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.target, host)
	_ = r.Header.WriteSubset(w, leftOut(r.Header)) // the writer keeps its error
	chunked := r.ContentLength < 0
	switch {
	case chunked:
		_, _ = io.WriteString(w, "Transfer-Encoding: chunked\r\n")
	case r.ContentLength > 0 || r.Header.Get("Content-Length") != "":
		fmt.Fprintf(w, "Content-Length: %d\r\n", r.ContentLength)
	}
	_, _ = io.WriteString(w, "Connection: close\r\n\r\n")
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(v.c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return err
		}
	}
	var to io.Writer = w
	var end io.Closer
	if chunked {
		c := httputil.NewChunkedWriter(w)
		to, end = c, c
	}
	if r.ContentLength != 0 {
		_ = w.Flush()
		if _, err := io.Copy(to, f.reader(r.Body)); err != nil {
			if errors.Is(err, errBytes) {
				v.deny(ViaHTTP, errBytes.Error())
			} else if w.Flush() != nil {
				return nil // the host has stopped reading; it may have answered
			}
			return err
		}
	}
	if end != nil {
		_ = end.Close()                  // writes the last chunk
		_, _ = io.WriteString(w, "\r\n") // and no trailers
	}
	_ = w.Flush() // an error shows when the answer is read
	return nil
}

// back copies the host's answer to the program and reports whether it was complete.
func (v *visit) back(f *flow, up net.Conn, r *request) (whole bool) {
	limit := &frugal{r: &patient{Conn: up, wait: f.idle}, bytes: 8 * headBytes, lines: answerFields + pieceBytes}
	br := bufio.NewReaderSize(limit, pieceBytes)
	res, err := readAnswer(br, r.Request)
	v.l.chargeHead(8*headBytes - limit.bytes - br.Buffered())
	if err != nil {
		v.answer(http.StatusBadGateway, place(v.host, v.port)+" sent an answer that is not valid HTTP/1")
		return false
	}
	defer res.Body.Close()
	limit.whole = true

	chunked := res.ContentLength < 0 && len(res.TransferEncoding) > 0
	var head strings.Builder
	fmt.Fprintf(&head, "HTTP/1.1 %s\r\n", status(res))
	_ = res.Header.WriteSubset(&head, leftOut(res.Header)) // writes to memory never fail
	if cl := res.Header.Get("Content-Length"); cl != "" && !chunked {
		head.WriteString("Content-Length: " + cl + "\r\n")
	}
	if chunked && r.keepsHTTP {
		head.WriteString("Transfer-Encoding: chunked\r\n")
	}
	head.WriteString("Connection: close\r\n\r\n")
	if _, err = io.WriteString(v.c, head.String()); err != nil {
		return false
	}
	switch {
	case res.Body == http.NoBody || res.ContentLength == 0:
	case chunked && r.keepsHTTP:
		err = v.chunks(f, res)
	case chunked:
		_, err = io.Copy(v.c, f.reader(res.Body))
	default:
		err = v.body(f, up, br, res.ContentLength)
	}
	if errors.Is(err, errBytes) {
		v.deny(ViaHTTP, errBytes.Error())
	}
	return err == nil
}

// chunks writes the body of an answer with chunked encoding.
func (v *visit) chunks(f *flow, res *http.Response) error {
	w := httputil.NewChunkedWriter(v.c)
	if _, err := io.Copy(w, f.reader(res.Body)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(v.c, "\r\n")
	return err
}

// body writes the body of an answer: left bytes, or with -1 until the connection ends.
// The kernel copies it from socket to socket.
func (v *visit) body(f *flow, up net.Conn, br *bufio.Reader, left int64) error {
	early := int64(br.Buffered())
	if left >= 0 {
		early = min(early, left)
		left -= early
	}
	f.count(early)
	if _, err := io.CopyN(v.c, br, early); err != nil {
		return err
	}
	return f.copy(v.c, up, left)
}

// Bounds of the heads of an answer. Parsed fields take twenty times the memory of their bytes, and a
// host that a program may reach can keep all of its connections waiting for the end of a head.
const (
	answerFields = 1024
	pieceBytes   = 4 << 10 // that are read at once; the body's beginning may be among them
)

var errFields = errors.New("too many fields")

// frugal reads heads: so many bytes, and so many lines. If whole is set, it reads everything.
type frugal struct {
	r            io.Reader
	bytes, lines int
	whole        bool
}

func (f *frugal) Read(p []byte) (int, error) {
	if f.whole {
		return f.r.Read(p)
	}
	if f.bytes <= 0 || f.lines <= 0 {
		return 0, errFields
	}
	n, err := f.r.Read(p[:min(len(p), f.bytes)])
	f.bytes -= n
	f.lines -= bytes.Count(p[:n], []byte{'\n'})
	return n, err
}

// readAnswer reads the head of the final answer. It skips up to seven interim (1xx) ones.
func readAnswer(br *bufio.Reader, r *http.Request) (*http.Response, error) {
	for range 8 {
		res, err := http.ReadResponse(br, r)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		switch {
		case res.StatusCode == http.StatusSwitchingProtocols || res.StatusCode < 100:
			return nil, errors.New("unexpected status code")
		case len(res.Header) > answerFields:
			return nil, errFields
		case res.StatusCode >= 200:
			return res, nil
		}
		_ = res.Body.Close()
	}
	return nil, errors.New("too many interim answers")
}

func status(res *http.Response) string {
	if len(res.Status) < 3 || strings.ContainsAny(res.Status, "\r\n") {
		return strconv.Itoa(res.StatusCode)
	}
	return res.Status
}

// refuse counts a refusal and sends it as the answer.
func (v *visit) refuse(via Via, code int, reason string) {
	v.deny(via, reason)
	v.answer(code, reason)
}

// closed answers that the host is not open, and how it can be opened. It names no command, because
// a command may contain paths of the server.
func (v *visit) closed(verdict Verdict) {
	if verdict.Rule != "" || v.host == "" {
		v.answer(http.StatusForbidden, cmp.Or(string(v.host), v.aim)+":"+strconv.Itoa(v.port)+" cannot be reached: "+verdict.Reason)
		return
	}
	d := sandboxmcp.Domain{Host: v.host}
	if !d.MatchPort(v.port) {
		d.Port = v.port
	}
	words, how := "", ""
	switch verdict.Recourse {
	case ByPerson:
		words, how = "; a person can open it", "A person can open the domain "+d.String()+"."
	case ByTool:
		words, how = "; ask with request_egress", "Ask for it with the tool request_egress and the domain "+d.String()+"."
	case BySettings:
		how = "Only the operator's settings open domains."
	}
	v.write(http.StatusForbidden, place(v.host, v.port)+" is not open"+words,
		fmt.Sprintf("%s is not open to this sandbox: %s.\n%s Retries do not help.\n", place(v.host, v.port), verdict.Reason, how))
}

func (v *visit) answer(code int, reason string) {
	v.write(code, "sandboxmcp: "+phrase(reason), "sandboxmcp: "+reason+".\n")
}

// phrase makes a text valid in a status line.
func phrase(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), 200)]
}

// write answers and closes the connection. The status line has the message, too, because
// many programs show nothing else.
func (v *visit) write(code int, words, body string) {
	_ = v.c.SetWriteDeadline(time.Now().Add(v.l.proxy.caps.Head))
	_, _ = fmt.Fprintf(v.c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", code, words, len(body), body)
	v.linger()
}
