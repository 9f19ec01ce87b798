package packages

import (
	"runtime"
	"strings"
	"testing"
)

// TestDocumentsAreReadInParts: what a resolver has chosen, and what a package says of itself, is not
// decoded as a whole. Small values take many times the bytes of their JSON.
func TestDocumentsAreReadInParts(t *testing.T) {
	const size = 4 << 20
	var (
		g     = &Gateway{}
		empty = strings.Repeat(`{},`, size/3) + `{}`
	)
	for what, read := range map[string]func() error{
		"a report of pip": func() error {
			_, err := g.readReport([]byte(`{"version":"1","install":[` + empty + `]}`))
			return err
		},
		"a lock of npm": func() error {
			_, err := g.readLock([]byte(`{"lockfileVersion":3,"packages":{"node_modules/x":{"os":[` + strings.Repeat(`"",`, size/3) + `""]}}}`))
			return err
		},
		"scripts of a package": func() error {
			var one Installed
			err := (&unpacker{}).about([]byte(`{"name":"x","version":"1.0.0","scripts":{"a":[`+empty+`],"install":"b"}}`), &budget{names: map[string]string{}}, pin{file: file{pkg: "x", version: "1.0.0"}}, &one)
			if err != nil || !one.Script {
				t.Errorf("scripts of a package: got %v, %v; want that it has an install script", one.Script, err)
			}
			return unfit("done")
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err == nil || got > 24*size {
			t.Errorf("%s of %d MiB: got %v, and %d MiB were allocated; want an error, and less than %d", what, size>>20, err, got>>20, 24*size>>20)
		}
	}
}
