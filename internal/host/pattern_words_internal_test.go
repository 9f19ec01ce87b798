package host

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestFirstWordThatAShellTakesForItsOwn: a pattern as it is kept, and a command as the record shows it, read as the same words. That holds also if a shell would
// take the first word for something else without its quotes.
func TestFirstWordThatAShellTakesForItsOwn(t *testing.T) {
	for _, line := range []string{`''A=b`, `'if' x`, `\declare a`, `"time" -p ls`, `'!' x`, `'A=b' c=d *`} {
		p, err := ParsePattern(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if words, _ := p.words(); len(words) == 0 {
			t.Errorf("%s is kept as %s, which has no words", line, p)
		}
		if again, err := ParsePattern(p.String()); err != nil || again != p {
			t.Errorf("%s: got %s, %v, want that it reads as itself", p, again, err)
		}
	}
	words := []string{"A=b", "c=d"}
	if again, err := Words(Line(words)); err != nil || !slices.Equal(again, words) {
		t.Errorf("got %q, %v, want %q", again, err, words)
	}
}

// TestLookThatPanics: a panic of a look is an error of its call, and does not end the server.
func TestLookThatPanics(t *testing.T) {
	_, err := looked(t.Context(), time.Minute, func(context.Context) (string, error) { return list("")[0], nil })
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInternal {
		t.Errorf("got %v, want an internal error", err)
	}
}
