package packages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	nethtml "golang.org/x/net/html"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

const (
	simpleJSON   = "application/vnd.pypi.simple.v1+json"
	simpleHTML   = "application/vnd.pypi.simple.v1+html"
	acceptSimple = simpleJSON + ", " + simpleHTML + ";q=0.2, text/html;q=0.1"
)

// simpleFile is a file in the JSON form of the simple API.
type simpleFile struct {
	Filename string            `json:"filename"`
	URL      string            `json:"url"`
	Hashes   map[string]string `json:"hashes"`
	Requires *string           `json:"requires-python,omitempty"`
	Yanked   any               `json:"yanked,omitempty"`
	Core     any               `json:"core-metadata,omitempty"`
	Dist     any               `json:"dist-info-metadata,omitempty"`
	Uploaded string            `json:"upload-time,omitempty"`
}

// project is a package as the gateway lists it.
type project struct {
	index string // host of the index
	files []listedFile
	npm   *npmDocument
}

// listedFile is a file that the gateway offers.
type listedFile struct {
	file
	simple   simpleFile
	metadata bool   // the index serves the metadata of the wheel by itself
	core     string // its SHA-256, if the index gives it
}

// fetchPython lists a package: the wheels of the first index that has it.
func (g *Gateway) fetchPython(ctx context.Context, name string) (*project, error) {
	pr := &project{index: "find-links"}
	for _, dir := range g.client.links {
		g.listDirectory(pr, name, dir)
	}
	for _, i := range g.client.indexes {
		d, err := g.fetchDocument(ctx, i.url.JoinPath(name, "/"), acceptSimple)
		if errors.Is(err, errNotListed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		base, err := url.Parse(d.URL)
		if err != nil {
			return nil, err
		}
		some := false
		g.p.parsing <- struct{}{}
		err = parseSimple(d, func(f simpleFile) error {
			some = true
			return g.listSimple(pr, name, base, f)
		})
		<-g.p.parsing
		if err != nil {
			return nil, unreadable(err, name, "the package index %s does not speak the simple API for %s", "pip config list", i)
		}
		if some {
			pr.index = i.url.Hostname()
			return pr, nil
		}
	}
	if len(pr.files) == 0 {
		return nil, errNotListed
	}
	return pr, nil
}

// unreadable is the error of a document of an index that cannot be used.
func unreadable(err error, name, format, command string, i index) error {
	if _, told := errors.AsType[*sandboxmcp.Error](err); told {
		return err
	}
	if errors.Is(err, errMembers) {
		return tooMany(name, maxMembers)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, format, i.url.Hostname(), name).WithCause(err).WithHint("check the index in `" + command + "`")
}

func tooMany(name string, most int) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index lists more than %d files or versions of %s", most, name).
		WithHint("use another package or index")
}

// listSimple adds a file of an index, unless a rule leaves it out.
func (g *Gateway) listSimple(pr *project, name string, base *url.URL, f simpleFile) error {
	if len(f.Filename) > maxSegment || len(f.URL) > maxURL || f.Requires != nil && len(*f.Requires) > maxText {
		return nil
	}
	w, err := environment.ParseWheel(f.Filename)
	if err != nil {
		if v, ok := sourceVersion(name, f.Filename); ok {
			g.reject(name, clean(v), "only source: its build would run code of the package", false)
		}
		return nil
	}
	if w.Name != name {
		return nil
	}
	u, err := base.Parse(f.URL)
	sum := strings.ToLower(f.Hashes["sha256"])
	switch {
	case err != nil:
		return nil
	case !isSHA256(sum):
		g.reject(name, w.Version, "the index gives no SHA-256 for it", false)
		return nil
	case g.tooYoung(f.Uploaded):
		g.reject(name, w.Version, g.youngReason(f.Uploaded), g.direct(name))
		return nil
	case len(pr.files) >= maxListed:
		return tooMany(name, maxListed)
	case g.kept.Add(1) > maxKept:
		return tooMuch("files in the lists of the index", maxKept)
	}
	u.Fragment = ""
	core, dist := f.Core, f.Dist
	f.URL, f.Hashes, f.Core, f.Dist, f.Yanked = "", nil, nil, nil, yanked(f.Yanked) // thousands of files are kept
	l := listedFile{file: file{pkg: name, version: w.Version, name: f.Filename, digest: digest{"sha256", sum}, url: u}, simple: f}
	for _, m := range []any{core, dist} {
		switch m := m.(type) {
		case bool:
			l.metadata = l.metadata || m
		case map[string]any:
			l.metadata = true
			if s, ok := m["sha256"].(string); ok {
				l.core = strings.ToLower(s)
			}
		}
	}
	pr.files = append(pr.files, l)
	return nil
}

