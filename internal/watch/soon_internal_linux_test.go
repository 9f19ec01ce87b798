package watch

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestACountThatWaitsDelaysNoOther: a program can hold what the count of its sandbox waits for. The count then
// goes on beside those of other sandboxes.
func TestACountThatWaitsDelaysNoOther(t *testing.T) {
	free, began := make(chan struct{}), 0
	var b beside[int]
	count := func() int { began++; <-free; return 7 }
	for range 3 {
		if _, done := b.ask(count); done {
			t.Fatal("a count that waits: got it done")
		}
	}
	close(free)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if n, done := b.ask(count); done {
			if n != 7 || began != 1 {
				t.Errorf("got %d of %d counts, want 7 of 1", n, began)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the count is not done")
		}
	}
}

// TestCountsThatProgramsHoldAreFound: a sandbox whose count stands still, or waits for many sets, is ended.
func TestCountsThatProgramsHoldAreFound(t *testing.T) {
	now := time.Now()
	var p progress
	look := func(after time.Duration) bool { now = now.Add(after); return p.stalls(now, false) }
	for range 5 {
		if p.begin(now); look(mostStill / 2) {
			t.Fatal("a count that has just begun stalls")
		}
		if p.steps.Add(1); look(2 * mostStill) {
			t.Fatal("a count that has read something stalls")
		}
		if p.stalls(now.Add(2*mostStill), true) {
			t.Error("a count that has ended stalls")
		}
		if !look(2 * mostStill) {
			t.Error("a count that has read nothing for long does not stall")
		}
		if look(2 * mostStill) {
			t.Error("a count stalls twice")
		}
	}
	p.begin(now)
	for range mostSlow {
		p.read(time.Second)
	}
	if p.read(time.Millisecond); look(0) {
		t.Errorf("a count that has waited for %d sets stalls", mostSlow)
	}
	if p.read(time.Second); !look(0) {
		t.Error("a count that has waited for more sets does not stall")
	}
	if p.begin(now); look(0) {
		t.Error("the next count stalls")
	}
}

// TestDirectoriesAreFound: open directories are told from other descriptors.
func TestDirectoriesAreFound(t *testing.T) {
	self := []string{strconv.Itoa(os.Getpid())}
	before := 0
	for excessOfDirectories(self, before) != "" {
		before++
	}
	var held [3]*os.File
	for i := range held {
		var err error
		if held[i], err = os.Open("/"); err != nil {
			t.Fatal(err)
		}
	}
	if excessOfDirectories(self, before+len(held)-1) == "" {
		t.Errorf("%d more directories are not found", len(held))
	}
	if got := excessOfDirectories(self, before+len(held)); got != "" {
		t.Errorf("at the bound: got %q, want no excess", got)
	}
	for _, f := range held {
		_ = f.Close()
	}
}

// TestDirectoriesWithoutTheFirstThreadAreFound: a process goes on when its first thread has ended. The kernel shows its
// descriptors only at the other threads.
func TestDirectoriesWithoutTheFirstThreadAreFound(t *testing.T) {
	python, err := exec.LookPath("python3")
	testkit.Need(t, "python", err == nil, "no python3")
	const held = 8
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import ctypes, os, platform, threading, time
held = [os.open("/", os.O_RDONLY) for _ in range(`+strconv.Itoa(held)+`)]
def stays():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.001)
    print("alone", flush=True)
    time.sleep(600)
threading.Thread(target=stays).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)
`)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "alone\n" {
		t.Fatalf("got %q, %v, want that the first thread ends", line, err)
	}
	process := []string{strconv.Itoa(cmd.Process.Pid)}
	if excessOfDirectories(process, held-1) == "" {
		t.Errorf("%d directories are not found", held)
	}
	if got := countFiles(filesOf(process[0])); got < held {
		t.Errorf("got %d descriptors, want %d at least", got, held)
	}
}

// TestASandboxThatEndsSlowlyDelaysNoOther: programs are ended beside the counts of other sandboxes, and once.
func TestASandboxThatEndsSlowlyDelaysNoOther(t *testing.T) {
	o, free, reasons := NewObjects(0), make(chan struct{}), make(chan string, 3)
	s := &Target{End: func(excess string) { reasons <- excess; <-free }}
	o.end(s, "first")
	o.end(s, "second")
	close(free)
	o.Wait()
	o.end(s, "third")
	o.Wait()
	close(reasons)
	var got []string
	for r := range reasons {
		got = append(got, r)
	}
	if len(got) != 2 || got[0] != "first" || got[1] != "third" {
		t.Errorf("got programs ended for %q, want [first third]", got)
	}
}

// TestARestDelaysNoOther: a sandbox that is ahead of its share of the server's time is counted later.
func TestARestDelaysNoOther(t *testing.T) {
	s := &Target{tablesFrom: time.Now().Add(time.Hour), Hold: func() (func(), error) {
		t.Error("it is counted during its rest")
		return nil, os.ErrClosed
	}}
	if got := s.overTables(); got != "" || s.counted >= 0 {
		t.Errorf("during a rest: got %q and a count at %v, want none and a count at the next look", got, s.counted)
	}
}
