package packages

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// The directories of the room; see the package comment.
const (
	blobsDir = "blobs"
	indexDir = "index"
	askedDir = "asked"
	treesDir = "trees"
	locksDir = "locks"

	tempPrefix = ".new-"
	freshTime  = 5 * time.Minute // a document is used for so long without asking the index
)

// digest is a hash that an index gives for a file.
type digest struct {
	algorithm string // sha256 or sha512
	hex       string
}

// name returns the file name of a blob with this hash.
func (d digest) name() string {
	if d.algorithm == "sha256" {
		return d.hex
	}
	return d.algorithm + "-" + d.hex
}

// isSHA256 reports whether a text is a SHA-256 in hexadecimal digits.
func isSHA256(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 2*sha256.Size && strings.ToLower(s) == s
}

// parseIntegrity returns the strongest hash of an npm integrity string.
func parseIntegrity(text string) (digest, bool) {
	for _, kind := range []struct {
		name string
		size int
	}{{"sha512", sha512.Size}, {"sha256", sha256.Size}} {
		for field := range strings.FieldsSeq(text) {
			sum, _, _ := strings.Cut(field, "?")
			encoded, ok := strings.CutPrefix(sum, kind.name+"-")
			if raw, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil && len(raw) == kind.size {
				return digest{kind.name, hex.EncodeToString(raw)}, true
			}
		}
	}
	return digest{}, false
}

// sums hashes what is written to it.
type sums struct {
	sha256, sha512 hash.Hash // sha512 is nil unless the index gives one
	size           int64
}

func newSums(d digest) *sums {
	s := &sums{sha256: sha256.New()}
	if d.algorithm == "sha512" {
		s.sha512 = sha512.New()
	}
	return s
}

func (s *sums) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	_, _ = s.sha256.Write(p)
	if s.sha512 != nil {
		_, _ = s.sha512.Write(p)
	}
	return len(p), nil
}

func (s *sums) sum256() string { return hex.EncodeToString(s.sha256.Sum(nil)) }

func (s *sums) is(d digest) bool {
	if s.sha512 != nil {
		return hex.EncodeToString(s.sha512.Sum(nil)) == d.hex
	}
	return s.sum256() == d.hex
}

// blob is an open file of the cache, whose content has the hash that was asked for.
type blob struct {
	*os.File

	sha256 string
	size   int64
}

// makeDirs creates the directories of the room.
func (p *Packages) makeDirs() error {
	for _, d := range []string{"", blobsDir, indexDir, askedDir, treesDir, locksDir} {
		dir := filepath.Join(p.cfg.Dir, d)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return broken(err)
		}
		if err := environment.Private(dir); err != nil {
			return broken(err)
		}
	}
	return nil
}

func broken(err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the packages in the state directory cannot be changed").WithCause(err).
		WithHint("check that the state directory belongs to you and is not full")
}

