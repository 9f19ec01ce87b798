package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestSessionEntriesListDirectoriesAndFollowNoLink: a link is listed as one, hidden entries are
// not listed, and only with deep is what is in a directory.
func TestSessionEntriesListDirectoriesAndFollowNoLink(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	run := in("tree", `import os
os.makedirs('a/b/.hidden'); os.makedirs('.dot')
open('a/b/f', 'w').write('four'); open('g', 'w').close(); open('.h', 'w').close()
os.symlink('/etc', 'etc'); os.mkfifo('pipe')`)
	if res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, run); err != nil || !res.Success {
		t.Fatalf("got %+v and %v, want success", res, err)
	}
	flat := []sandboxmcp.SessionEntry{
		{Path: "/mnt/data/a", Type: sandboxmcp.EntryDirectory},
		{Path: "/mnt/data/etc", Type: sandboxmcp.EntryLink},
		{Path: "/mnt/data/g", Type: sandboxmcp.EntryFile},
		{Path: "/mnt/data/pipe", Type: sandboxmcp.EntryOther},
	}
	deep := append([]sandboxmcp.SessionEntry{flat[0], {Path: "/mnt/data/a/b", Type: sandboxmcp.EntryDirectory}, {Path: "/mnt/data/a/b/f", Type: sandboxmcp.EntryFile, SizeBytes: 4}}, flat[1:]...)
	for want, recursive := range map[*[]sandboxmcp.SessionEntry]bool{&flat: false, &deep: true} {
		got, err := e.SessionEntries(t.Context(), sandboxmcp.Caller{}, "tree", recursive)
		if d := cmp.Diff(*want, got); err != nil || d != "" {
			t.Errorf("deep=%v: got %v and other entries (-want +got):\n%s", recursive, err, d)
		}
	}
	if _, err := e.SessionEntries(t.Context(), sandboxmcp.Caller{}, "nobody", true); sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("got %v, want session_not_found", err)
	}
}
