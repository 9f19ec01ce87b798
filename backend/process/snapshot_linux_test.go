package process_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// importing is a program that may be forked and load what text imported.
func importing(program, text string) (backend.Process, interface{ String() string }) {
	p, out := forkable(program)
	p.Prestart.Fork.Load = []byte(text)
	return p, out
}

// made runs programs until the attempt to import has ended, and returns the attempt's error.
func made(t *testing.T, b *process.Backend, text string) error {
	t.Helper()
	_, _ = process.Tried(b)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		p, out := importing("print('pong')", text)
		if e, _, _ := begun(t, b, spec("import"), p, nil); e.Code != 0 || out.String() != "pong\n" {
			t.Fatalf("got %v, %q, want 0, pong", e, out)
		}
		if tried, err := process.Tried(b); tried {
			return err
		}
	}
	t.Fatal("nothing was imported within a minute")
	return nil
}

// where is the text of a module's import that tells in which sandbox it ran.
const where = "import posix\nat = (posix.readlink('/proc/self/ns/pid'), posix.stat('/dev/shm').st_ctime_ns)\n"

// TestForkLoadsWhatAnotherImported: on demand, and ahead in a ready sandbox, as a
// program and as a process that stays.
func TestForkLoadsWhatAnotherImported(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const program = "import posix; print('at' in globals() and at != (posix.readlink('/proc/self/ns/pid'), posix.stat('/dev/shm').st_ctime_ns), sorted(posix.listdir('/proc/self/fd'))[:-1], posix.getppid())"
	for name, change := range map[string][]func(*process.Config){"Usual": nil, "WithoutCgroup": {process.WithoutCgroup}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(change...)(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			if err := made(t, b.(*process.Backend), where); err != nil {
				t.Fatalf("got %v, want that it is imported ahead", err)
			}
			for i := range 6 {
				p, out := importing(program, where)
				if e, _, _ := begun(t, b, withPackages(spec("loaded")), p, nil); e.Code != 0 || out.String() != "True ['0', '1', '2'] 1\n" {
					t.Errorf("run %d: got %v %q, want True ['0', '1', '2'] 1", i, e, out)
				}
				if i == 2 { // the first ones forked on demand, the others are to find ready sandboxes
					until(t, b, "some", func(n int) bool { return n > 0 })
				}
			}
			p, out := forkable("print('at' in globals())")
			if e, _, _ := begun(t, b, spec("other"), p, nil); e.Code != 0 || out.String() != "False\n" {
				t.Errorf("one that imports nothing: got %v %q, want False", e, out)
			}
		})
	}
}

// TestHostileImportHarmsOnlyItself: whatever an import writes, says or does, the
// programs run, without it.
func TestHostileImportHarmsOnlyItself(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const (
		magic = "b'snpshot1' + (0).to_bytes(8, 'little') + (1 << 20).to_bytes(8, 'little') + (4000).to_bytes(8, 'little')"
		write = "import posix\nf = posix.open('/mnt/data/snapshot', posix.O_WRONLY | posix.O_CREAT, 0o600)\nposix.write(f, %)\nposix.write(4, b'R\\0\\0\\0')\nposix._exit(0)\n"
	)
	for name, c := range map[string]struct{ text, want string }{
		"Garbage":       {strings.Replace(write, "%", "b'x' * 100000", 1), "invalid argument"},
		"Empty":         {strings.Replace(write, "%", "b''", 1), "0 bytes"},
		"Operations":    {strings.Replace(write, "%", magic+" + b'\\2\\0\\0\\0\\7\\0\\0\\0' * 200000", 1), "cannot allocate memory"},
		"None":          {"import posix\nposix.write(4, b'R\\0\\0\\0')\nposix._exit(0)\n", "no such file"},
		"Link":          {"import posix\nposix.symlink('/proc/1/environ', '/mnt/data/snapshot')\nposix.write(4, b'R\\0\\0\\0')\nposix._exit(0)\n", "symbolic links"},
		"Pipe":          {"import posix\nposix.mkfifo('/mnt/data/snapshot')\nposix.write(4, b'R\\0\\0\\0')\nposix._exit(0)\n", "invalid argument"},
		"TooLarge":      {"import posix\nf = posix.open('/mnt/data/snapshot', posix.O_WRONLY | posix.O_CREAT, 0o600)\nposix.ftruncate(f, 300 << 20)\nposix.write(4, b'R\\0\\0\\0')\nposix._exit(0)\n", "want 1 to"},
		"Flood":         {"import posix\nfor i in range(100): posix.write(4, b'E' * 4096)\n", "failed"},
		"Dies":          {"import posix\nposix.kill(posix.getpid(), 9)\n", "has ended"},
		"Raises":        {"raise KeyError('x' * 100000)\n", "KeyError"},
		"Threads":       {"import _thread, time\n_thread.start_new_thread(time.sleep, (100,))\n", "there are threads"},
		"OnItsChannel":  {"import _socket\n_socket.socket(fileno=3).sendmsg([b'R'], [(1, 1, (0).to_bytes(4, 'little'))])\n", "broken pipe"},
		"Descriptor":    {"import posix\nkept = posix.open('/dev/null', posix.O_RDONLY)\n", "there are open files"}, // another file would get its number
		"AwaitsForever": {"import posix, time\nposix.register_at_fork(after_in_child=lambda: posix.getpid() == 3 and time.sleep(100))\n", "does not answer"},
		"SharedMemory":  {"import mmap\nkept = mmap.mmap(-1, 4096)\n", "a fork failed"}, // where there are no control groups it is refused
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			if err := made(t, b.(*process.Backend), c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if n := pool(b)["zygotes"]; n != 1 {
				t.Errorf("got %d zygotes, want 1", n)
			}
		})
	}
}

