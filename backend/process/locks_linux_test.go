package process_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// TestLocksOfWholeFilesAreCounted: the process that /proc/locks names may have ended, and equal locks have equal lines.
func TestLocksOfWholeFilesAreCounted(t *testing.T) {
	b := newBackend(func(*process.Config) {})(t)
	defer func() { _ = b.Close(t.Context()) }()
	for _, how := range []string{"equal", "ended", "device", "waited", "mapped", "mapped elsewhere", "mapped elsewhere headless", "sent"} {
		t.Run(how, func(t *testing.T) {
			sb, err := b.Open(t.Context(), spec("locks-"+strings.ReplaceAll(how, " ", "-")))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			runHolder(t, sb, "holds-locks-of-whole-files.py", how, true)
		})
	}
}

// TestDirectoriesBeingSentAreCounted: a call that waits to send files keeps them open.
func TestDirectoriesBeingSentAreCounted(t *testing.T) {
	b := newBackend(func(*process.Config) {})(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb, err := b.Open(t.Context(), spec("directories-sent"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	runHolder(t, sb, "holds-directories-being-sent.py", "", true)
}
