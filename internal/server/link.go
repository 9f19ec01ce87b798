package server

import (
	"cmp"
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

// FilesPath is the path prefix of files on the HTTP server.
const FilesPath = "/files/"

// Links makes and checks URLs of files. Each has a signature over namespace, session and
// path, made with a key that exists only in the server's memory. Anyone who has such a URL
// can read that one file.
type Links struct {
	own  sandboxmcp.Namespace
	most atomic.Int64 // bytes of a file that a URL is made for
	key  [32]byte
	base atomic.Pointer[string] // "http://host:port"; nil: no server
}

// NewLinks makes a Links for files of at most most bytes; 0: [MaxLinked]. Links to files of the
// namespace own do not name it. URL returns "" until Open was called.
func NewLinks(own sandboxmcp.Namespace, most int64) *Links {
	if own == "" {
		own = sandboxmcp.DefaultNamespace
	}
	l := &Links{own: own}
	l.SetMost(most)
	_, _ = rand.Read(l.key[:]) // never fails
	return l
}

// SetMost replaces the largest size of a file that URL is made for; 0: [MaxLinked].
func (l *Links) SetMost(most int64) { l.most.Store(cmp.Or(most, MaxLinked)) }

// Open sets the base URL of the HTTP server, such as http://127.0.0.1:8080. The empty string
// means that there is no server any more.
func (l *Links) Open(base string) {
	if base == "" {
		l.base.Store(nil)
		return
	}
	l.base.Store(&base)
}

// URL is a [LinkFunc].
func (l *Links) URL(ns sandboxmcp.Namespace, id, path string, size int64) string {
	base := l.base.Load()
	path, ok := servable(path)
	if base == nil || !ok || size > l.most.Load() {
		return ""
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	link := *base + FilesPath + url.PathEscape(id) + "/" + strings.Join(parts, "/") +
		"?sig=" + l.sign(ns, id, path)
	if ns != l.own {
		link += "&ns=" + url.QueryEscape(string(ns))
	}
	return link
}

// servable returns the part of path below /mnt/data. It returns false if a URL cannot
// represent the path.
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

// sign returns the signature of a link. It separates the fields by NUL, which no field can
// contain, so different links sign different bytes.
func (l *Links) sign(ns sandboxmcp.Namespace, id, path string) string {
	mac := hmac.New(sha256.New, l.key[:])
	mac.Write([]byte("file\x00" + string(ns) + "\x00" + id + "\x00" + path))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// signed reports whether sig is the signature of the file. It compares the encoded text,
// because the decoder would accept other encodings of the same bytes.
func (l *Links) signed(ns sandboxmcp.Namespace, id, path, sig string) bool {
	return hmac.Equal([]byte(sig), []byte(l.sign(ns, id, path)))
}
