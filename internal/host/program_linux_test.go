package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

// tool makes a script that can be executed.
func (b *bed) tool(name, content string) string {
	b.t.Helper()
	path := b.file(name, content)
	if err := os.Chmod(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bed) allow(command string) {
	b.t.Helper()
	if _, err := b.Decide(b.t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: command}}); err != nil {
		b.t.Fatal(err)
	}
}

// later waits until the clock of the file system, which may go in steps, has passed the present.
func (b *bed) later() {
	b.t.Helper()
	for now := time.Now(); ; {
		info, err := os.Stat(b.file("clock", "x"))
		if err != nil {
			b.t.Fatal(err)
		}
		if info.ModTime().After(now) {
			return
		}
	}
}

// TestAnInterpreterIsNoFIFO: the server looks at the interpreter of a script before a person has allowed it, and waits for
// nobody who writes into it. Without that, this test does not end.
func TestAnInterpreterIsNoFIFO(t *testing.T) {
	b := open(t)
	fifo := filepath.Join(b.root, "fifo")
	if err := unix.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(b.tool("script", "#!"+fifo+"\n"), sandboxmcp.CodeHostAccessDenied)
}

// TestLinksOnTheWayAreNotReplaced: each link that leads to a program or to its interpreter decides what is executed, and the
// file that it leads to then may be older than the grant.
func TestLinksOnTheWayAreNotReplaced(t *testing.T) {
	b := open(t)
	b.tool("good/tool", "#!/bin/sh\necho good\n")
	b.tool("evil/tool", "#!/bin/sh\necho evil\n")
	b.tool("evil/sh", "#!/bin/sh\necho evil\n")
	link := func(target, name string) string {
		path := filepath.Join(b.root, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link("good", "dir")
	link("dir/tool", "second")
	first := link("second", "first")
	shell := link("/bin/sh", "sh")
	script := b.tool("script", "#!"+shell+"\necho good\n")
	for _, swap := range []func(){func() { link("evil/tool", "second") }, func() { link("evil", "dir") }} {
		link("good", "dir")
		link("dir/tool", "second")
		_, _ = b.Revoke(t.Context(), caller, first)
		b.allow(first)
		b.wantOutput(first, "good\n")
		b.later()
		swap()
		b.wantRefused(first, sandboxmcp.CodeHostAccessDenied)
	}
	b.allow(script)
	b.wantOutput(script, "good\n")
	b.later()
	link("evil/sh", "sh")
	b.wantRefused(script, sandboxmcp.CodeHostAccessDenied)
	_, err := b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: script}, noMasks{})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostAccessDenied || !strings.Contains(sandboxmcp.AsError(err).Hint, "revoke") {
		t.Errorf("ask for it again: got %v, want what a person has to do", err)
	}
	if got := host.Reached(script + " word"); !slices.Contains(got, script) || !slices.Contains(got, shell) {
		t.Errorf("got %q, want the script and the path of its interpreter", got)
	}
	if got := host.Reached("/nowhere/tool"); !slices.Contains(got, "/nowhere/tool") {
		t.Errorf("got %q, want the program that is not there yet", got)
	}
}

// TestScriptsWithWordsForTheirInterpreter: env splits the words of a first line that has -S.
func TestScriptsWithWordsForTheirInterpreter(t *testing.T) {
	b := open(t)
	last := "executes no further program"
	for first, stands := range map[string]bool{"#!/usr/bin/env -S sh -u": true, "#!/usr/bin/env  sh ": true, "#!/usr/bin/env -S A=B sh": false, "#!/usr/bin/env -S 'sh'": false, "#!/usr/bin/env ../bin/sh": false} {
		script := b.tool("tool", first+"\necho \"[$-] $0 $*\"\n")
		_, _ = b.Revoke(t.Context(), caller, script+" a")
		b.allow(script + " a")
		out, err := b.exec(script + " a")
		if err != nil || slices.Contains(out.Walls, last) != stands {
			t.Errorf("%s: got %+v, %v, want the wall: %t", first, out, err, stands)
		}
		if stands && (!strings.HasSuffix(out.Stdout, " "+script+" a\n") || strings.Contains(first, "-u") != strings.Contains(strings.SplitN(out.Stdout, "]", 2)[0], "u")) {
			t.Errorf("%s: got %q, want the script with its words, and the shell with its flag", first, out.Stdout)
		}
	}
}

