package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// endings are the two methods that end every process of a sandbox.
var endings = map[string]func(backend.Sandbox, context.Context) error{
	"Kill": backend.Sandbox.Kill, "Clear": backend.Sandbox.Clear,
}

// deafLife is the lifetime in seconds of the programs in the laws of Kill and Clear.
// endLimit is how long Kill or Clear may take. It is much shorter, so that a backend that waits
// until they end by themselves fails.
const (
	deafLife = 150
	endLimit = time.Minute
)

// deafScript is a shell script that ignores signals and does no harm. It starts a program in its own
// group, one in a session of its own, and one in a session of its own whose parent has ended. The
// marker is the script's first argument.
var deafScript = fmt.Sprintf(`trap '' HUP INT QUIT TERM USR1 USR2
sh -c 'sleep %[1]d; :' "$0" &
setsid sh -c 'sleep %[1]d; :' "$0" &
(setsid sh -c 'echo daemon; sleep %[1]d; :' "$0" &)
echo up; sleep %[1]d; :`, deafLife)

// startDeaf starts deafScript and waits until all of its programs run.
func (x *box) startDeaf(t *testing.T, marker string) backend.Running {
	t.Helper()
	r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", deafScript, marker}})
	up := func() bool {
		return strings.Contains(out.String(), "up\n") && strings.Contains(out.String(), "daemon\n") && len(Alive(marker)) >= 4
	}
	if !soon(t, patience, up) {
		t.Fatalf("the programs do not come up: got %q %q and processes %v, want 4", out.String(), errs.String(), Alive(marker))
	}
	return r
}

// endsDeafPrograms: Kill and Clear end programs that ignore signals, have left their session, or
// have lost their parent. They do not wait until such a program ends by itself.
func endsDeafPrograms(t *testing.T, s *suite) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			x, marker := s.open(t), "deaf-"+rand.Text()
			r := x.startDeaf(t, marker)
			ctx, cancel := context.WithTimeout(t.Context(), endLimit)
			defer cancel()
			begin := time.Now()
			if err := end(x.Sandbox, ctx); err != nil {
				t.Errorf("%s: got %v, want nil", name, err)
			}
			if took := time.Since(begin); took > endLimit {
				t.Errorf("%s: got an answer after %v, want it within %v", name, took, endLimit)
			}
			gone(t, marker)
			if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{Signal: 9, Lost: name == "Kill"}) {
				t.Errorf("Wait after %s: got %+v, %v, want signal 9, and lost after Kill only", name, e, err)
			}
			if err := r.Drain(ctx); err != nil {
				t.Errorf("Drain after %s: got %v, want nil", name, err)
			}
		})
	}
}

// brief is a context that ends when its method Done is called for the first time.
type brief struct {
	context.Context //nolint:containedctx // it is one

	once   sync.Once
	cancel context.CancelFunc
}

func (b *brief) Done() <-chan struct{} {
	b.once.Do(b.cancel)
	return b.Context.Done()
}

// endsOrSaysSo: if the context of Kill or Clear ends during the call, they either have ended every
// process nonetheless, or return the context's error.
func endsOrSaysSo(t *testing.T, s *suite) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				x, marker := s.open(t), "brief-"+rand.Text()
				x.startDeaf(t, marker)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := end(x.Sandbox, &brief{Context: ctx, cancel: cancel})
				left := Alive(marker)
				switch {
				case err == nil && len(left) > 0:
					t.Errorf("%s with a context that ends meanwhile: got nil and the processes %v, want %v", name, left, context.Canceled)
				case err != nil && !errors.Is(err, context.Canceled):
					t.Errorf("%s with a context that ends meanwhile: got %v, want %v", name, err, context.Canceled)
				}
				long, stop := context.WithTimeout(t.Context(), endLimit)
				defer stop()
				if err := x.Kill(long); err != nil {
					t.Errorf("Kill afterwards: got %v, want nil", err)
				}
				gone(t, marker)
			}
		})
	}
}

// endedSandboxTakesNothing: after Kill nothing is started, made or renamed in a sandbox. Its files
// can be read and removed.
func endedSandboxTakesNothing(t *testing.T, s *suite) {
	x := s.open(t)
	x.sh(t, `printf kept > "$WORK/kept"; printf old > "$WORK/old"`)
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, files := t.Context(), x.Files()
	for name, call := range map[string]func() error{
		"Start": func() error {
			_, err := x.Start(ctx, backend.Process{Argv: []string{"/bin/sh", "-c", ":"}, Env: x.environment(nil)})
			return err
		},
		"Put":              func() error { return files.Put(ctx, "put", []byte("x"), false) },
		"Put of nothing":   func() error { return files.Put(ctx, "empty", nil, false) },
		"Put in its place": func() error { return files.Put(ctx, "kept", []byte("x"), true) },
		"Mkdir":            func() error { return files.Mkdir(ctx, "made") },
		"Rename":           func() error { return files.Rename(ctx, "kept", "renamed", false) },
	} {
		if err := call(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Kill: got %v, want %v", name, err, fs.ErrClosed)
		}
	}
	if err := files.Remove(ctx, "old"); err != nil {
		t.Errorf("Remove after Kill: got %v, want nil", err)
	}
	list, _, err := files.List(ctx, ".", 10)
	if err != nil || len(list) != 1 || list[0].Name != "kept" || list[0].Size != 4 {
		t.Errorf("files after Kill: got %+v, %v, want the old kept", list, err)
	}
}

// interruptReachesTheGroup: Interrupt sends SIGINT to the process and to the others of its group.
func interruptReachesTheGroup(t *testing.T, s *suite) {
	x := s.open(t)
	r, out, errs := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", `trap 'echo parent; exit 8' INT
		/bin/sh -c 'trap "echo child; exit 0" INT; echo up; while :; do sleep 0.05; done'
		echo none; exit 9`}})
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatalf("the programs do not come up: %q %q", out.String(), errs.String())
	}
	if err := r.Interrupt(t.Context()); err != nil {
		t.Errorf("Interrupt: got %v, want nil", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), endLimit)
	defer cancel()
	if e, err := r.Wait(ctx); err != nil || e != (backend.Exit{Code: 8}) {
		t.Errorf("Wait after Interrupt: got %+v, %v, want code 8", e, err)
	}
	if err := x.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(ctx); err != nil || out.String() != "up\nchild\nparent\n" {
		t.Errorf("output: got %q, %v, want a line of the child and then one of the parent", out.String(), err)
	}
}