// yanked returns what is kept of the mark of a yanked file: a short reason, true or nil.
func yanked(mark any) any {
	switch m := mark.(type) {
	case nil:
		return nil
	case bool:
		return m
	case string:
		if len(m) <= maxText {
			return m
		}
	}
	return true
}

// tooYoung reports whether the policy wants a file to be older.
func (g *Gateway) tooYoung(uploaded string) bool {
	if g.p.policy().MinAge <= 0 {
		return false
	}
	t, err := time.Parse(time.RFC3339, uploaded)
	return err != nil || g.p.cfg.Now().Sub(t) < g.p.policy().MinAge
}

func (g *Gateway) youngReason(uploaded string) string {
	days := fmt.Sprintf("%.3g days", g.p.policy().MinAge.Hours()/24)
	if _, err := time.Parse(time.RFC3339, uploaded); err != nil {
		return "the index does not say when it was uploaded, and packages_min_age_days wants " + days
	}
	return "uploaded less than " + days + " ago (packages_min_age_days)"
}

var sourceForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(.+)-([^-]+)\.(?:tar\.gz|zip|tar\.bz2|tar\.xz|tgz)$`)
})

// sourceVersion returns the version of a source archive.
func sourceVersion(name, file string) (string, bool) {
	m := sourceForm().FindStringSubmatch(file)
	if m == nil || environment.Normal(m[1]) != name {
		return "", false
	}
	return m[2], true
}

// parseSimple parses a page of the simple API in any of its forms, and calls fn for each file.
func parseSimple(d document, fn func(simpleFile) error) error {
	kind, _, _ := mime.ParseMediaType(d.Type)
	switch kind {
	case simpleJSON, "application/json":
		return parseSimpleJSON(d.body, fn)
	case simpleHTML, "text/html":
		return parseSimpleHTML(d, fn)
	}
	return fmt.Errorf("its type is %s", sandboxmcp.Quote(d.Type))
}

// parseSimpleJSON reads the files of a page. Those whose description is far too long are left out.
func parseSimpleJSON(body []byte, fn func(simpleFile) error) error {
	var meta struct {
		Version string `json:"api-version"`
	}
	var files []byte
	err := eachPart(body, func(p part) error {
		switch p.name {
		case "meta":
			return json.Unmarshal(p.raw, &meta)
		case "files":
			files = bytes.Clone(p.raw)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !strings.HasPrefix(meta.Version, "1.") {
		return fmt.Errorf("version %s of the simple API is not known", sandboxmcp.Quote(meta.Version))
	}
	if files == nil {
		return nil
	}
	return eachPart(files, func(p part) error {
		if len(p.raw) > maxFileRow {
			return nil
		}
		var f simpleFile
		if err := json.Unmarshal(p.raw, &f); err != nil {
			return err
		}
		return fn(f)
	})
}

// parseSimpleHTML reads the links of a page. As in HTML, only the first base counts: each one is
// relative to the page.
func parseSimpleHTML(d document, fn func(simpleFile) error) error {
	page, err := url.Parse(d.URL)
	if err != nil {
		return err
	}
	base, links, based := page, 0, false
	z := nethtml.NewTokenizer(bytes.NewReader(d.body))
	z.SetMaxBuf(1 << 20)
	for {
		kind := z.Next()
		if kind == nethtml.ErrorToken {
			if errors.Is(z.Err(), io.EOF) {
				return nil
			}
			return z.Err()
		}
		if kind != nethtml.StartTagToken && kind != nethtml.SelfClosingTagToken {
			continue
		}
		t := z.Token()
		if href := attribute(t, "href"); t.Data == "base" && !based && len(href) <= maxURL {
			if b, err := page.Parse(href); err == nil {
				base, based = b, true
			}
		}
		if t.Data != "a" {
			continue
		}
		if links++; links > maxMembers {
			return errMembers
		}
		if f, ok := linkFile(base, t); ok {
			if err := fn(f); err != nil {
				return err
			}
		}
	}
}

func attribute(t nethtml.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func linkFile(base *url.URL, t nethtml.Token) (simpleFile, bool) {
	href := strings.TrimSpace(attribute(t, "href"))
	if len(href) > maxURL {
		return simpleFile{}, false
	}
	u, err := base.Parse(href)
	if err != nil {
		return simpleFile{}, false
	}
	f := simpleFile{Filename: path.Base(u.Path), URL: u.String(), Hashes: map[string]string{}, Uploaded: attribute(t, "data-upload-time")}
	if kind, sum, ok := strings.Cut(u.Fragment, "="); ok {
		f.Hashes[kind] = sum
	}
	for _, a := range t.Attr {
		switch a.Key {
		case "data-requires-python":
			f.Requires = &a.Val
		case "data-yanked":
			f.Yanked = or(a.Val, "yes")
		case "data-core-metadata", "data-dist-info-metadata":
			if kind, sum, ok := strings.Cut(a.Val, "="); ok && kind == "sha256" {
				f.Core = map[string]any{"sha256": sum}
			} else if a.Val == "true" {
				f.Core = true
			}
		}
	}
	return f, true
}

// listDirectory adds the wheels of a directory that pip's find-links names.
func (g *Gateway) listDirectory(pr *project, name, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		w, err := environment.ParseWheel(e.Name())
		if err != nil || w.Name != name || len(pr.files) >= maxListed {
			continue
		}
		full := filepath.Join(dir, e.Name())
		sum, when, err := hashLocal(full)
		if err != nil {
			continue
		}
		uploaded := when.UTC().Format(time.RFC3339)
		if g.tooYoung(uploaded) {
			g.reject(name, w.Version, g.youngReason(uploaded), g.direct(name))
			continue
		}
		pr.files = append(pr.files, listedFile{
			file:   file{pkg: name, version: w.Version, name: e.Name(), digest: digest{"sha256", sum}, url: &url.URL{Scheme: "file", Host: "find-links"}, local: full},
			simple: simpleFile{Filename: e.Name(), Uploaded: uploaded},
		})
	}
}

func hashLocal(name string) (sum string, when time.Time, err error) {
	f, err := plainfile.Open(name)
	if err != nil {
		return "", when, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", when, err
	}
	s := newSums(digest{})
	if _, err := io.Copy(s, io.LimitReader(f, maxFile)); err != nil {
		return "", when, err
	}
	return s.sum256(), info.ModTime(), nil
}

// servePython answers a request of pip: /simple/NAME/, /files/SHA256/NAME and the latter with
// .metadata.
func (g *Gateway) servePython(w http.ResponseWriter, r *http.Request) error {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "simple" && isName(sandboxmcp.Python, parts[1]):
		name := environment.Normal(parts[1])
		pr, err := g.project(name)
		if err != nil {
			return err
		}
		return writeSimple(w, r, name, pr)
	case len(parts) == 3 && parts[0] == "files" && isSHA256(parts[1]):
		name, metadata := strings.CutSuffix(parts[2], ".metadata")
		wheel, err := environment.ParseWheel(name)
		if err != nil {
			return errNotListed
		}
		f, _, err := g.findWheel(wheel.Name, name, parts[1])
		if err != nil {
			return err
		}
		if metadata {
			return g.serveMetadata(w, f)
		}
		return g.serveFile(w, r, f.file)
	}
	return errNotListed
}

// findWheel returns a wheel that the gateway offers.
func (g *Gateway) findWheel(pkg, name, sum string) (listedFile, *project, error) {
	pr, err := g.project(pkg)
	if err != nil {
		return listedFile{}, nil, err
	}
	for _, f := range pr.files {
		if f.name == name && f.digest.hex == sum {
			return f, pr, nil
		}
	}
	return listedFile{}, nil, errNotListed
}

// writeSimple writes a page of the simple API. Links lead to the gateway. The old name of
// core-metadata is left out: pip 22.3 to 23.1 know only that name and fail on its JSON form.
func writeSimple(w http.ResponseWriter, r *http.Request, name string, pr *project) error {
	files := make([]simpleFile, 0, len(pr.files))
	for _, f := range pr.files {
		s := simpleFile{
			Filename: f.name, URL: "../../files/" + f.digest.hex + "/" + url.PathEscape(f.name), Hashes: map[string]string{"sha256": f.digest.hex},
			Requires: f.simple.Requires, Yanked: f.simple.Yanked, Core: true, Uploaded: f.simple.Uploaded,
		}
		if isSHA256(f.core) {
			s.Core = map[string]string{"sha256": f.core}
		}
		files = append(files, s)
	}
	if strings.Contains(r.Header.Get("Accept"), simpleJSON) {
		w.Header().Set("Content-Type", simpleJSON)
		return json.NewEncoder(w).Encode(map[string]any{"meta": map[string]string{"api-version": "1.0"}, "name": name, "files": files})
	}
	var page strings.Builder
	page.WriteString("<!DOCTYPE html><html><body>\n")
	for _, f := range files {
		page.WriteString(`<a href="` + html.EscapeString(f.URL) + "#sha256=" + f.Hashes["sha256"] + `"`)
		if f.Requires != nil {
			page.WriteString(` data-requires-python="` + html.EscapeString(*f.Requires) + `"`)
		}
		if why, ok := f.Yanked.(string); ok {
			page.WriteString(` data-yanked="` + html.EscapeString(why) + `"`)
		}
		page.WriteString(">" + html.EscapeString(f.Filename) + "</a><br>\n")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err := io.WriteString(w, page.String()+"</body></html>\n")
	return err
}

