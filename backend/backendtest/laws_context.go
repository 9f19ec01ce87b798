package backendtest

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// endedContexts: a method called with a context that has ended does nothing and fails with the
// context's error. Only Close does its work.
func endedContexts(t *testing.T, s *suite) {
	x := s.open(t)
	r, _, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "echo x > file; echo up; sleep 30; :"}})
	var err error
	if !soon(t, patience, func() bool { _, err = x.Files().Stat(t.Context(), "file"); return err == nil }) {
		t.Fatalf("the program does not come up: Stat of its file fails with %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	files := x.Files()
	for name, call := range map[string]func() error{
		"Start":      func() error { _, err := x.Start(ended, backend.Process{Argv: []string{"/bin/true"}}); return err },
		"Provide":    func() error { return x.Provide(ended, []backend.ProgramFile{{Name: "provided"}}) },
		"Isolation":  func() error { _, err := x.Isolation(ended); return err },
		"Usage":      func() error { _, err := x.Usage(ended); return err },
		"Clear":      func() error { return x.Clear(ended) },
		"Kill":       func() error { return x.Kill(ended) },
		"Signal":     func() error { return r.Signal(ended, 9) },
		"Interrupt":  func() error { return r.Interrupt(ended) },
		"Wait":       func() error { _, err := r.Wait(ended); return err },
		"Flush":      func() error { return r.Flush(ended) },
		"Drain":      func() error { return r.Drain(ended) },
		"Open":       func() error { _, err := files.Open(ended, "file"); return err },
		"List":       func() error { _, _, err := files.List(ended, ".", 10); return err },
		"Stat":       func() error { _, err := files.Stat(ended, "file"); return err },
		"Put":        func() error { return files.Put(ended, "put", nil, false) },
		"Mkdir":      func() error { return files.Mkdir(ended, "made") },
		"Rename":     func() error { return files.Rename(ended, "file", "other", true) },
		"Attach":     func() error { return x.Attach(ended, backend.Tree{Host: "/usr", Inside: backend.PackageDir + "/usr"}) },
		"Freeze":     func() error { return x.Freeze(ended) },
		"Thaw":       func() error { return x.Thaw(ended) },
		"Dial":       func() error { _, err := x.Dial(ended, 80); return err },
		"Resize":     func() error { return r.Resize(ended, backend.TerminalSize{}) },
		"WriteStdin": func() error { _, err := r.WriteStdin(ended, []byte("x")); return err },
		"CloseStdin": func() error { return r.CloseStdin(ended) },
		"Watch":      func() error { _, err := files.Watch(ended, "."); return err },
		"Remove":     func() error { return files.Remove(ended, "file") },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", name, err, context.Canceled)
		}
	}
	if list, _, err := files.List(t.Context(), ".", 10); err != nil || len(list) != 1 || list[0].Name != "file" {
		t.Errorf("files afterwards: got %+v, %v, want file", list, err)
	}
	if err := r.Signal(t.Context(), 9); err != nil {
		t.Errorf("the process has ended: %v", err)
	}
	if err := x.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	if err := x.Close(t.Context()); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if _, err := x.Usage(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Usage after Close: got %v, want %v", err, fs.ErrClosed)
	}
}
