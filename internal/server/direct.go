package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jsonparts"
)

// Headers of a request in versions without sessions.
const (
	methodHeader    = "Mcp-Method"
	nameHeader      = "Mcp-Name"
	parameterHeader = "Mcp-Param-" // prefix
)

const (
	toolsCall = "tools/call"
	maxDirect = 4 << 20 // bytes of a request that is answered directly
)

// directTool calls a tool.
type directTool func(ctx context.Context, req *mcp.CallToolRequest, to answerTo) outcome

// direct answers a plain call of a tool in a version without sessions. It returns false, with the
// request as it was, if the SDK has to answer it: any other request, one that is not well formed,
// and a call that may need more than one answer. The SDK makes a session for each request and
// parses it four times, which takes longer than a run of a session.
func (e *endpoint) direct(w http.ResponseWriter, r *http.Request, id sandboxmcp.Identity) (answered bool) {
	tool, ok := e.s.rules().tools[r.Header.Get(nameHeader)]
	if !ok || tool.asks || !plainCall(r) {
		return false
	}
	body, err := readBody(r, maxDirect)
	var number []byte
	var params *mcp.CallToolParamsRaw
	if err == nil && len(body) <= maxDirect && jsonparts.Count(body) <= maxParts {
		number, params = parseCall(body, r.Header)
	}
	if params == nil {
		r.Body = &reread{io.MultiReader(bytes.NewReader(body), endOf{err}, r.Body), r.Body}
		return false
	}
	b := takeBuffers()
	defer b.giveBack()
	leave := func() {}
	defer func() { leave() }()
	ctx := context.WithValue(r.Context(), rootKey{}, e.root)
	o := e.s.guarded(func() outcome {
		req := &mcp.CallToolRequest{Params: params, Extra: &mcp.RequestExtra{TokenInfo: tokenOf(id, linkOf(r.Context().Done(), w)), Header: r.Header}}
		return tool.answer(ctx, req, answerTo{&b.body, func(l func()) { leave = l }})
	})
	if err = b.encode(number, e.meta, o); err != nil {
		found := incident()
		e.s.log.Error("call not answered", "incident", found, "tool", params.Name, "err", err)
		refuse(w, internalError(found))
		return true
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b.answer)))
	_, _ = w.Write(b.answer) // fails only if the client has disconnected
	return true
}

// guarded returns the outcome of call, or an internal error if it panics.
func (s *Server) guarded(call func() outcome) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = failed(internalError(s.panicked(toolsCall, p)))
		}
	}()
	return call()
}

// readBody reads the body of a request, and one byte more than most if it is longer. It takes memory
// as the bytes arrive: a client may announce many and send none.
func readBody(r *http.Request, most int64) ([]byte, error) {
	n := r.ContentLength
	if n < 0 || n > most {
		return io.ReadAll(io.LimitReader(r.Body, most+1))
	}
	body := make([]byte, 0, min(n, firstRead))
	for have := int64(0); have < n; have = int64(len(body)) {
		next := min(n, max(2*have, firstRead))
		body = slices.Grow(body, int(next-have))
		read, err := io.ReadFull(r.Body, body[have:next])
		body = body[:have+int64(read)]
		if err != nil {
			return body, err
		}
	}
	return body, nil
}

const firstRead = 64 << 10 // bytes

// buffers hold the answer to a call. They are used again, because memory that was not used lately
// takes longer to write.
type buffers struct {
	body   bytes.Buffer
	answer []byte
}

const keptAnswer = 64 << 10 // bytes; longer buffers are not used again

var spareBuffers = sync.Pool{New: func() any { return new(buffers) }}

// takeBuffers returns empty buffers. The caller calls giveBack.
func takeBuffers() *buffers {
	b, _ := spareBuffers.Get().(*buffers)
	return b
}

func (b *buffers) giveBack() {
	if b.body.Cap() > keptAnswer || cap(b.answer) > 3*keptAnswer {
		return
	}
	b.body.Reset()
	b.answer = b.answer[:0]
	spareBuffers.Put(b)
}

// encode writes the answer with an outcome. meta is the JSON of the field _meta.
func (b *buffers) encode(id, meta []byte, o outcome) (err error) {
	if o.ask != nil {
		return errors.New("a tool that never asks has asked")
	}
	out := slices.Grow(b.answer, 2*len(o.body)+len(o.text)+500)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), id...)
	out = append(append(out, `,"result":{"resultType":"complete","_meta":`...), meta...)
	if out, err = appendContent(append(out, ','), o.text, o.body, o.blocks); err != nil {
		return err
	}
	if o.failed {
		out = append(out, `,"isError":true`...)
	}
	out = append(out, "}}\n"...)
	b.answer = out
	return nil
}

