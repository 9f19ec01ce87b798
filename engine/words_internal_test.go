package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestWordsOfACell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		language   sandboxmcp.Language
		code, name string
		want       bool // that it is written
	}{
		{sandboxmcp.Python, "%pip install demo~=1.0", "demo~=1.0", true},
		{sandboxmcp.Python, "%pip install My_Demo[x]", "my.demo", true},
		{sandboxmcp.Python, "demos", "demo", false},
		{sandboxmcp.Python, "x.demo", "demo", false},
		{sandboxmcp.Python, "demo-x demo", "demo", true},
		{sandboxmcp.Node, "npm install demo@~1.0", "demo@1.0", true},
		{sandboxmcp.Node, "npm install demo~", "demo~x", false},
		{sandboxmcp.Node, "npm install demo~x", "demo~x", true},
		{sandboxmcp.Node, "npm install @scope/demo@^1", "@scope/demo@^1", true},
		{sandboxmcp.Node, "@scope/demo", "@scope/demo", true},
		{sandboxmcp.Node, "@scope/demo", "demo", true},
		{sandboxmcp.Node, "x@scope/demo", "@scope/demo", false},
		{sandboxmcp.Node, "@scope /demo", "@scope/demo", false},
		{sandboxmcp.Node, "@scope/ demo @scope /demo @scope,demo", "@scope/demo", false},
		{sandboxmcp.Node, "@other/demo @scope/demos", "@scope/demo", false},
	} {
		cell := &cellWords{code: c.code}
		if name, err := cell.unwritten(c.language, []string{c.name}); err != nil || (name == "") != c.want {
			t.Errorf("%s in %q: got %q, %v, want that it is written: %v", c.name, c.code, name, err, c.want)
		}
	}
}

// TestVersionsOfACellAreBounded: a program that chooses versions tells the index something with each of them.
func TestVersionsOfACellAreBounded(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"demo==1.%d", "demo[x%d]"} {
		cell := &cellWords{code: "%pip install demo other"}
		for n := range maxChosen {
			for range 2 {
				if _, err := cell.unwritten(sandboxmcp.Python, []string{fmt.Sprintf(form, n)}); err != nil {
					t.Fatalf(form+": got %v", n, err)
				}
			}
		}
		if _, err := cell.unwritten(sandboxmcp.Python, []string{fmt.Sprintf(form, maxChosen)}); sandboxmcp.CodeOf(err) != sandboxmcp.CodePackageRejected {
			t.Errorf(form+": got %v, want package_rejected", maxChosen, err)
		}
		if _, err := cell.unwritten(sandboxmcp.Python, []string{"other==1"}); err != nil {
			t.Errorf("another package: got %v", err)
		}
	}
}

// TestRequestsOfACellAreBounded: of a large cell they are few.
func TestRequestsOfACellAreBounded(t *testing.T) {
	t.Parallel()
	cell := &cellWords{code: strings.Repeat("a-", 512<<10) + " demo"}
	names := make([]string, 50)
	for i := range names {
		names[i] = fmt.Sprintf("demo%d", i)
	}
	asked := 0
	var err error
	for ; err == nil && asked < 32; asked++ {
		_, err = cell.unwritten(sandboxmcp.Python, names)
	}
	if want := maxSearched/len(cell.code) + 1; sandboxmcp.CodeOf(err) != sandboxmcp.CodePackageRejected || asked != want {
		t.Errorf("got %d requests and %v, want %d and package_rejected", asked, err, want)
	}
	small := &cellWords{code: strings.Repeat(" ", 200<<10) + "demo"}
	for range 32 {
		if name, err := small.unwritten(sandboxmcp.Python, []string{"demo"}); name != "" || err != nil {
			t.Fatalf("a small cell: got %q, %v", name, err)
		}
	}
}
