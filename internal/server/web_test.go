package server_test

import (
	"strings"
	"testing"
)

// TestWebAnswersAreText: a model reads the page or the list, a program the fields.
func TestWebAnswersAreText(t *testing.T) {
	p := legacy(t, newFake())
	text := func(name string, args map[string]any) string {
		t.Helper()
		content, _ := p.call(name, args)["content"].([]any)
		block, _ := content[0].(map[string]any)
		s, _ := block["text"].(string)
		return s
	}
	if got := text("fetch_webpage", map[string]any{"url": "https://x.test/", "offset": 5}); got != "# page 5 0" {
		t.Errorf("got %q, want the markdown alone", got)
	}
	if got := text("web_search", map[string]any{"query": "words", "engine": "one"}); got != "1. words\n   https://x.test/\n   0one\n" {
		t.Errorf("got %q, want a numbered list", got)
	}
	if got := text("web_search", map[string]any{"query": "nothing"}); !strings.HasPrefix(got, "No results") {
		t.Errorf("got %q, want it said", got)
	}
	if got := p.good("fetch_webpage", map[string]any{"url": "https://x.test/", "max_length": 7}); got["content"] != "# page 0 7" || got["title"] != "T" {
		t.Errorf("got %v, want the fields", got)
	}
	p.fails("invalid_argument", "fetch_webpage", map[string]any{"url": "https://x.test/", "max_length": 0})
	p.fails("invalid_argument", "browser_fetch", map[string]any{"url": "https://x.test/", "timeout_ms": 0})
	p.fails("invalid_argument", "browser_fetch", map[string]any{"url": "https://x.test/", "wait_until": "never"})
	p.fails("invalid_argument", "fetch_webpage", map[string]any{"url": "https://x.test/", "offset": -1})
	p.fails("invalid_argument", "web_search", map[string]any{"query": "x", "max_results": 51})
}

// TestScreenshotsAreImages: a screenshot is an image block, and a small one also a field.
func TestScreenshotsAreImages(t *testing.T) {
	p := legacy(t, newFake())
	for side, field := range map[string]bool{"16": true, "200": false} {
		res := p.call("browser_fetch", map[string]any{"url": "https://x.test/", "screenshot": true, "wait_for_selector": side})
		content, _ := res["content"].([]any)
		if len(content) != 2 {
			t.Fatalf("got %d blocks, want the text and the image", len(content))
		}
		text, _ := content[0].(map[string]any)
		block, _ := content[1].(map[string]any)
		if text["text"] != "# page  0" || block["type"] != "image" || block["mimeType"] != "image/png" {
			t.Errorf("got %v and %v, want the page and a PNG", text["text"], block["mimeType"])
		}
		if _, ok := structured(res)["screenshot_b64"]; ok != field {
			t.Errorf("side %s: got a field %v, want %v", side, ok, field)
		}
	}
	res := p.call("browser_fetch", map[string]any{"url": "https://x.test/"})
	if content, _ := res["content"].([]any); len(content) != 1 {
		t.Errorf("got %d blocks, want no image that was not asked for", len(content))
	}
}
