package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

func readBlob(t *testing.T, s *store.Store, sum string) string {
	t.Helper()
	b, err := s.ReadBlob(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fileOf returns the file of a blob in a state directory.
func fileOf(t *testing.T, s *store.Store, sum string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir(), "blobs*", sum[:2], sum))
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want one file", found, err)
	}
	return found[0]
}

// unfinished lists the directory of unfinished blobs.
func unfinished(t *testing.T, s *store.Store) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Dir(), "blobs", "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestBlob(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	for _, content := range []string{"", "hello", strings.Repeat("long ", 100_000)} {
		h := sha256.Sum256([]byte(content))
		want := hex.EncodeToString(h[:])
		got, err := s.PutBlob(t.Context(), []byte(content))
		if err != nil || got != want {
			t.Fatalf("PutBlob: got %s, %v, want %s", got, err, want)
		}
		path := filepath.Join(s.Dir(), "blobs", want[:2], want)
		fi, err := os.Stat(path)
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("file: got %v, %v, want mode 0600", fi, err)
		}
		if readBlob(t, s, want) != content {
			t.Error("got another content, want what was put")
		}
		// Again: the same file, made young.
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		if got, size, err := s.PutBlobFrom(t.Context(), strings.NewReader(content), int64(len(content))); got != want || size != int64(len(content)) || err != nil {
			t.Errorf("PutBlobFrom: got %s, %d, %v", got, size, err)
		}
		again, err := os.Stat(path)
		if err != nil || !os.SameFile(fi, again) || !again.ModTime().After(old) {
			t.Errorf("the blob that is put again: got %v, want the same file with a new time", err)
		}
	}
	if n := len(unfinished(t, s)); n != 0 {
		t.Errorf("unfinished blobs: got %d, want none", n)
	}
}

func TestPutBlobFromFails(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	broken := errors.New("broken")
	if _, _, err := s.PutBlobFrom(t.Context(), iotest.ErrReader(broken), 10); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, _, err := s.PutBlobFrom(t.Context(), strings.NewReader("12345"), 4); sandboxmcp.CodeOf(err) != sandboxmcp.CodeFileTooLarge {
		t.Errorf("got %v, want file_too_large", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.PutBlobFrom(ctx, strings.NewReader("1"), 4); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	if n := len(unfinished(t, s)); n != 0 {
		t.Errorf("unfinished blobs: got %d, want none", n)
	}
}

// What a power cut left empty is written anew.
func TestPutBlobMendsTruncated(t *testing.T) {
	storetest.SQLite(t)
	s := open(t, store.Config{Dir: t.TempDir()})
	sum, err := s.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(s.Dir(), "blobs", sum[:2], sum), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBlob(t.Context(), []byte("content")); err != nil {
		t.Fatal(err)
	}
	if got := readBlob(t, s, sum); got != "content" {
		t.Errorf("got %q", got)
	}
}

// A file that a power cut has truncated or emptied is not returned as the blob.
func TestReadBlobChecksTheContent(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	sum, err := s.PutBlob(t.Context(), []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"", "cont", "\x00\x00\x00\x00\x00\x00\x00"} {
		if err := os.WriteFile(fileOf(t, s, sum), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		if data, err := s.ReadBlob(t.Context(), sum); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInternal || data != nil {
			t.Errorf("%q: got %q, %v, want an internal error", left, data, err)
		}
	}
}

func TestReadBlobRefusesOtherNames(t *testing.T) {
	s := open(t, store.Config{Dir: t.TempDir()})
	for _, sum := range []string{"", "..", "../sandboxmcp.db", strings.Repeat("A", 64), strings.Repeat("a", 63), strings.Repeat("/", 64)} {
		if _, err := s.ReadBlob(t.Context(), sum); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: got %v, want not exist", sum, err)
		}
		if err := s.DiscardBlob(sum, 0); err != nil {
			t.Errorf("DiscardBlob of %q: got %v, want nil", sum, err)
		}
	}
}
