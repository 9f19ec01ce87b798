//go:build unix

package environment_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// TestNoPipOfADirectoryThatProgramsChange: an interpreter without pip is served by a pip of the PATH, and a program in
// a sandbox may have put that one there.
func TestNoPipOfADirectoryThatProgramsChange(t *testing.T) {
	top := plainfile.Unlinked(t.TempDir())
	shared, python, ran := filepath.Join(top, "shared"), filepath.Join(top, "python"), filepath.Join(top, "ran")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, script := range map[string]string{
		python:          "[ \"$1\" = -I ] && echo '[\"cpython\", \"3.11.2\", \"cpython-311\", \"linux-x86_64\"]'\n",
		shared + "/pip": "echo yes > " + ran + "\nexit 1\n",
	} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for avoid, want := range map[string]bool{"": true, shared: false} {
		if err := os.Remove(ran); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		order := environment.Order{
			Recipe: environment.Recipe{Name: "fruit", Packages: []string{"apple"}}, Python: environment.Python{Path: python, Version: "3.11.2"},
			Env: []string{"PATH=" + shared, "HOME=" + top}, Avoid: avoid,
		}
		if _, err := environment.New(environment.Config{Dir: filepath.Join(top, "environments")}).Install(t.Context(), order); err == nil {
			t.Fatal("got no error, want that there is no pip")
		}
		if _, err := os.Stat(ran); (err == nil) != want {
			t.Errorf("avoiding %q: got %v, want the pip to be started: %v", avoid, err, want)
		}
	}
}