// plainCall reports whether a request has the headers of a plain call of a tool.
func plainCall(r *http.Request) bool {
	h := r.Header
	for name := range h {
		if strings.HasPrefix(name, parameterHeader) {
			return false
		}
	}
	accept := h.Get("Accept")
	return r.Method == http.MethodPost && isJSON(h.Get("Content-Type")) && h.Get(methodHeader) == toolsCall &&
		h.Get(versionHeader) == modernVersion && h.Get(sessionHeader) == "" && h.Get("Last-Event-ID") == "" &&
		strings.Contains(accept, "application/json") && strings.Contains(accept, "text/event-stream") && !strings.Contains(accept, ";")
}

// isJSON reports whether a Content-Type is that of JSON.
func isJSON(header string) bool {
	if header == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(header)
	return err == nil && kind == "application/json"
}

// parseCall parses the body of a plain call, which has the fields of the protocol alone and agrees
// with the headers. It returns the id as it stands there. params is nil if the body is another.
func parseCall(body []byte, h http.Header) (id []byte, params *mcp.CallToolParamsRaw) {
	c := callReader{text: body, in: jsontext.NewDecoder(bytes.NewBuffer(body))}
	var version string
	var capable bool
	p := mcp.CallToolParamsRaw{Meta: mcp.Meta{}}
	meta := func(name string) bool {
		switch name {
		case mcp.MetaKeyProtocolVersion:
			version = c.word()
			p.Meta[name] = version
			return true
		case mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities:
			raw := c.raw()
			capable = capable || name == mcp.MetaKeyClientCapabilities && len(raw) > 0 && raw[0] == '{'
			var value any
			ok := json.Unmarshal(raw, &value) == nil
			p.Meta[name] = value
			return ok
		}
		return false
	}
	inner := func(name string) bool {
		switch name {
		case "name":
			p.Name = c.word()
		case "arguments":
			p.Arguments = c.raw()
		case "_meta":
			return c.object(meta)
		default:
			return false
		}
		return true
	}
	ok := c.object(func(name string) bool {
		switch name {
		case "jsonrpc":
			return c.word() == "2.0"
		case "method":
			return c.word() == toolsCall
		case "id":
			id = c.raw()
			return plainID(id)
		case "params":
			return c.object(inner)
		}
		return false
	})
	if _, err := c.in.ReadToken(); !ok || !errors.Is(err, io.EOF) || c.words != 4 || id == nil || !capable ||
		p.Name != h.Get(nameHeader) || version != h.Get(versionHeader) {
		return nil, nil
	}
	return id, &p
}

// callReader reads the JSON of a call. A member that occurs twice is an error.
type callReader struct {
	text  []byte
	in    *jsontext.Decoder
	words int // strings read by word
}

// object reads an object. It calls member for each member, which reads the value, or returns false
// to stop.
func (c *callReader) object(member func(name string) bool) bool {
	if begin, err := c.in.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	for c.in.PeekKind() == '"' {
		if name, err := c.in.ReadToken(); err != nil || !member(name.String()) {
			return false
		}
	}
	end, err := c.in.ReadToken()
	return err == nil && end.Kind() == '}'
}

// word reads a string. It returns "" for anything else.
func (c *callReader) word() string {
	if c.in.PeekKind() != '"' {
		return ""
	}
	word, err := c.in.ReadToken()
	if err != nil {
		return ""
	}
	c.words++
	return word.String()
}

// raw reads a value and returns its part of the text, or nil.
func (c *callReader) raw() json.RawMessage {
	value, err := c.in.ReadValue()
	if err != nil {
		return nil
	}
	end := int(c.in.InputOffset())
	return c.text[end-len(value) : end : end]
}

// plainID reports whether an id is a short string or a whole number.
func plainID(id []byte) bool {
	if len(id) == 0 || len(id) > 200 {
		return false
	}
	return id[0] == '"' || len(id) <= 15 && strings.Trim(string(id), "0123456789") == ""
}

// reread is a body of which a part was read.
type reread struct {
	io.Reader
	io.Closer
}

// endOf is where reading ended: the error, if any.
type endOf struct{ err error }

func (f endOf) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
