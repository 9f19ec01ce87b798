package packages

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"hash"
	"io"
	"net/textproto"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// startup matches files that Python runs at the start of every program if their directory is
// on its path. Debian's sitecustomize imports apport_python_hook, and the .pth files of setuptools
// and of virtualenv import _distutils_hack and _virtualenv.
var startup = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:[^/]*\.pth|(?:sitecustomize|usercustomize|apport_python_hook|_distutils_hack|_virtualenv)(?:[./].*)?)$`)
})

// atStart reports whether a file of a package would run at the start of every program.
func atStart(pkg, name string) bool {
	return startup().MatchString(name) && !(pkg == "setuptools" && strings.HasPrefix(name, "_distutils_hack/"))
}

// wheel unpacks a wheel: its modules, and its metadata, each file as the RECORD says. Programs,
// headers and data files are left out, and so is what would run at the start of Python.
func (u *unpacker) wheel(b *blob, p pin, one *Installed) error {
	z, err := openZip(b)
	if errors.Is(err, errDirectory) {
		return unfit("%s", errDirectory)
	}
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return unfit("it is no wheel")
	}
	if len(z.File) > maxEntries {
		return unfit("it has %d files", len(z.File))
	}
	bd := &budget{packed: b.size, names: map[string]string{}}
	info := ""
	for _, e := range z.File {
		name := strings.TrimSuffix(e.Name, "/")
		if err := checkName(name); err != nil {
			return err
		}
		dir := strings.HasSuffix(e.Name, "/")
		if m := e.Mode(); m.Type() != 0 && !(dir && m.IsDir()) {
			return unfit("its file %s is a link or no regular file", sandboxmcp.Quote(name))
		}
		if dir {
			continue
		}
		if err := bd.claim(name); err != nil {
			return err
		}
		if top := infoOf(placeOf(name), ".dist-info"); top != "" {
			if info != "" && info != top {
				return unfit("it has two .dist-info directories")
			}
			info = top
		}
	}
	w := &wheelReader{unpacker: u, zip: z, budget: bd, pin: p, info: info}
	if err := w.readInfo(one); err != nil {
		return err
	}
	if err := w.readRecord(); err != nil {
		return err
	}
	return w.unpack()
}

// infoOf returns the first part of a path if Python's importlib.metadata takes it for metadata of
// the kind, and else "". It takes the package's name from the part before the first "-", whatever
// the case of the kind is.
func infoOf(name, kind string) string {
	first, _, _ := strings.Cut(name, "/")
	if strings.HasSuffix(strings.ToLower(first), kind) {
		return first
	}
	return ""
}

// placeOf returns the path that a file of a wheel gets in a tree, and "" if it gets none.
func placeOf(name string) string {
	dir, rest, ok := strings.Cut(name, "/")
	if !ok || !strings.HasSuffix(dir, ".data") {
		return name
	}
	kind, file, _ := strings.Cut(rest, "/")
	if kind != "purelib" && kind != "platlib" {
		return ""
	}
	return file
}

type wheelReader struct {
	*unpacker

	zip    *zip.Reader
	budget *budget
	pin    pin
	info   string // name of the .dist-info directory
	record map[string]recordLine
}

type recordLine struct {
	algorithm, sum string
}

// read reads a small file of the .dist-info directory.
func (w *wheelReader) read(name string, limit int64) ([]byte, error) {
	for _, e := range w.zip.File {
		if e.Name != w.info+"/"+name {
			continue
		}
		f, err := e.Open()
		if err != nil {
			return nil, unfit("its archive is damaged")
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, limit+1))
		if err != nil || int64(len(data)) > limit {
			return nil, unfit("its %s cannot be read", name)
		}
		return data, nil
	}
	return nil, unfit("it has no %s", name)
}

// readInfo compares the metadata with the file name and the index.
func (w *wheelReader) readInfo(one *Installed) error {
	data, err := w.read("METADATA", maxMetadata)
	if err != nil {
		return err
	}
	if w.pin.core != "" && sum(data) != w.pin.core {
		return unfit("its metadata is not what the index says")
	}
	head, err := textproto.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(data), strings.NewReader("\n\n")))).ReadMIMEHeader()
	if err != nil && len(head) == 0 {
		return unfit("its metadata cannot be read")
	}
	if environment.Normal(head.Get("Name")) != w.pin.pkg || !sameVersion(head.Get("Version"), w.pin.version) {
		return unfit("its metadata is that of %s %s", clean(head.Get("Name")), clean(head.Get("Version")))
	}
	if name, _, _ := strings.Cut(w.info, "-"); environment.Normal(name) != w.pin.pkg {
		return unfit("its metadata is in %s, which is not that of %s", sandboxmcp.Quote(w.info), w.pin.pkg)
	}
	one.License = licenseOf(head)
	return nil
}

// licenseOf returns the license that metadata names. A field with the whole text of a license
// does not count.
func licenseOf(head textproto.MIMEHeader) string {
	if e := head.Get("License-Expression"); e != "" {
		return textField(e)
	}
	const most = 60
	if l := head.Get("License"); l != "" && len(l) <= most && !strings.EqualFold(l, "unknown") {
		return textField(l)
	}
	for _, c := range head["Classifier"] {
		if rest, ok := strings.CutPrefix(c, "License :: "); ok {
			parts := strings.Split(rest, " :: ")
			return textField(parts[len(parts)-1])
		}
	}
	return ""
}

// sameVersion compares versions as a file name and metadata write them.
func sameVersion(a, b string) bool {
	flat := strings.NewReplacer("-", ".", "_", ".", "+", ".")
	return strings.EqualFold(flat.Replace(strings.TrimSpace(a)), flat.Replace(b))
}

func (w *wheelReader) readRecord() error {
	data, err := w.read("RECORD", 32<<20)
	if err != nil {
		return err
	}
	if bytes.Count(data, []byte{','})+bytes.Count(data, []byte{'\n'}) > 4*maxEntries { // each field takes many times its bytes
		return unfit("its RECORD is too long")
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord, r.ReuseRecord, r.LazyQuotes = -1, true, true
	w.record = map[string]recordLine{}
	for {
		line, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || len(line) < 2 {
			return unfit("its RECORD cannot be read")
		}
		kind, sum, _ := strings.Cut(line[1], "=")
		w.record[strings.ReplaceAll(line[0], `\`, "/")] = recordLine{kind, strings.TrimRight(sum, "=")}
	}
}

func (w *wheelReader) unpack() error {
	signed := map[string]bool{w.info + "/RECORD": true, w.info + "/RECORD.jws": true, w.info + "/RECORD.p7s": true}
	for _, e := range w.zip.File {
		if strings.HasSuffix(e.Name, "/") {
			continue
		}
		f, err := e.Open()
		if err != nil {
			return unfit("its file %s cannot be unpacked", sandboxmcp.Quote(e.Name))
		}
		line, listed := w.record[e.Name]
		delete(w.record, e.Name)
		var h hash.Hash
		switch {
		case signed[e.Name]:
		case !listed || line.sum == "":
			err = unfit("its RECORD has no hash of %s", sandboxmcp.Quote(e.Name))
		case line.algorithm == "sha256":
			h = sha256.New()
		case line.algorithm == "sha384":
			h = sha512.New384()
		case line.algorithm == "sha512":
			h = sha512.New()
		default:
			err = unfit("its RECORD has a hash of the kind %s", sandboxmcp.Quote(line.algorithm))
		}
		if err == nil {
			var r io.Reader = f
			if h != nil {
				r = io.TeeReader(f, h)
			}
			err = w.place(e, r)
		}
		if err == nil && h != nil && base64.RawURLEncoding.EncodeToString(h.Sum(nil)) != line.sum {
			err = unfit("its file %s has not the hash that its RECORD gives", sandboxmcp.Quote(e.Name))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for name := range w.record {
		if !signed[name] && !strings.HasSuffix(name, "/") {
			return unfit("its RECORD names %s, which is not in it", sandboxmcp.Quote(name))
		}
	}
	return nil
}

// place writes a file to its place, or only reads it if it has none.
func (w *wheelReader) place(e *zip.File, r io.Reader) error {
	name := placeOf(e.Name)
	if name == "" {
		return w.copy(w.budget, io.Discard, r)
	}
	if name != e.Name {
		if err := w.budget.claim(name); err != nil {
			return err
		}
	}
	if infoOf(name, ".egg-info") != "" {
		w.warn("%s of %s is left out: it would be metadata of another package", clean(name), w.pin.pkg)
		return w.copy(w.budget, io.Discard, r)
	}
	if atStart(w.pin.pkg, name) {
		w.warn("%s of %s is left out: it would run at the start of every program", clean(name), w.pin.pkg)
		return w.copy(w.budget, io.Discard, r)
	}
	if first, _, _ := strings.Cut(name, "/"); ownModule(first) {
		w.warn("%s of %s is left out: Python has a module of this name", clean(name), w.pin.pkg)
		return w.copy(w.budget, io.Discard, r)
	}
	if strings.HasSuffix(path.Dir(name), "__pycache__") { // the hash that it names may be that of another source
		return w.copy(w.budget, io.Discard, r)
	}
	return w.write(w.budget, w.pin.pkg, name, e.Mode(), r)
}