// openBlob opens a blob and verifies it. A damaged one is removed.
func (p *Packages) openBlob(d digest) (*blob, error) {
	path := filepath.Join(p.cfg.Dir, blobsDir, d.name())
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	s := newSums(d)
	if _, err := io.Copy(s, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !s.is(d) {
		p.cfg.Logger.Warn("a cached package file is damaged and is fetched again", "file", d.name())
		return nil, errors.Join(fs.ErrNotExist, f.Close(), os.Remove(path))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	now := p.cfg.Now()
	_ = os.Chtimes(path, now, now) // the oldest are evicted first
	return &blob{File: f, sha256: s.sum256(), size: s.size}, nil
}

// file describes a file that an index lists.
type file struct {
	pkg     string // normalized name
	version string
	name    string
	digest  digest
	url     *url.URL
	local   string // path of a file in a find-links directory, which has no url
}

// fetchBlob returns the file of an index from the cache, or fetches it. Reading a file costs time,
// so all of one gateway are bounded.
func (g *Gateway) fetchBlob(ctx context.Context, f file) (*blob, error) {
	if g.files.Load() > maxFiles {
		return nil, tooMuch("GiB of files", maxFiles>>30)
	}
	b, err := g.openOrFetch(ctx, f)
	if err == nil {
		g.files.Add(b.size)
	}
	return b, err
}

func (g *Gateway) openOrFetch(ctx context.Context, f file) (*blob, error) {
	if b, err := g.p.openBlob(f.digest); err == nil {
		return b, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, broken(err)
	}
	release, err := g.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if b, e := g.p.openBlob(f.digest); e == nil { // another request has fetched it meanwhile
		return b, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fileTime)
	defer cancel()
	body, err := g.openSource(ctx, f)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	temp, err := os.OpenFile(filepath.Join(g.p.cfg.Dir, blobsDir, tempPrefix+rand.Text()), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, broken(err)
	}
	drop := func(err error) (*blob, error) {
		return nil, errors.Join(err, temp.Close(), os.Remove(temp.Name()))
	}
	s := newSums(f.digest)
	err = g.p.copyFile(io.MultiWriter(s, temp), io.LimitReader(body, maxFile+1))
	g.files.Add(s.size)
	if g.fresh.Add(s.size) > g.p.cfg.MaxCache { // a resolver may try many files, and then fail
		g.fresh.Store(0)
		g.p.prune()
	}
	if err != nil {
		if _, told := errors.AsType[*sandboxmcp.Error](err); told {
			return drop(err)
		}
		if _, full := errors.AsType[*fs.PathError](err); full {
			return drop(broken(err))
		}
		return drop(unreachable(f.url, err))
	}
	if s.size > maxFile {
		return drop(tooLarge(f.url, maxFile))
	}
	if !s.is(f.digest) {
		return drop(g.hashMismatch(f))
	}
	if _, err = temp.Seek(0, io.SeekStart); err == nil {
		err = os.Rename(temp.Name(), filepath.Join(g.p.cfg.Dir, blobsDir, f.digest.name()))
	}
	if err != nil {
		return drop(broken(err))
	}
	g.note(Event{Text: fmt.Sprintf("%s %s: fetched %d KiB", f.pkg, f.version, (s.size+1023)>>10), Package: f.pkg})
	return &blob{File: temp, sha256: s.sum256(), size: s.size}, nil
}

func (g *Gateway) hashMismatch(f file) error {
	g.reject(f.pkg, f.version, "the file has not the hash that the index gives", true)
	return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "%s has not the %s that the index gives for it", f.name, strings.ToUpper(f.digest.algorithm)).
		WithHint("do not use this package or index until the cause is known").With("package", f.pkg)
}

// openSource opens a file at its index, or in a directory of find-links.
func (g *Gateway) openSource(ctx context.Context, f file) (io.ReadCloser, error) {
	if f.local != "" {
		source, err := plainfile.Open(f.local)
		if err != nil {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "%s cannot be read", f.name).WithCause(err)
		}
		return source, nil
	}
	res, err := g.net.get(ctx, f.url, http.Header{"Accept-Encoding": {"identity"}})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(statusError(f.url, res.StatusCode), res.Body.Close())
	}
	return res.Body, nil
}

// document is a page of an index.
type document struct {
	URL      string    `json:"url"` // after redirects
	Type     string    `json:"type"`
	ETag     string    `json:"etag,omitempty"`
	Modified string    `json:"modified,omitempty"`
	Fetched  time.Time `json:"fetched"`

	body []byte
}

var errNotListed = errors.New("the index does not have it")

// fetchDocument returns a document of an index. A copy in the cache is used if it is younger
// than freshTime, if the index says that it has not changed, or if the index does not answer.
// It fails with errNotListed if the index does not have the document, and when all documents
// together are too large.
func (g *Gateway) fetchDocument(ctx context.Context, u *url.URL, accept string) (document, error) {
	d, err := g.openDocument(ctx, u, accept)
	if err == nil && g.read.Add(int64(len(d.body))) > maxDocuments {
		err = tooMuch("MiB of lists of the index", maxDocuments>>20)
	}
	return d, err
}

