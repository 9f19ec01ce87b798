package packages_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// entry is a file of an archive that a test makes.
type entry struct {
	name, text string
	mode       fs.FileMode
	link       string // tar: the target of a link
	kind       byte   // tar: the type; 0: a regular file
}

// zipOf makes a zip archive.
func zipOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode | 0o644)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(e.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// recordOf makes the RECORD of files.
func recordOf(info string, entries ...entry) entry {
	var text strings.Builder
	for _, e := range entries {
		sum := sha256.Sum256([]byte(e.text))
		fmt.Fprintf(&text, "%q,sha256=%s,%d\n", e.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.text))
	}
	return entry{name: info + "/RECORD", text: text.String() + info + "/RECORD,,\n"}
}

// wheelOf makes a wheel with a right RECORD.
func wheelOf(t *testing.T, name, version string, files ...entry) []byte {
	t.Helper()
	info := name + "-" + version + ".dist-info"
	all := append([]entry{
		{name: info + "/METADATA", text: "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\nLicense: MIT\n\nText\n"},
		{name: info + "/WHEEL", text: "Wheel-Version: 1.0\nTag: py3-none-any\n"},
	}, files...)
	return zipOf(t, append(all, recordOf(info, all...))...)
}

// tgzOf makes a tarball of npm.
func tgzOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Size: int64(len(e.text)), Mode: int64(e.mode | 0o644), Linkname: e.link}
		if e.kind != 0 {
			h.Typeflag, h.Size = e.kind, 0
		}
		err := w.WriteHeader(h)
		if err == nil && e.kind == 0 {
			_, err = w.Write([]byte(e.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// npmOf makes a tarball with a package.json.
func npmOf(t *testing.T, name, version, fields string, files ...entry) []byte {
	t.Helper()
	about := entry{name: "package/package.json", text: fmt.Sprintf(`{"name":%q,"version":%q,"license":"MIT"%s}`, name, version, fields)}
	return tgzOf(t, append([]entry{about}, files...)...)
}

func hash256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func integrity(b []byte) string {
	s := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(s[:])
}

// published is a file of a test's index.
type published struct {
	file, version string
	data          []byte
	fields        map[string]any // replaces fields of the document
	uploaded      time.Time
}

// testIndex is a package index on loopback, for both languages.
type testIndex struct {
	*httptest.Server

	mu    sync.Mutex
	files map[string][]published
	hits  []string // paths that were requested
	auth  []string // Authorization headers
	pages map[string]http.HandlerFunc
	html  bool
}

func newIndex(t *testing.T) *testIndex {
	t.Helper()
	x := &testIndex{files: map[string][]published{}, pages: map[string]http.HandlerFunc{}}
	x.Server = httptest.NewServer(x)
	t.Cleanup(x.Close)
	return x
}

func (x *testIndex) wheel(t *testing.T, name, version string, files ...entry) {
	t.Helper()
	x.add(name, published{file: name + "-" + version + "-py3-none-any.whl", version: version, data: wheelOf(t, name, version, files...)})
}

func (x *testIndex) npm(t *testing.T, name, version, fields string, files ...entry) {
	t.Helper()
	x.add(name, published{version: version, data: npmOf(t, name, version, fields, files...)})
}

func (x *testIndex) add(name string, f published) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.file == "" {
		f.file = name[strings.LastIndex(name, "/")+1:] + "-" + f.version + ".tgz"
	}
	x.files[name] = append(x.files[name], f)
}

// requests returns how many requests came for paths with a prefix.
func (x *testIndex) requests(prefix string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, h := range x.hits {
		if strings.HasPrefix(h, prefix) {
			n++
		}
	}
	return n
}

func (x *testIndex) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.hits, x.auth = append(x.hits, r.URL.Path), append(x.auth, r.Header.Get("Authorization"))
	page := x.pages[r.URL.Path]
	x.mu.Unlock()
	name, isPython := strings.CutPrefix(r.URL.Path, "/simple/")
	x.mu.Lock()
	files := x.files[strings.Trim(name, "/")]
	x.mu.Unlock()
	switch {
	case page != nil:
		page(w, r)
	case strings.HasPrefix(r.URL.Path, "/blob/"):
		x.blob(w, strings.TrimPrefix(r.URL.Path, "/blob/"))
	case files == nil:
		http.NotFound(w, r)
	case isPython:
		x.simple(w, r, files)
	default:
		x.npmDocument(w, strings.Trim(name, "/"), files)
	}
}

func (x *testIndex) blob(w http.ResponseWriter, sum string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, files := range x.files {
		for _, f := range files {
			if strings.HasPrefix(sum, hash256(f.data)+"/") {
				_, _ = w.Write(f.data)
				return
			}
		}
	}
	http.Error(w, "no such file", http.StatusNotFound)
}

func (x *testIndex) simple(w http.ResponseWriter, r *http.Request, files []published) {
	var list []map[string]any
	page := "<!DOCTYPE html><title>x</title>"
	for _, f := range files {
		one := map[string]any{"filename": f.file, "url": "/blob/" + hash256(f.data) + "/" + f.file, "hashes": map[string]string{"sha256": hash256(f.data)}}
		if !f.uploaded.IsZero() {
			one["upload-time"] = f.uploaded.UTC().Format(time.RFC3339)
		}
		maps.Copy(one, f.fields)
		list = append(list, one)
		page += fmt.Sprintf("<a href=\"..%s#sha256=%s\" data-requires-python=\"&gt;=3.8\">x</a>\n", "/../"+strings.TrimPrefix(one["url"].(string), "/"), hash256(f.data))
	}
	body, _ := json.Marshal(map[string]any{"meta": map[string]string{"api-version": "1.1"}, "name": "x", "files": list})
	etag := `"` + hash256(body) + `"`
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if x.html {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
		return
	}
	w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
	_, _ = w.Write(body)
}

func (x *testIndex) npmDocument(w http.ResponseWriter, name string, files []published) {
	versions, times := map[string]any{}, map[string]string{}
	latest := ""
	for _, f := range files {
		v := map[string]any{"name": name, "version": f.version, "dist": map[string]any{"tarball": x.URL + "/blob/" + hash256(f.data) + "/" + f.file, "integrity": integrity(f.data)}}
		maps.Copy(v, f.fields)
		versions[f.version], latest = v, f.version
		if !f.uploaded.IsZero() {
			times[f.version] = f.uploaded.UTC().Format(time.RFC3339)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": latest}, "versions": versions, "time": times})
}

// config returns a configuration that asks the index alone.
func (x *testIndex) config(t *testing.T) packages.Config {
	t.Helper()
	return packages.Config{
		Dir: filepath.Join(t.TempDir(), "packages"), Version: "test",
		Env: []string{"PIP_CONFIG_FILE=/dev/null", "PIP_INDEX_URL=" + x.URL + "/simple", "npm_config_globalconfig=/dev/null", "npm_config_userconfig=/dev/null", "npm_config_registry=" + x.URL + "/"},
	}
}

func parse(t *testing.T, lang sandboxmcp.Language, specs ...string) packages.Order {
	t.Helper()
	parsed, err := packages.Parse(lang, specs)
	if err != nil {
		t.Fatal(err)
	}
	runtime := "cp311"
	if lang == sandboxmcp.Node {
		runtime = "node24"
	}
	return packages.Order{Target: packages.Target{Language: lang, Runtime: runtime, Platform: "linux-x64-glibc"}, Specs: parsed}
}

// opened opens a gateway for a test.
func opened(t *testing.T, p *packages.Packages, o packages.Order) *packages.Gateway {
	t.Helper()
	g, err := p.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// asks sends a request of a resolver to a gateway.
func asks(t *testing.T, g *packages.Gateway, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:312"+path, nil)
	r.Header.Set("Accept", "application/vnd.pypi.simple.v1+json")
	g.ServeHTTP(w, r)
	return w
}

// report plays pip: it takes the last file that the gateway lists of each name.
func report(t *testing.T, g *packages.Gateway, names ...string) []byte {
	t.Helper()
	var install []any
	for _, name := range names {
		w := asks(t, g, "/simple/"+name+"/")
		var page struct {
			Files []struct {
				Filename, URL string
			} `json:"files"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Files) == 0 {
			install = append(install, map[string]any{"download_info": map[string]any{"url": "http://127.0.0.1/files/" + strings.Repeat("0", 64) + "/" + name + "-1.0-py3-none-any.whl"}})
			continue
		}
		install = append(install, map[string]any{"download_info": map[string]any{"url": "http://127.0.0.1:312/simple/x/" + page.Files[len(page.Files)-1].URL}})
	}
	out, _ := json.Marshal(map[string]any{"version": "1", "install": install})
	return out
}

// lock makes npm's lock: path and version in turn.
func lock(t *testing.T, fields ...string) []byte {
	t.Helper()
	entries := map[string]any{"": map[string]string{"name": "sandbox"}}
	for pair := range slices.Chunk(fields, 2) {
		var e map[string]any
		if err := json.Unmarshal([]byte(pair[1]), &e); err != nil {
			t.Fatal(err)
		}
		entries[pair[0]] = e
	}
	out, _ := json.Marshal(map[string]any{"lockfileVersion": 3, "packages": entries})
	return out
}

// listing returns the files below a directory with their texts, and fails on anything else and
// on anything that can be written.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&0o222 != 0 || !d.IsDir() && !d.Type().IsRegular() {
			t.Errorf("%s has the mode %s, want read-only and regular", p, info.Mode())
		}
		if d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		all[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// cleaned removes read-only trees at the end, which t.TempDir cannot.
func cleaned(t *testing.T, c packages.Config) packages.Config {
	t.Helper()
	t.Cleanup(func() { _ = environment.RemoveTree(c.Dir) })
	return c
}

// wantCode fails unless err has a code, and a text contains a part.
func wantCode(t *testing.T, err error, code sandboxmcp.Code, part string) {
	t.Helper()
	if sandboxmcp.CodeOf(err) != code {
		t.Fatalf("got %v, want the code %s", err, code)
	}
	e := sandboxmcp.AsError(err)
	if text := e.Message + " " + e.Hint + fmt.Sprint(e.Fields["rejected"]); !strings.Contains(text, part) {
		t.Errorf("got %q, want %q in it", text, part)
	}
}
