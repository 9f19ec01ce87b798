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
	"slices"
	"strings"
	"testing"
	"time"

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

// TestLeftProofsAreRemoved: the next server removes what one left behind that was killed while it started
// or ended. What may belong to one that starts now stays, and so do the files of a dead one with a socket.
func TestLeftProofsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	for name, goes := range map[string]bool{"1-a.key": true, ".2-b.sock": true, "3-c.key": false, "3-c.sock": false, "4-d.key": false, ".5-e.sock": false} {
		if err := os.WriteFile(filepath.Join(run, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if goes || strings.HasPrefix(name, "3") {
			if err := os.Chtimes(filepath.Join(run, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	server, _ := listen(t, dir)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(run)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{".5-e.sock", "3-c.key", "3-c.sock", "4-d.key"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