func (g *Gateway) openDocument(ctx context.Context, u *url.URL, accept string) (document, error) {
	key := sha256.Sum256([]byte(u.String() + "\n" + accept))
	path := filepath.Join(g.p.cfg.Dir, indexDir, hex.EncodeToString(key[:]))
	kept, ok := readDocument(path)
	now := g.p.cfg.Now()
	if age := now.Sub(kept.Fetched); ok && age >= 0 && age < freshTime {
		return kept, nil
	}
	release, err := g.turn(ctx)
	if err != nil {
		return document{}, err
	}
	defer release()
	d, err := g.askIndex(ctx, u, accept, kept)
	if offline, is := errors.AsType[*offlineError](err); is {
		if ok {
			g.p.cfg.Logger.Warn("the package index does not answer; its last document is used", "host", u.Hostname(), "fetched", kept.Fetched, "error", offline)
			g.note(Event{Text: u.Hostname() + " does not answer; what it listed on " + kept.Fetched.Format(time.DateOnly) + " is used"})
			return kept, nil
		}
		return document{}, offline.cause
	}
	if err != nil {
		return document{}, err
	}
	d.Fetched = now
	head, err := json.Marshal(d)
	if err == nil {
		err = g.p.writeFile(path, append(append(head, '\n'), d.body...))
	}
	if err != nil { // it is not kept
		g.p.cfg.Logger.Warn("a document of the package index is not kept", "error", err)
	}
	return d, nil
}

func (g *Gateway) askIndex(ctx context.Context, u *url.URL, accept string, kept document) (document, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	head := http.Header{"Accept": {accept}}
	if kept.body != nil && kept.ETag != "" {
		head.Set("If-None-Match", kept.ETag)
	}
	if kept.body != nil && kept.Modified != "" {
		head.Set("If-Modified-Since", kept.Modified)
	}
	res, err := g.net.get(ctx, u, head)
	if err != nil {
		return document{}, err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotModified && kept.body != nil:
		return kept, nil
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusGone:
		return document{}, errNotListed
	case res.StatusCode != http.StatusOK:
		return document{}, statusError(u, res.StatusCode)
	}
	body, err := readAll(u, res.Body, maxDocument)
	if err != nil {
		return document{}, err
	}
	final := *res.Request.URL
	final.User = nil
	if len(final.String()) > maxURL { // every file that it lists would have a copy
		return document{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index %s redirects to a URL of more than %d bytes", u.Hostname(), maxURL).
			WithHint("correct the index in `pip config list` or `npm config list`")
	}
	return document{URL: final.String(), Type: res.Header.Get("Content-Type"), ETag: short(res.Header.Get("ETag")), Modified: short(res.Header.Get("Last-Modified")), body: body}, nil
}

// short drops a header value that is too long to be kept.
func short(s string) string {
	if len(s) > 1000 {
		return ""
	}
	return s
}

func readDocument(path string) (document, bool) {
	data, err := plainfile.Read(path, maxDocument+maxHead)
	if err != nil {
		return document{}, false
	}
	head, body, ok := bytes.Cut(data, []byte{'\n'})
	var d document
	if !ok || json.Unmarshal(head, &d) != nil {
		return document{}, false
	}
	d.body = body
	return d, true
}

// writeFile writes a file of the room atomically.
func (p *Packages) writeFile(path string, data []byte) error {
	temp := filepath.Join(filepath.Dir(path), tempPrefix+rand.Text())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// tempAge is the age from which a temporary file or directory is taken for that of a process
// that died.
const tempAge = time.Hour

// prune removes the oldest files of the cache until it has at most MaxCache bytes, and
// temporary files that were left behind.
func (p *Packages) prune() {
	type old struct {
		path string
		size int64
		used time.Time
	}
	var all []old
	var total int64
	now := p.cfg.Now()
	for _, dir := range []string{blobsDir, indexDir, askedDir} {
		entries, err := os.ReadDir(filepath.Join(p.cfg.Dir, dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue
			}
			path := filepath.Join(p.cfg.Dir, dir, e.Name())
			if strings.HasPrefix(e.Name(), tempPrefix) {
				if now.Sub(info.ModTime()) > tempAge {
					_ = os.Remove(path)
				}
				continue
			}
			size := info.Size() + entryBytes // many small files fill a disk as well
			all = append(all, old{path, size, info.ModTime()})
			total += size
		}
	}
	slices.SortFunc(all, func(a, b old) int { return a.used.Compare(b.used) })
	for _, o := range all {
		if total <= p.cfg.MaxCache {
			return
		}
		if err := os.Remove(o.path); err == nil {
			total -= o.size
		}
	}
}