// TestNothingIsWrittenIfTheInterpretersAreNotKnown: a caller can cancel a request while the server looks for them.
func TestNothingIsWrittenIfTheInterpretersAreNotKnown(t *testing.T) {
	b := open(t, func(c *host.Config) {
		c.Found = func(context.Context) ([]string, error) {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the search was cancelled")
		}
	})
	path := filepath.Join(b.root, "new")
	wantCode(t, "write", b.write(path, "x"), sandboxmcp.CodeCancelled)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want no file", err)
	}
}

// TestProgramsOfSandboxesAreNotExecuted: a program in a sandbox can change the workspace at any time. It could rewrite what a person
// has allowed, or put a module beside it.
func TestProgramsOfSandboxesAreNotExecuted(t *testing.T) {
	var settings host.Config
	b := open(t, func(c *host.Config) { settings = *c })
	inside, other := b.tool("work/tool", "#!/bin/sh\necho ran\n"), b.tool("tool", "#!/bin/sh\necho ran\n")
	by := b.tool("by", "#!"+inside+"\n")
	link := filepath.Join(b.root, "link")
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{inside, link, by, other} {
		b.allow(command)
	}
	b.wantOutput(inside, "ran\n") // as long as programs in sandboxes cannot change it
	settings.Changeable = filepath.Dir(inside)
	var err error
	if b.Host, err = host.New(settings); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{inside, link, by} {
		b.wantRefused(command, sandboxmcp.CodeHostAccessDenied)
		_, err := b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: command + " more"}, noMasks{})
		wantCode(t, "ask for "+command, err, sandboxmcp.CodeHostAccessDenied)
		_, err = b.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Pattern: command + " more"}})
		wantCode(t, "allow "+command, err, sandboxmcp.CodeHostAccessDenied)
	}
	at := filepath.Dir(inside)
	for i, next := range []string{"1", "2", "."} { // scripts whose interpreters take too much to look up
		if err := os.Symlink(strings.Repeat("../work/", 500)+next, at+"/"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 6 {
		b.tool("work/script"+strconv.Itoa(i), "#!"+at+"/0/script"+strconv.Itoa(i+1)+"\n")
	}
	for _, command := range []string{at + "/missing", at + "/script0"} {
		_, err = b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: command}, noMasks{})
		wantCode(t, "ask for "+command, err, sandboxmcp.CodeHostAccessDenied)
	}
	b.wantOutput(other, "ran\n")
}

// TestABlockedProgramIsBlockedByItsOwnName: a blocked name may be a link to a program, which has another name. Programs that do what the name of
// the link says are others.
func TestABlockedProgramIsBlockedByItsOwnName(t *testing.T) {
	dir := t.TempDir()
	for _, tool := range []string{"tool-3.1", "coreutils"} {
		if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range [][2]string{{"tool-3.1", "tool"}, {"tool", "alias"}, {"coreutils", "unlink"}, {"coreutils", "nproc"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tool-4", "toolbox"} { // the second one may do what its name says
		if err := os.Link(filepath.Join(dir, "tool-3.1"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, func(c *host.Config) {
		c.AutoApprove, c.Blocked = true, []string{filepath.Join(dir, "tool"), filepath.Join(dir, "unlink")}
	})
	b.wantOutput(filepath.Join(dir, "toolbox"), "ran\n")
	for _, name := range []string{"tool", "tool-3.1", "tool-4", "alias", "unlink"} {
		b.wantRefused(filepath.Join(dir, name), sandboxmcp.CodeHostAccessBlocked)
		_, err := b.Request(t.Context(), caller, sandboxmcp.HostAsk{Pattern: filepath.Join(dir, name)}, noMasks{})
		wantCode(t, "a request for "+name, err, sandboxmcp.CodeHostAccessBlocked)
	}
	b.wantOutput(filepath.Join(dir, "nproc"), "ran\n")
}
