package api_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// TestCommandsOfTheHostDecideNothing: a program of the server's own user that cannot read the state
// directory, such as a command of the host behind Landlock, opens no domain and calls no other route.
func TestCommandsOfTheHostDecideNothing(t *testing.T) {
	dir := t.TempDir()
	server, s := listen(t, dir)
	id := server.Hello().ID
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, "run", id+".sock"))
	}}}
	proof := proofOf(t, dir, id)
	for name, sent := range map[string]string{"no proof": "", "another": strings.Repeat("A", len(proof)), "a part": proof[:len(proof)-1], "more": proof + "A"} {
		for _, r := range append(api.Routes(), api.RouteInfo{Pattern: "POST /v1/stop"}) {
			method, path, _ := strings.Cut(r.Pattern, " ")
			req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+wildcard.ReplaceAllString(path, "x"), strings.NewReader(`{"domain":"example.com","scope":"always"}`))
			if err != nil {
				t.Fatal(err)
			}
			if sent != "" {
				req.Header.Set("Sandboxmcp-Proof", sent)
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), string(sandboxmcp.CodeAccessDenied)) {
				t.Errorf("%s: %s: got %d %.200s, want access_denied", name, r.Pattern, res.StatusCode, body)
			}
		}
	}
	if calls := s.take(); len(calls) > 0 {
		t.Errorf("%d calls reached the service, the first %+v", len(calls), calls[0])
	}
	file := filepath.Join(dir, "run", id+".key")
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("the proof: %v, %v, want a file of its owner alone", st, err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the proof outlives its server: %v", err)
	}
}
