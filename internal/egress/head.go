package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

const headBytes = 32 << 10 // most bytes of a request's head; a response's head may have eight times as many

// headFields bounds the fields of a request's head. Parsed empty fields take thirty
// times the memory of their bytes, until the answer has ended.
const headFields = 128

// request is a request whose head was checked.
type request struct {
	*http.Request // headers and body; its URL and Host are not used

	rest      *bufio.Reader // the body and the bytes after it
	target    string        // path and query as sent
	absolute  bool          // the request line names a host
	host      sandboxmcp.Host
	port      int  // 0: none was named
	keepsHTTP bool // HTTP/1.1, not 1.0
}

// headError is the reason for refusing a head.
type headError string

func (e headError) Error() string { return string(e) }

// readRequest reads the head of a request. It accepts only requests of RFC 9112 that
// every parser reads alike: lines end with CR LF, fields are not folded, Host,
// Content-Length and Transfer-Encoding occur at most once, and the last two not
// together. Errors of the connection are not a headError.
func readRequest(br *bufio.Reader) (*request, error) {
	head, err := readHead(br)
	if err != nil {
		return nil, err
	}
	return parseRequest(head, br)
}

// parseRequest is readRequest for a head that was read, and the rest of the connection.
func parseRequest(head []byte, br *bufio.Reader) (*request, error) {
	field, err := checkHead(head)
	if err != nil {
		return nil, err
	}
	rest := bufio.NewReader(io.MultiReader(bytes.NewReader(head), br))
	hr, err := http.ReadRequest(rest)
	if err != nil {
		return nil, headError("the request has no form that is understood")
	}
	r := &request{Request: hr, rest: rest, keepsHTTP: hr.ProtoAtLeast(1, 1)}
	if err := r.authority(string(head), field); err != nil {
		return nil, err
	}
	return r, nil
}

// errUnsaid means that the connection ended, or its deadline passed, before its first
// byte.
var errUnsaid = errors.New("nothing was sent")

// readHead returns the bytes of a head, including its final empty line. On error it
// returns the bytes read so far.
func readHead(br *bufio.Reader) ([]byte, error) {
	var head []byte
	start := 0 // offset of the current line
	for {
		piece, err := br.ReadSlice('\n')
		head = append(head, piece...)
		if len(head) > headBytes {
			return head, headError("the head of the request is longer than 32 KiB")
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && len(head) == 0 {
			err = fmt.Errorf("%w: %w", errUnsaid, err)
		}
		if err != nil {
			return head, fmt.Errorf("read head: %w", err)
		}
		line := head[start:]
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return head, headError("a line of the head does not end with CR LF")
		}
		if len(line) == 2 && start > 0 {
			return head, nil
		}
		start = len(head)
	}
}

// checkHead checks the lines of a head and returns the value of the Host field.
func checkHead(head []byte) (host string, err error) {
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	if err := checkRequestLine(lines[0]); err != nil {
		return "", err
	}
	if len(lines)-1 > headFields {
		return "", headError("the head has more than 128 fields")
	}
	times := map[string]int{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		switch {
		case line == "" || line[0] == ' ' || line[0] == '\t':
			return "", headError("a field of the head is folded")
		case !ok || !token(name):
			return "", headError("a line of the head is not a field")
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return "", headError("a field of the head holds a control character")
		}
		name = strings.ToLower(name)
		times[name]++
		if name == "host" {
			host = strings.Trim(value, " \t")
		}
		if times[name] > 1 && (name == "host" || name == "content-length" || name == "transfer-encoding") {
			return "", headError(name + " stands twice in the head")
		}
	}
	old := strings.HasSuffix(lines[0], "/1.0")
	switch {
	case times["content-length"] > 0 && times["transfer-encoding"] > 0:
		return "", headError("the head has both Content-Length and Transfer-Encoding")
	case old && times["transfer-encoding"] > 0:
		return "", headError("HTTP/1.0 has no Transfer-Encoding")
	case !old && times["host"] == 0:
		return "", headError("the head has no Host")
	}
	return host, nil
}

func checkRequestLine(line string) error {
	f := strings.Split(line, " ")
	if len(f) != 3 || !token(f[0]) || f[1] == "" || strings.ContainsFunc(f[1], func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return headError("the request line has no form that is understood")
	}
	if f[2] != "HTTP/1.1" && f[2] != "HTTP/1.0" {
		return headError("only HTTP/1.0 and HTTP/1.1 are spoken here")
	}
	return nil
}

func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// authority sets the host of the request. It takes the host of the request line, which
// the Host field must equal. If the request line has none, it takes the Host field.
func (r *request) authority(head, field string) error {
	line, _, _ := strings.Cut(head, "\r\n")
	target := strings.Split(line, " ")[1]
	var err error
	switch {
	case r.Method == http.MethodConnect:
		r.absolute = true
		if r.host, r.port, err = splitAuthority(target); err == nil && r.port == 0 {
			err = headError("CONNECT names no port")
		}
	case strings.HasPrefix(target, "/"):
		r.target = target
		if field != "" || r.keepsHTTP {
			r.host, r.port, err = splitAuthority(field)
		}
		return err
	default:
		rest, ok := cutScheme(target)
		if !ok {
			return headError("the request line names neither a path nor an http:// URL; https goes by CONNECT")
		}
		end := strings.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		r.absolute, r.target = true, rest[end:]
		if !strings.HasPrefix(r.target, "/") {
			r.target = "/" + r.target
		}
		r.host, r.port, err = splitAuthority(rest[:end])
	}
	if err != nil || field == "" {
		return err
	}
	h, p, err := splitAuthority(field)
	if err != nil || h != r.host || p != r.port && p != 0 && (p != 80 || r.port != 0) {
		return headError("the Host field is not the host of the request line")
	}
	return nil
}

func cutScheme(target string) (string, bool) {
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return "", false
	}
	return target[len(scheme):], true
}

// hostError means that the host of an authority is not a host name.
type hostError struct {
	host string // as sent
	port int    // 0: none was named
}

func (e hostError) Error() string {
	return sandboxmcp.Quote(e.host) + " is not a host name; use a name, not an address"
}

// splitAuthority parses name or name:port. A missing port is 0.
func splitAuthority(s string) (sandboxmcp.Host, int, error) {
	name, port := s, 0
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		n, err := strconv.ParseUint(s[i+1:], 10, 16)
		if err != nil || n == 0 || s[i+1] == '0' || s[i+1] == '+' {
			return "", 0, hostError{host: s}
		}
		name, port = s[:i], int(n)
	}
	h, err := sandboxmcp.ParseHost(name)
	if err != nil {
		return "", 0, hostError{host: strings.Trim(name, "[]"), port: port}
	}
	return h, port, nil
}
