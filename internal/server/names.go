package server

import (
	"encoding/base64"
	"path"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// workDir is the working directory of programs in the sandbox.
const workDir = "/mnt/data"

const (
	maxName = 255  // bytes of a file's name
	maxPath = 4096 // bytes of a path
)

// checkName checks that the name of an upload has no directories and only allowed characters.
func checkName(name string) error {
	switch {
	case name == "":
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidFilename, "filename is empty")
	case len(name) > maxName:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidFilename, "filename has %d bytes, more than %d", len(name), maxName)
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0 {
			continue
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidFilename, "filename %s has characters other than A-Z a-z 0-9 . _ -", sandboxmcp.Quote(name))
	}
	if name == "." || strings.Contains(name, "..") {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "filename %s may lead out of the directory", sandboxmcp.Quote(name)).
			WithHint("use a name without ..")
	}
	return nil
}

// cleanPath returns the path of a file below /mnt/data without redundant parts. It refuses
// every path with a part "..".
func cleanPath(p string) (string, error) {
	refused := func(why string) (string, error) {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "path %s %s", sandboxmcp.Quote(p), why)
	}
	switch {
	case !strings.HasPrefix(p, "/"):
		return refused("is not absolute")
	case strings.HasPrefix(p, "//"):
		return refused("begins with //")
	case len(p) > maxPath:
		return refused("is too long")
	case strings.IndexByte(p, 0) >= 0:
		return refused("has a NUL byte")
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "..":
			return refused("has a part ..")
		case len(part) > maxName:
			return refused("has a part that is too long")
		}
	}
	clean := path.Clean(p)
	if !strings.HasPrefix(clean, workDir+"/") {
		return refused("is not below " + workDir)
	}
	return clean, nil
}

// decodeStrict decodes standard base64 with padding. It refuses line ends, other alphabets
// and nonzero trailing bits.
func decodeStrict(text string) ([]byte, error) {
	bad := sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "content_base64 is not standard base64 with padding")
	if strings.ContainsAny(text, "\r\n") { // the decoder would skip them
		return nil, bad
	}
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, bad
	}
	return data, nil
}
