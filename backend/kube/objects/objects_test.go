package objects_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend/kube/objects"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

func open(t *testing.T, url string) *objects.Bucket {
	t.Helper()
	where, err := objects.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := objects.New(where)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestObjects(t *testing.T) {
	url, dir := testkit.S3(t)
	b := open(t, url)
	for i, content := range []string{"", "hello", strings.Repeat("long ", 4<<20)} {
		name := fmt.Sprintf("ab/%d", i)
		if _, err := b.Get(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s before: got %v, want not exist", name, err)
		}
		for range 2 {
			if err := b.Put(t.Context(), name, strings.NewReader(content), int64(len(content))); err != nil {
				t.Fatal(err)
			}
		}
		r, err := b.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != content {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(content))
		}
		if _, err := os.Stat(filepath.Join(dir, "bucket/some/prefix", name)); err != nil {
			t.Errorf("below the prefix: %v", err)
		}
	}
}

func TestWrongKeysAndBuckets(t *testing.T) {
	url, _ := testkit.S3(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
	err := open(t, url).Put(t.Context(), "ab/0", strings.NewReader("x"), 1)
	if err == nil || !strings.Contains(err.Error(), "bucket/some/prefix at 127.0.0.1") || strings.Contains(err.Error(), "another-secret") {
		t.Errorf("another secret: got %v, want an error that names the bucket and no secret", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	err = open(t, strings.Replace(url, "//bucket", "//another", 1)).Put(t.Context(), "ab/0", strings.NewReader("x"), 1)
	if err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("another bucket: got %v, want NoSuchBucket", err)
	}
}

// A call returns when its context ends, even if the store does not answer.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	defer s.Close()
	defer close(held)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	b := open(t, "s3://bucket?region=us-east-1&endpoint="+s.URL)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := b.Get(ctx, "ab/0"); done <- err }()
	cancel()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want canceled", err)
		}
	case <-late.C:
		t.Fatal("Get does not return after its context has ended")
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]objects.Place{
		"s3://b": {Bucket: "b", Host: "s3.amazonaws.com"},
		"s3://b/some/prefix/?region=eu-central-1":      {Bucket: "b", Prefix: "some/prefix", Region: "eu-central-1", Host: "s3.amazonaws.com"},
		"s3://b?endpoint=https://h:9000/":              {Bucket: "b", Host: "h:9000"},
		"s3://b/p?endpoint=http://127.0.0.1:1&region=": {Bucket: "b", Prefix: "p", Host: "127.0.0.1:1", Insecure: true},
	} {
		if got, err := objects.Parse(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "b", "http://b", "s3://", "s3://b:1", "s3://key:hunter2@b", "s3://b#x", "s3://b?x=1", "s3://b?endpoint=h:9000", "s3://b?endpoint=ftp://h",
		"s3://b?endpoint=https://h/path", "s3://b?endpoint=https://k:s@h", "s3://b?region=a&region=b", "s3://b?region=%zz",
	} {
		if got, err := objects.Parse(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %+v, %v, want an error", text, got, err)
		}
	}
}
