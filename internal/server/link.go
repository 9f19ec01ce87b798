package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// filesRoute is where the artifact server hands out files.
const filesRoute = "/files/"

// Links makes the addresses of files and knows them again: each carries a
// signature over namespace, session and path, made with a key that lives and
// dies with the server. Whoever has such an address may read that one file.
type Links struct {
	own  sandboxmcp.Namespace
	key  [32]byte
	base atomic.Pointer[string] // "http://host:port"; nil while nobody hands files out
}

// NewLinks makes links of which those for the namespace own are the short ones.
// URL answers nothing until Open.
func NewLinks(own sandboxmcp.Namespace) *Links {
	if own == "" {
		own = sandboxmcp.DefaultNamespace
	}
	l := &Links{own: own}
	_, _ = rand.Read(l.key[:]) // never fails
	return l
}

// Open says under which address, such as http://127.0.0.1:8080, files are
// handed out from now on; the empty string: no longer.
func (l *Links) Open(base string) {
	if base == "" {
		l.base.Store(nil)
		return
	}
	l.base.Store(&base)
}

// URL is a [LinkFunc].
func (l *Links) URL(ns sandboxmcp.Namespace, id, path string) string {
	base := l.base.Load()
	path, ok := servable(path)
	if base == nil || !ok {
		return ""
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	link := *base + filesRoute + url.PathEscape(id) + "/" + strings.Join(parts, "/") +
		"?sig=" + l.sign(ns, id, path)
	if ns != l.own {
		link += "&ns=" + url.QueryEscape(string(ns))
	}
	return link
}

// servable returns the part of path below /mnt/data, if an address can name it:
// not every name that a program can give a file has one.
func servable(path string) (string, bool) {
	path = strings.TrimPrefix(path, workDir+"/")
	if len(path) > maxPath || !utf8.ValidString(path) || strings.ContainsAny(path, "\x00\\") {
		return "", false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return "", false
		}
	}
	return path, true
}

// sign returns the signature of a link. No field can have a NUL byte in it, so
// no two links sign the same bytes.
func (l *Links) sign(ns sandboxmcp.Namespace, id, path string) string {
	mac := hmac.New(sha256.New, l.key[:])
	mac.Write([]byte("file\x00" + string(ns) + "\x00" + id + "\x00" + path))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// signed tells whether sig opens the file. The text is compared, not what it
// decodes to: a decoder is lenient.
func (l *Links) signed(ns sandboxmcp.Namespace, id, path, sig string) bool {
	return hmac.Equal([]byte(sig), []byte(l.sign(ns, id, path)))
}
