package backendtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// clearKeepsTheSandbox: Clear ends every process, also one that has left its parent and ignores
// signals, and the sandbox can still be used.
func clearKeepsTheSandbox(t *testing.T, s *suite) {
	x := s.open(t)
	r, out, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", `
		echo kept > kept
		(trap '' TERM HUP INT; setsid sleep 60 & setsid sleep 60 & echo up; sleep 60) &
		wait`}})
	if !soon(t, patience, func() bool { return strings.Contains(out.String(), "up") }) {
		t.Fatal("the processes did not start")
	}
	for range 3 { // with processes in it, and without
		if err := x.Clear(t.Context()); err != nil {
			t.Fatalf("Clear: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{Signal: 9}) {
		t.Errorf("Wait after Clear: %+v, %v; want signal 9, and that nothing is lost", e, err)
	}
	if err := r.Drain(ctx); err != nil {
		t.Errorf("Drain after Clear: %v", err)
	}
	if got, want := x.sh(t, "cat kept; ls /proc 2>/dev/null | grep -c '^[0-9]*$' || true"), "kept\n"; !strings.HasPrefix(got, want) {
		t.Errorf("after Clear: %q, want %q", got, want)
	}
	if s.full() { // only init, sh, ls and grep may run
		if got := x.sh(t, "ls /proc | grep -c '^[0-9]*$'"); strings.TrimSpace(got) > "4" {
			t.Errorf("%s processes are left", strings.TrimSpace(got))
		}
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatalf("Kill: %v", err)
	}
	if _, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/true"}, Env: x.environment(nil), Stdout: io.Discard, Stderr: io.Discard}); err == nil {
		t.Error("a process was started after Kill")
	}
}

// flushHandsOn: after Flush, the writers have all output from before the program wrote to its
// channel. The program continues.
func flushHandsOn(t *testing.T, s *suite) {
	x := s.open(t)
	r, out, errs := x.start(t, backend.Process{
		Argv:     []string{"/bin/sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo out$i; echo err$i >&2; echo >&3; read go <&4; done; sleep 60`},
		Channels: 2,
	})
	ch := r.Channel(0)
	b := make([]byte, 1)
	for n := 1; n <= 20; n++ {
		if _, err := io.ReadFull(ch, b); err != nil {
			t.Fatalf("channel: %v", err)
		}
		if err := r.Flush(t.Context()); err != nil {
			t.Fatalf("Flush: %v", err)
		}
		if got, also := strings.Count(out.String(), "\n"), strings.Count(errs.String(), "\n"); got != n || also != n {
			t.Fatalf("after line %d: %d and %d lines", n, got, also)
		}
		if _, err := ch.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
	}
}

// putIsOneStep: a file exists completely or not at all, and names cannot lead elsewhere.
func putIsOneStep(t *testing.T, s *suite) {
	x := s.open(t)
	ctx, files := t.Context(), x.Files()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	for name, data := range map[string][]byte{"empty": {}, "a": []byte("one\n"), "sub/dir/b": []byte("two\n"), "big": big, ".hidden": []byte("x")} {
		if err := files.Put(ctx, name, data, false); err != nil {
			t.Fatalf("Put %s: %v", name, err)
		}
		if err := files.Put(ctx, name, []byte("other"), false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Put %s again: %v, want %v", name, err, fs.ErrExist)
		}
		if st, err := files.Stat(t.Context(), name); err != nil || st.Size != int64(len(data)) || !st.Mode.IsRegular() {
			t.Errorf("Stat %s: %+v, %v", name, st, err)
		}
	}
	if got, want := x.sh(t, "cat a sub/dir/b; wc -c < big; echo more >> a; cat a"), "one\ntwo\n4194304\none\nmore\n"; got != want {
		t.Errorf("inside: %q, want %q", got, want)
	}
	if err := files.Put(ctx, "a", []byte("new\n"), true); err != nil {
		t.Errorf("Put with overwrite: %v", err)
	}
	x.sh(t, `ln -s /etc/passwd link; ln -s .. up; mkfifo fifo; mkdir full; touch full/x`)
	for _, name := range []string{"up/x", "../x", "/x", "link/x", "full", "a/x", "", ".", ".."} {
		if err := files.Put(ctx, name, []byte("x"), true); err == nil {
			t.Errorf("Put %q: no error", name)
		}
	}
	for _, name := range []string{"link", "fifo"} { // the name is replaced, and its old target is unchanged
		if err := files.Put(ctx, name, []byte("mine\n"), true); err != nil {
			t.Errorf("Put %s: %v", name, err)
		}
	}
	if got, want := x.sh(t, "cat a link fifo; ls -A | sort | tr '\\n' ' '"), "new\nmine\nmine\n.hidden a big empty fifo full link sub up "; got != want {
		t.Errorf("inside: %q, want %q", got, want)
	}
	if err := files.Remove(t.Context(), "link"); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if _, err := files.Stat(t.Context(), "link"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of what was removed: %v", err)
	}
	if st, err := files.Stat(t.Context(), "up"); err != nil || st.Mode&fs.ModeSymlink == 0 {
		t.Errorf("Stat of a link: %+v, %v", st, err)
	}
	if !s.full() {
		return
	}
	if err := files.Put(ctx, "too-big", make([]byte, x.spec.WorkBytes+1), false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Put of more than the quota: %v, want %v", err, syscall.ENOSPC)
	}
	if got := x.sh(t, "ls -A | grep -c put || true"); got != "0\n" {
		t.Errorf("something is left of it: %s", got)
	}
}
