package backend

import (
	"maps"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestOnlyAbsolutePathsAreFound: what the programs of an image print is taken for a path only if it is absolute.
func TestOnlyAbsolutePathsAreFound(t *testing.T) {
	got := parseFound("python /usr/bin/python3.11 3.11.2\nnode node 18\nshell /bin/dash\nevil\n\ndone\n", "x")
	paths := map[sandboxmcp.Language]string{}
	for l, i := range got {
		paths[l] = i.Path + " " + i.Version + " " + i.Image
	}
	want := map[sandboxmcp.Language]string{sandboxmcp.Python: "/usr/bin/python3.11 3.11.2 x", sandboxmcp.Shell: "/bin/dash  x"}
	if !maps.Equal(paths, want) {
		t.Errorf("got %v, want %v", paths, want)
	}
}
