package environment

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
)

const manifestVersion = 1

// Manifest is what a set is made of. It has no time in it: the same wheels for
// the same interpreter are the same set.
type Manifest struct {
	Version   int      `json:"version"`
	Name      string   `json:"name"`
	Requested []string `json:"requested"` // the packages that were asked for; the others are theirs
	Python    Built    `json:"python"`
	Wheels    []Wheel  `json:"wheels"`
	Files     Files    `json:"files"`
}

// Built tells what a set was made for.
type Built struct {
	Tag      string `json:"tag"`      // the kind of interpreter; see [Python.Tag]
	Version  string `json:"version"`  // of the one that made it, such as "3.11.2"
	ABI      string `json:"abi"`      // such as "cpython-311-x86_64-linux-gnu"
	Platform string `json:"platform"` // such as "linux-x86_64"
}

// Wheel is one package of a set, and what was fetched of it.
type Wheel struct {
	Name    string `json:"name"` // normalized
	Version string `json:"version"`
	File    string `json:"file"`
	SHA256  string `json:"sha256"`
	Bytes   int64  `json:"bytes"`
}

// Files is what was installed, compiled code included.
type Files struct {
	Count  int    `json:"count"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of files.sha256
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

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func isDigest(s string) bool { return digestForm.MatchString(s) }

// Python is an interpreter that sets are looked up for.
type Python struct {
	Path    string // the real binary
	Version string // "3.11" or "3.11.2"
}

// Tag names the kind of interpreter that one set serves: all that can load the
// same compiled modules. It is known without starting the interpreter: cp311, cp313t
// without the global lock, pp310 for PyPy.
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
	separators = regexp.MustCompile(`[-_.]+`)
	wheelForm  = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._]*)-([A-Za-z0-9][A-Za-z0-9._!+]*)(-[0-9][^-/]*)?-[^-/]+-[^-/]+-[^-/]+\.whl$`)
)

// normal is the form of a package's name by which it is compared.
func normal(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// parseWheel reads a wheel's file name.
func parseWheel(file string) (Wheel, error) {
	m := wheelForm.FindStringSubmatch(file)
	if m == nil {
		return Wheel{}, fmt.Errorf("%q is not the name of a wheel", file)
	}
	return Wheel{Name: normal(m[1]), Version: m[2], File: file}, nil
}
