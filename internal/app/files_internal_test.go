package app

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// oneFile is an engine with the file a.txt in every session.
type oneFile struct{ Engine }

func (oneFile) Namespace() sandboxmcp.Namespace { return "default" }

func (oneFile) ReadFile(context.Context, sandboxmcp.Caller, sandboxmcp.SessionID, string, int64) (sandboxmcp.SessionFile, []byte, error) {
	return sandboxmcp.SessionFile{MIMEType: "text/plain"}, []byte("text"), nil
}

func openedFiles(t *testing.T, env ...string) *fileDoor {
	t.Helper()
	cfg, err := config.Load(config.Sources{Env: append(env, "HOME="+t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	a := New(nil, nil, io.Discard, io.Discard)
	f := a.openFiles(t.Context(), front{engine: oneFile{}, cfg: cfg, logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(f.close)
	return f
}

// TestFilesAreServedFromTheFirstLinkOn: without settings, no port is open until a file has a
// link, and the link gives the file.
func TestFilesAreServedFromTheFirstLinkOn(t *testing.T) {
	f := openedFiles(t)
	if f.stop != nil {
		t.Fatal("got a listener at the start, want none before the first link")
	}
	link := f.link("default", "mine", "a.txt", 4)
	if !strings.HasPrefix(link, "http://127.0.0.1:") {
		t.Fatalf("got the link %q, want one on a port of 127.0.0.1", link)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != "text" {
		t.Errorf("got %q and %v, want the file", got, err)
	}
}

// TestWhichFilesHaveLinks: an operator can turn links off, and bound them by the size that one
// answer returns.
func TestWhichFilesHaveLinks(t *testing.T) {
	for _, c := range []struct {
		env  string
		size int64
		want bool
	}{
		{"", 32 << 20, true},
		{"", 512 << 20, true},
		{"", 512<<20 + 1, false},
		{"SANDBOXMCP_WORK_QUOTA_MB=40", 40 << 20, true},
		{"SANDBOXMCP_WORK_QUOTA_MB=40", 40<<20 + 1, false},
		{"SANDBOX_MAX_ARTIFACT_READ_BYTES=8", 8, true},
		{"SANDBOX_MAX_ARTIFACT_READ_BYTES=8", 9, false},
		{"SANDBOX_MAX_ARTIFACT_READ_BYTES=20971520", 32 << 20, true},
		{"SANDBOXMCP_ARTIFACT_SERVER=off", 1, false},
	} {
		if got := linked(openedFiles(t, c.env), c.size); (got != "") != c.want {
			t.Errorf("%q: the link of %d bytes is %q, want one: %v", c.env, c.size, got, c.want)
		}
	}
}

// linked returns the link of a file of that size.
func linked(f *fileDoor, size int64) string {
	link := f.linker()
	if link == nil {
		return ""
	}
	return link("default", "mine", "a.txt", size)
}
