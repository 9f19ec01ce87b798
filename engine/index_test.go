package engine_test

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
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// index is a package index on loopback with the Python packages demo 1.0 and 2.0 (needs part), part
// 1.0 and source (without a wheel), and the Node.js package demo 1.0.0 with an install script. It
// counts requests.
type index struct {
	*httptest.Server
	asked atomic.Int64
	files map[string][]byte
}

func newIndex(t *testing.T) *index {
	t.Helper()
	x := &index{files: map[string][]byte{
		"demo-1.0-py3-none-any.whl": wheel(t, "demo", "1.0", "", "says = 'one'\n"),
		"demo-2.0-py3-none-any.whl": wheel(t, "demo", "2.0", "part", "import part\nsays = 'two, ' + part.says\n"),
		"part-1.0-py3-none-any.whl": wheel(t, "part", "1.0", "", "says = 'part'\n"),
		"source-1.0.tar.gz":         []byte("no wheel"),
		"demo-1.0.0.tgz":            tarball(t),
	}}
	x.Server = httptest.NewServer(http.HandlerFunc(x.serve))
	t.Cleanup(x.Close)
	return x
}

// wheel builds a wheel with one module of the package's name.
func wheel(t *testing.T, name, version, needs, text string) []byte {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	meta := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	if needs != "" {
		meta += "Requires-Dist: " + needs + "\n"
	}
	files := []struct{ name, text string }{
		{name + ".py", text}, {info + "METADATA", meta}, {info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256([]byte(f.text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
	}
	files = append(files, struct{ name, text string }{info + "RECORD", record.String() + info + "RECORD,,\n"})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err == nil {
			_, err = w.Write([]byte(f.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tarball builds the package demo of npm.
func tarball(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for name, text := range map[string]string{
		"package/package.json": `{"name":"demo","version":"1.0.0","main":"index.js","scripts":{"postinstall":"touch /mnt/data/ran"}}`,
		"package/index.js":     "exports.says = 'node one';\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (x *index) serve(w http.ResponseWriter, r *http.Request) {
	x.asked.Add(1)
	where := strings.Trim(r.URL.Path, "/")
	if data, ok := x.files[path.Base(where)]; ok {
		_, _ = w.Write(data)
		return
	}
	var doc any
	if name, ok := strings.CutPrefix(where, "simple/"); ok {
		type file struct {
			Name   string            `json:"filename"`
			URL    string            `json:"url"`
			Hashes map[string]string `json:"hashes"`
		}
		files := []file{}
		for f, data := range x.files {
			if strings.HasPrefix(f, name+"-") && !strings.HasSuffix(f, ".tgz") {
				sum := sha256.Sum256(data)
				files = append(files, file{f, x.URL + "/files/" + f, map[string]string{"sha256": hex.EncodeToString(sum[:])}})
			}
		}
		if len(files) == 0 {
			http.NotFound(w, r)
			return
		}
		doc = map[string]any{"meta": map[string]string{"api-version": "1.0"}, "name": name, "files": files}
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
	} else if where == "npm/demo" {
		sum := sha512.Sum512(x.files["demo-1.0.0.tgz"])
		doc = map[string]any{"name": "demo", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{
			"name": "demo", "version": "1.0.0", "hasInstallScript": true,
			"dist": map[string]string{"tarball": x.URL + "/npm/demo/-/demo-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
		}}}
		w.Header().Set("Content-Type", "application/json")
	} else {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(doc)
}

// open opens an engine whose index it is. Trees are read-only, so it removes them itself.
func (x *index) open(t *testing.T, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return x.openAt(t, filepath.Join(t.TempDir(), "state"), change...)
}

// openAt is open on a state directory.
func (x *index) openAt(t *testing.T, state string, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	t.Cleanup(func() { _ = environment.RemoveTree(packages.Dir(state)) })
	return openReal(t, append(change, at(state), func(c *engine.Config) {
		c.ClientEnv = []string{"PIP_INDEX_URL=" + x.URL + "/simple/", "npm_config_registry=" + x.URL + "/npm/", "HOME=/nonexistent"}
	})...)
}
