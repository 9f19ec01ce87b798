package packages

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// seedWheel makes a small wheel of one 1.0.
func seedWheel(f *testing.F, names ...string) []byte {
	f.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	var record strings.Builder
	add := func(name, text string) {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			f.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
	}
	add("one-1.0.dist-info/METADATA", "Name: one\nVersion: 1.0\n")
	for _, name := range names {
		add(name, name)
	}
	add("one-1.0.dist-info/RECORD", record.String()+"one-1.0.dist-info/RECORD,,\n")
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// seedTar makes a small archive of one 1.0, not compressed.
func seedTar(f *testing.F, kind byte, names ...string) []byte {
	f.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	about := `{"name":"one","version":"1.0.0"}`
	headers := []tar.Header{{Name: "package/package.json", Typeflag: tar.TypeReg, Size: int64(len(about)), Mode: 0o644}}
	for _, name := range names {
		headers = append(headers, tar.Header{Name: name, Typeflag: kind, Linkname: "/etc/passwd"})
	}
	for i := range headers {
		if err := w.WriteHeader(&headers[i]); err != nil {
			f.Fatal(err)
		}
		if i == 0 {
			if _, err := w.Write([]byte(about)); err != nil {
				f.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return out.Bytes()
}

// FuzzUnpack: whatever an archive contains, it makes regular files below its directory and
// nothing else, or is refused with a reason.
func FuzzUnpack(f *testing.F) {
	f.Add(true, seedWheel(f, "one.py", "one/two.py"))
	f.Add(true, seedWheel(f, "../evil", "/evil", `..\evil`))
	f.Add(true, seedWheel(f, "one-1.0.data/purelib/x.py", "x.pth", "a", "a/b"))
	f.Add(false, seedTar(f, tar.TypeReg, "package/a", "package/b/c", "x/d"))
	f.Add(false, seedTar(f, tar.TypeReg, "../evil", "/evil", "package/../../evil"))
	f.Add(false, seedTar(f, tar.TypeSymlink, "package/a", "package/a/b"))
	f.Fuzz(func(t *testing.T, wheel bool, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "root")
		if !wheel {
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			if _, err := w.Write(data); err != nil || w.Close() != nil {
				t.Fatal(err)
			}
			data = zipped.Bytes()
		}
		archive := filepath.Join(outer, "archive")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(archive, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		file, err := os.Open(archive)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		u := &unpacker{root: root, made: map[string]bool{}, owner: map[string]string{}}
		defer u.close()
		b := &blob{File: file, size: int64(len(data))}
		p := pin{file: fileOf("one", "1.0"), path: "node_modules/one"}
		if wheel {
			err = u.wheel(b, p, &Installed{})
		} else {
			p.version = "1.0.0"
			err = u.npm(b, p, &Installed{})
		}
		if _, refused := errors.AsType[*unfitError](err); err != nil && !refused {
			t.Errorf("got %v, want a reason", err)
		}
		err = filepath.WalkDir(outer, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (!d.Type().IsRegular() || path != archive && !strings.HasPrefix(path, dir+"/")) {
				t.Errorf("%s was made", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func fileOf(name, version string) file { return file{pkg: name, version: version} }
