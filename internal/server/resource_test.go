package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// readResource returns the content of a resource, and its bytes.
func readResource(t *testing.T, p *pipe, uri string) (content map[string]any, data []byte) {
	t.Helper()
	content = read(t, p, uri)
	if text, ok := content["text"].(string); ok {
		return content, []byte(text)
	}
	blob, _ := content["blob"].(string)
	data, err := base64.StdEncoding.DecodeString(blob)
	if err != nil {
		t.Fatal(err)
	}
	return content, data
}

// TestOutputSoFarIsAResource: the streams of a run that goes on can be read as resources.
func TestOutputSoFarIsAResource(t *testing.T) {
	f := newFake()
	f.soFar = "begun\n"
	p := legacy(t, f)
	for part, want := range map[string]string{"stdout": "begun\n", "stderr": "of begun\n", "stdout?offset=2": "gun\n"} {
		if _, got := readResource(t, p, "run://"+runID+"/"+part); string(got) != want {
			t.Errorf("%s: got %q, want %q", part, got, want)
		}
	}
}

// TestLargePicturesAreURIs: in run://…/result and …/results a large picture is a URI, under which
// its bytes are read. Small ones stand as they are.
func TestLargePicturesAreURIs(t *testing.T) {
	large, small := bytes.Repeat([]byte("picture!"), 50_000), []byte("\x89PNG")
	f := newFake()
	f.results = []sandboxmcp.RichResult{
		{"image/png": base64.StdEncoding.EncodeToString(small), "text/plain": "P"},
		{"image/png": base64.StdEncoding.EncodeToString(large), "text/plain": "Q"},
		{"image/jpeg": base64.StdEncoding.EncodeToString(large)},
	}
	p := legacy(t, f)
	_, whole := readResource(t, p, "run://"+runID+"/result")
	if len(whole) > 4000 {
		t.Errorf("got %d bytes, want no picture in them", len(whole))
	}
	var all struct{ Results []map[string]string }
	if err := json.Unmarshal(whole, &all); err != nil || len(all.Results) != 3 {
		t.Fatalf("got %v and %d results, want 3", err, len(all.Results))
	}
	if got := all.Results[0]["image/png"]; got != base64.StdEncoding.EncodeToString(small) || all.Results[1]["text/plain"] != "Q" {
		t.Errorf("got %v, want the small picture and texts as they are", all.Results[:2])
	}
	_, alone := readResource(t, p, "run://"+runID+"/results")
	for i, kind := range map[int]string{1: "image/png", 2: "image/jpeg"} {
		uri := all.Results[i][kind]
		if content, data := readResource(t, p, uri); !bytes.Equal(data, large) || content["mimeType"] != kind {
			t.Errorf("%s: got %d bytes of %v, want the %d of the picture", uri, len(data), content["mimeType"], len(large))
		}
		if !strings.Contains(string(alone), uri) {
			t.Errorf("results: got %.300s, want %s in them", alone, uri)
		}
	}
	for _, none := range []string{"results/3/image/png", "results/-1/image/png", "results/0/text/plain", "results/0/image/jpeg", "results/x", "results/"} {
		if m := p.request("resources/read", map[string]any{"uri": "run://" + runID + "/" + none}); m["error"] == nil {
			t.Errorf("%s: got %v, want an error", none, m)
		}
	}
}