// TestImportThatFailsLater: one that can be loaded in the trial and not in a
// program's sandbox costs that program a moment and nothing else.
func TestImportThatFailsLater(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	for name, does := range map[string]string{"Hangs": "time.sleep(100)", "Dies": "posix.kill(posix.getpid(), 9)", "Stays": "posix.fork() or time.sleep(100)"} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			text := "import posix, time\nsize = posix.statvfs('/mnt/data').f_blocks\ndef later():\n    if posix.statvfs('/mnt/data').f_blocks != size: " + does + "\nposix.register_at_fork(after_in_child=later)\n"
			if err := made(t, b.(*process.Backend), text); err != nil {
				t.Fatalf("got %v, want that it is imported ahead", err)
			}
			for range 4 {
				p, out := importing("print('pong')", text)
				if e, _, _ := begun(t, b, spec("later"), p, nil); e.Code != 0 || out.String() != "pong\n" {
					t.Errorf("got %v %q, want 0, pong", e, out)
				}
			}
		})
	}
}

// withPackages says that the program imports packages, so that they may be loaded ahead.
func withPackages(s backend.Spec) backend.Spec {
	s.Loads = "a package"
	return s
}

// TestPackageCodeRunsBeforeNoOtherProgram: a program that imports nothing finds no file
// that package code wrote in a ready sandbox.
func TestPackageCodeRunsBeforeNoOtherProgram(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	const text = "import posix\ndef later():\n    for place in '/mnt/data', '/tmp':\n        posix.close(posix.open(place + '/json.py', posix.O_CREAT | posix.O_WRONLY))\nposix.register_at_fork(after_in_child=later)\n"
	for name, sp := range map[string]backend.Spec{"Announced": withPackages(spec("imports")), "Unannounced": spec("imports")} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()(t)
			defer func() { _ = b.Close(t.Context()) }()
			hatched(t, b, spec("warm"))
			if err := made(t, b.(*process.Backend), text); err != nil {
				t.Fatalf("got %v, want that it is imported ahead", err)
			}
			for range 3 {
				for range 3 {
					p, out := importing("import posix; print('json.py' in posix.listdir('/tmp'))", text)
					if e, _, _ := begun(t, b, sp, p, nil); e.Code != 0 || out.String() != "True\n" {
						t.Errorf("one that imports: got %v %q, want True", e, out)
					}
				}
				until(t, b, "some", func(n int) bool { return n > 0 })
				p, out := forkable("import posix; print(posix.listdir('/tmp') + posix.listdir('/mnt/data'))")
				if e, _, _ := begun(t, b, spec("other"), p, nil); e.Code != 0 || out.String() != "[]\n" {
					t.Errorf("one that imports nothing: got %v %q, want []", e, out)
				}
			}
		})
	}
}
