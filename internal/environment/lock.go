package environment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// A lock is a requirements file of pip with one line per wheel and its hash. A lock from
// the user may have comments and several hashes per package.

// lockFile returns the file name of a set's lock.
func lockFile(name, tag string) string { return name + "-" + tag + ".lock" }

// writeLock returns the text of a lock of the wheels.
func writeLock(name string, b Built, wheels []Wheel) []byte {
	var text strings.Builder
	text.WriteString("# sandboxmcp setup " + name + ", for " + b.Tag + " on " + b.Platform + "\n")
	for _, w := range wheels {
		text.WriteString(w.Name + "==" + w.Version + " --hash=sha256:" + w.SHA256 + "\n")
	}
	return []byte(text.String())
}

var lockHead = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^# sandboxmcp setup \S+, for (\S+) on (\S+)`) })

// madeFor returns the Python.Tag in the first line of a lock, or "".
func madeFor(lock []byte) string {
	if m := lockHead().FindSubmatch(lock); m != nil {
		return string(m[1])
	}
	return ""
}

// pin is one line of a lock.
type pin struct {
	name, version string
	hashes        []string
}

var pinForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._!+]*)((?:\s+--hash=sha256:[0-9a-f]{64})+)$`)
})

// readLock parses a lock. It refuses everything else that a requirements file may have:
// options, URLs, references to files.
func readLock(data []byte) ([]pin, error) {
	text := strings.ReplaceAll(string(data), "\\\r\n", " ")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var pins []pin
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		m := pinForm().FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("line %d, %s, is not NAME==VERSION --hash=sha256:…", i+1, sandboxmcp.Quote(line))
		}
		p := pin{name: Normal(m[1]), version: m[2]}
		for h := range strings.FieldsSeq(m[3]) {
			p.hashes = append(p.hashes, strings.TrimPrefix(h, "--hash=sha256:"))
		}
		if slices.ContainsFunc(pins, func(q pin) bool { return q.name == p.name }) {
			return nil, fmt.Errorf("line %d names %s again", i+1, p.name)
		}
		pins = append(pins, p)
	}
	if len(pins) == 0 {
		return nil, fmt.Errorf("the lock names no package")
	}
	return pins, nil
}

// fits fails if the wheels are not exactly those of the lock, and names a difference.
func fits(wheels []Wheel, pins []pin) error {
	for _, w := range wheels {
		i := slices.IndexFunc(pins, func(p pin) bool { return p.name == w.Name })
		switch {
		case i < 0:
			return fmt.Errorf("%s is not in the lock", w.Name)
		case pins[i].version != w.Version:
			return fmt.Errorf("%s is %s, and the lock has %s", w.Name, w.Version, pins[i].version)
		case !slices.Contains(pins[i].hashes, w.SHA256):
			return fmt.Errorf("%s has the SHA-256 %s, which the lock does not have", w.File, w.SHA256)
		}
	}
	for _, p := range pins {
		if !slices.ContainsFunc(wheels, func(w Wheel) bool { return w.Name == p.name }) {
			return fmt.Errorf("%s of the lock is missing", p.name)
		}
	}
	return nil
}
