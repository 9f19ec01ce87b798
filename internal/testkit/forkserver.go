package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ForkServer returns the text of the fork server of Python, which belongs to
// internal/kernel, and script, which runs in each fork, or from where it calls "wait". It
// returns nil if the working directory is not in the module's source.
func ForkServer(script string) []byte {
	text := forkServer()
	if text == nil {
		return nil
	}
	if !strings.Contains(script, "wait(") {
		script = "globals().pop(\"wait\")()\n" + script
	}
	return append(slices.Clip(text), "\n"+script...)
}

var forkServer = sync.OnceValue(func() []byte {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if text, err := os.ReadFile(filepath.Join(dir, "internal", "kernel", "drivers", "forkserver.py")); err == nil {
			return text
		}
		dir = filepath.Dir(dir)
	}
	return nil
})
