package artifact_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
)

// dated is a working directory that counts its lists and has the time of change that a test sets.
type dated struct {
	*dir
	changed time.Time
	err     error
	lists   *int
}

func (d dated) Changed() (time.Time, error) { return d.changed, d.err }

func (d dated) List(ctx context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	*d.lists++
	return d.dir.List(ctx, name, limit)
}

// TestAnEmptyDirectoryIsNotListedAgain: a directory without visible entries is listed again only if it has changed, or if a
// change could have gone unseen.
func TestAnEmptyDirectoryIsNotListedAgain(t *testing.T) {
	old := now.Add(-time.Hour)
	for name, test := range map[string]struct {
		surveyed time.Time // time of the last change before the survey
		before   map[string]string
		made     string // directory that is there before the survey
		after    map[string]string
		changed  time.Time // time of the last change before the files are collected
		err      error
		want     []string
		lists    int // by Collect
	}{
		"nothing changed":                   {surveyed: old, changed: old},
		"only hidden files":                 {surveyed: old, before: map[string]string{".hidden": "1"}, changed: old},
		"a file was made":                   {surveyed: old, after: map[string]string{"a": "1"}, changed: old.Add(time.Nanosecond), want: []string{"a"}, lists: 1},
		"changed just before the survey":    {surveyed: time.Now(), after: map[string]string{"a": "1"}, changed: now, want: []string{"a"}, lists: 1},
		"changed after the survey's clock":  {surveyed: time.Now().Add(time.Hour), changed: now, lists: 1},
		"a directory was there":             {surveyed: old, made: "sub", after: map[string]string{"sub/a": "1"}, changed: old, want: []string{"sub/a"}, lists: 2},
		"a file was there":                  {surveyed: old, before: map[string]string{"b": "1"}, after: map[string]string{"b": "22"}, changed: old, want: []string{"b"}, lists: 1},
		"the time of change cannot be read": {surveyed: old, changed: old, err: errors.New("no answer"), lists: 1},
	} {
		t.Run(name, func(t *testing.T) {
			k, root, lists := newKit(t, artifact.Config{}), t.TempDir(), 0
			files := dated{&dir{root: root, opened: map[string]int{}}, test.surveyed, nil, &lists}
			fill(t, root, test.before)
			if test.made != "" {
				if err := os.Mkdir(filepath.Join(root, test.made), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			known, empty := artifact.Survey(t.Context(), files, nil, artifact.Bounds{})
			fill(t, root, test.after)
			files.changed, files.err, lists = test.changed, test.err, 0
			c, err := k.Collect(t.Context(), artifact.Source{Files: files, RequestID: "r", Known: known, Empty: empty, Now: now})
			if err != nil || c.Artifacts == nil {
				t.Fatalf("got %v, %v; want a list", c.Artifacts, err)
			}
			if got := artifactNames(c); len(got) != len(test.want) || len(got) > 0 && got[0] != test.want[0] {
				t.Errorf("got the files %v, want %v", got, test.want)
			}
			if lists != test.lists {
				t.Errorf("got %d lists, want %d", lists, test.lists)
			}
		})
	}
}

// TestAListThatIsNotCompleteShowsNoEmptyDirectory: behind the hidden entries that were listed, there may be visible ones.
func TestAListThatIsNotCompleteShowsNoEmptyDirectory(t *testing.T) {
	k, root, lists := newKit(t, artifact.Config{}), t.TempDir(), 0
	files := dated{&dir{root: root, opened: map[string]int{}}, now.Add(-time.Hour), nil, &lists}
	fill(t, root, map[string]string{".a": "1", ".b": "1", ".c": "1"})
	bounds := artifact.Bounds{Entries: 2}
	known, empty := artifact.Survey(t.Context(), files, nil, bounds)
	c, err := k.Collect(t.Context(), artifact.Source{Files: files, RequestID: "r", Known: known, Empty: empty, Bounds: bounds, Now: now})
	if err != nil || len(c.Skipped) != 1 {
		t.Errorf("got %+v, %v; want it told that not all entries were looked at", c, err)
	}
}
