package app

import (
	"os"
	"path/filepath"
	"testing"
)

// The default log is below the working directory, which may be another person's repository. Its
// links lead to no other file.
func TestTheDefaultLogFollowsNoLink(t *testing.T) {
	const name = "logs/sandbox.log"
	outside := t.TempDir()
	mine := filepath.Join(outside, "profile")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, prepare := range map[string]func() error{
		"the file is a link": func() error {
			return os.Symlink(mine, name)
		},
		"the directory is a link": func() error {
			return os.Symlink(outside, filepath.Dir(name))
		},
		"a link within": func() error {
			return os.Symlink("../logs/other", name)
		},
		"a directory": func() error { return os.Mkdir(name, 0o700) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if what != "the directory is a link" {
				if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := prepare(); err != nil {
				t.Fatal(err)
			}
			if f, err := appendHere(name); err == nil {
				_, _ = f.WriteString("a line of the log")
				_ = f.Close()
				t.Error("it was opened, want a refusal")
			}
			if got, err := os.ReadFile(mine); err != nil || string(got) != "mine" {
				t.Errorf("a file of the user: got %q, %v; want it unchanged", got, err)
			}
			if _, err := os.Lstat(filepath.Join(outside, "sandbox.log")); err == nil {
				t.Error("a file was made in another directory")
			}
		})
	}
}