// serveMetadata serves the metadata of a wheel: as the index gives it, or out of the wheel.
// Install compares it with the wheel that it unpacks, by name and version.
func (g *Gateway) serveMetadata(w http.ResponseWriter, f listedFile) error {
	data, err := g.metadata(g.ctx, f)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, err = w.Write(data)
	return err
}

func (g *Gateway) metadata(ctx context.Context, f listedFile) ([]byte, error) {
	if f.metadata && isSHA256(f.core) {
		return g.fetchMetadata(ctx, f)
	}
	b, err := g.fetchBlob(ctx, f.file)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	z, err := openZip(b)
	if err != nil {
		return nil, g.unfit(f.file, "it is no wheel")
	}
	for _, e := range z.File {
		if dir, base := path.Split(e.Name); base == "METADATA" && strings.HasSuffix(dir, ".dist-info/") && strings.Count(dir, "/") == 1 {
			part, err := e.Open()
			if err != nil {
				return nil, g.unfit(f.file, "its metadata cannot be read")
			}
			defer part.Close()
			data, err := io.ReadAll(io.LimitReader(part, maxMetadata+1))
			if err != nil || len(data) > maxMetadata {
				return nil, g.unfit(f.file, "its metadata cannot be read")
			}
			return data, nil
		}
	}
	return nil, g.unfit(f.file, "it has no metadata")
}

func (g *Gateway) fetchMetadata(ctx context.Context, f listedFile) ([]byte, error) {
	u := *f.url
	u.Path += ".metadata"
	u.RawPath = ""
	release, err := g.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	path := filepath.Join(g.p.cfg.Dir, blobsDir, "metadata-"+f.core)
	if kept, e := plainfile.Read(path, maxMetadata); e == nil && sum(kept) == f.core {
		return kept, nil
	}
	res, err := g.net.get(ctx, &u, http.Header{})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, statusError(&u, res.StatusCode)
	}
	data, err := readAll(&u, res.Body, maxMetadata)
	if err != nil {
		return nil, err
	}
	if sum(data) != f.core {
		return nil, g.hashMismatch(f.file)
	}
	if err := g.p.writeFile(path, data); err != nil {
		return nil, broken(err)
	}
	return data, nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
