package environment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
)

const manifestVersion = 1

// Manifest describes the content of a set. It has no time stamp, so that the same wheels for
// the same interpreter give the same digest.
type Manifest struct {
	Version   int      `json:"version"`
	Name      string   `json:"name"`
	Requested []string `json:"requested"` // the requested packages; the other wheels are their dependencies
	Python    Built    `json:"python"`
	Wheels    []Wheel  `json:"wheels"`
	Files     Files    `json:"files"`
}

// Built describes the interpreter that a set was made for.
type Built struct {
	Tag      string `json:"tag"`      // the kind of interpreter; see [Python.Tag]
	Version  string `json:"version"`  // version of the interpreter that made it, such as "3.11.2"
	ABI      string `json:"abi"`      // such as "cpython-311-x86_64-linux-gnu"
	Platform string `json:"platform"` // such as "linux-x86_64"
}

// Wheel is one package of a set, and the file that was fetched.
type Wheel struct {
	Name    string `json:"name"` // normalized
	Version string `json:"version"`
	File    string `json:"file"`
	SHA256  string `json:"sha256"`
	Bytes   int64  `json:"bytes"`
}

// Files summarizes the installed files, including compiled code.
type Files struct {
	Count  int    `json:"count"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // hash of files.sha256
}

func (m Manifest) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(data, '\n'), nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

var digestForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

func isDigest(s string) bool { return digestForm().MatchString(s) }

// Python is an interpreter.
type Python struct {
	Path    string // absolute path of the binary
	Version string // "3.11" or "3.11.2"
}

// Tag names the kind of interpreter: all interpreters with the same tag can load the same
// compiled modules and share a set. Examples: cp311, cp313t (free-threaded), pp310 (PyPy).
// The interpreter need not be started to know its tag.
func (p Python) Tag() string {
	base, kind, end := path.Base(p.Path), "cp", ""
	if strings.HasPrefix(base, "pypy") {
		kind = "pp"
	}
	if strings.HasSuffix(base, "t") && strings.HasPrefix(base, "python3.") {
		end = "t"
	}
	major, rest, _ := strings.Cut(p.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return kind + major + minor + end
}

var (
	separators = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[-_.]+`) })
	wheelForm  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._]*)-([A-Za-z0-9][A-Za-z0-9._!+]*)(-[0-9][A-Za-z0-9._+]*)?(?:-[A-Za-z0-9._]+){3}\.whl$`)
	})
)

// Normal returns the normalized name of a package, by which names are compared.
func Normal(name string) string { return strings.ToLower(separators().ReplaceAllString(name, "-")) }

// ParseWheel parses the file name of a wheel.
func ParseWheel(file string) (Wheel, error) {
	m := wheelForm().FindStringSubmatch(file)
	if m == nil {
		return Wheel{}, fmt.Errorf("%q is not the name of a wheel", file)
	}
	return Wheel{Name: Normal(m[1]), Version: m[2], File: file}, nil
}
