package backendtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// usageSane: Usage counts the processor time of programs, and no kill of programs that keep all
// limits. It does so after Kill too.
func usageSane(t *testing.T, s *suite) {
	x := s.open(t)
	if u := x.usage(t); u.OOMKills != 0 || u.CPU < 0 || len(u.Exceeded) != 0 {
		t.Errorf("Usage of a new sandbox: got %+v, want no kills and a time of 0 or more", u)
	}
	x.sh(t, "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	check := func(when string) {
		// the time of a process may be counted shortly after its end
		var u backend.Usage
		if !soon(t, patience, func() bool { u = x.usage(t); return u.CPU > 0 }) {
			t.Errorf("%s: got a processor time of %v, want more than 0", when, u.CPU)
		}
		if u.OOMKills != 0 || len(u.Exceeded) != 0 {
			t.Errorf("%s: got %d kills for %q, want none", when, u.OOMKills, u.Exceeded)
		}
	}
	check("alive")
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("killed")
}

// usageIsThatOfThePrograms: Usage is near to what a program has used of each kind, and below the
// limits.
func usageIsThatOfThePrograms(t *testing.T, s *suite) {
	x := s.open(t)
	e := x.run(t, x.python(t, `
import os, threading, time
b = bytearray(60 << 20)
for i in range(0, len(b), 4096): b[i] = 1
t = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(5)]
[i.start() for i in t]; [i.join() for i in t]
end = time.process_time() + 0.4
while time.process_time() < end: pass
`))
	if e.Exit != (backend.Exit{}) {
		t.Fatalf("the program failed: %+v %s", e.Exit, e.Err)
	}
	check := func(when string) {
		u := x.usage(t)
		if u.PeakMemory < 60*mib || u.PeakMemory > 256*mib {
			t.Errorf("%s: peak memory %d MiB, want 60 to 256", when, u.PeakMemory/mib)
		}
		if u.CPU < 350*time.Millisecond || u.CPU > 10*time.Second {
			t.Errorf("%s: CPU %v, want some 0.5 s", when, u.CPU)
		}
		if u.PeakTasks < 6 && s.o.LeastTasks <= 6 || u.PeakTasks > x.spec.MaxTasks {
			t.Errorf("%s: peak tasks %d, want 6 to %d", when, u.PeakTasks, x.spec.MaxTasks)
		}
		if u.OOMKills != 0 {
			t.Errorf("%s: %d kills for memory, want none", when, u.OOMKills)
		}
	}
	check("alive")
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("killed")
}

// memoryLimited: the sandbox gets no more memory of any kind than its limit. Its requests are
// refused, or its programs are ended and counted (D01).
func memoryLimited(t *testing.T, s *suite) {
	for _, kind := range []string{"anonymous", "shared", "memfd", "shm", "tmp", "children", "renamed", "leaderless", "outlived", "outlived tables"} {
		t.Run(kind, func(t *testing.T) {
			if !s.full() && (kind == "tmp" || kind == "shm") {
				s.lacks(t, "temporary files of its own")
			}
			limit := int64(96 * mib)
			if kind == "outlived tables" {
				limit = 128 * mib // the processes that read have up to 80 MiB of their own
			}
			x := s.open(t, func(p *backend.Spec) { p.MemoryBytes, p.TempBytes = limit, 160*mib })
			s.interlock(t, x)
			p := x.python(t, "d01-memory.py")
			p.Env = x.environment(map[string]string{"KIND": kind})
			e := x.run(t, p)
			pause(t, 50*time.Millisecond)
			u := x.usage(t)
			refused := strings.HasPrefix(e.Out, "refused")
			t.Logf("%+v %q, kills %d, peak %d MiB", e.Exit, strings.TrimSpace(e.Out), u.OOMKills, u.PeakMemory/mib)
			switch {
			case u.OOMKills > 0:
			case !s.o.HeldLimits && refused:
			case strings.HasPrefix(kind, "outlived") && s.o.HeldLimits: // the programs wait for memory until it is free
			default:
				t.Errorf("neither ended for memory nor refused: %+v %q %q", e.Exit, e.Out, e.Err)
			}
			if s.o.HeldLimits && u.PeakMemory > limit+mib {
				t.Errorf("peak memory %d MiB, limit %d", u.PeakMemory/mib, limit/mib)
			}
		})
	}
}

// spawningIsNoMemory: a program that starts others often has one copy of its memory, also while a child shares it until it
// executes another program, and beside forks that live shortly.
func spawningIsNoMemory(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.MemoryBytes = 128 * mib })
	s.interlock(t, x)
	e := x.run(t, x.python(t, `
import ctypes, os, subprocess, sys, threading
kept = bytearray(os.urandom(1 << 20)) * 70
def spawn():
    for i in range(120):
        subprocess.run(["/bin/sh", "-c", ":"], check=True)
        if i % 10 == 0 and os.fork() == 0:
            os._exit(0)
    for _ in range(12): os.wait()
spawn()
def last():
    try: spawn(); os.write(1, b"%d\n" % (len(kept) >> 20))
    finally: os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)  # the first thread ends
`))
	if u := x.usage(t); e.Out != "70\n" || u.OOMKills != 0 {
		t.Errorf("got %q %q (%+v, %d kills, peak %d MiB), want 70 and no kill", e.Out, e.Err, e.Exit, u.OOMKills, u.PeakMemory/mib)
	}
	x = s.open(t, func(p *backend.Spec) { p.MemoryBytes = 256 * mib })
	e = x.run(t, x.python(t, `
import os
kept = bytearray(os.urandom(1 << 20)) * 150
for _ in range(100):
    forks = []
    for _ in range(4):
        forks.append(os.fork())
        if forks[-1] == 0:
            sum(kept[:50000])
            os._exit(0)
    for f in forks: os.waitpid(f, 0)
print(len(kept) >> 20)
`))
	if u := x.usage(t); e.Out != "150\n" || u.OOMKills != 0 {
		t.Errorf("with short forks: got %q %q (%+v, %d kills, peak %d MiB), want 150 and no kill", e.Out, e.Err, e.Exit, u.OOMKills, u.PeakMemory/mib)
	}
}

// fullDisk: writing to a full working directory fails with a file system error, and programs can
// still run. Payload D03 fills every writable directory.
func fullDisk(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a quota")
	}
	x := s.open(t, func(p *backend.Spec) { p.MemoryBytes, p.WorkBytes = 128*mib, 400*mib }) // Open reduces a quota above the memory limit
	s.interlock(t, x)
	e := x.run(t, x.python(t, `
import errno, os
n, fd = 0, os.open(os.environ["WORK"] + "/fill", os.O_CREAT | os.O_WRONLY)
try:
    while n < 500 << 20: n += os.write(fd, b"x" * (1 << 20))
    print("no limit")
except OSError as e:
    print(errno.errorcode[e.errno], n <= 64 << 20)
`))
	if u := x.usage(t); e.Out != "ENOSPC True\n" || u.OOMKills != 0 {
		t.Errorf("got %q (%+v, %d kills), want ENOSPC within half the memory", e.Out, e.Exit, u.OOMKills)
	}
}

// tasksPerSandbox: a sandbox that uses all of its tasks takes none from another (D02).
func tasksPerSandbox(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a limit of tasks that the kernel holds for each sandbox")
	}
	greedy := s.open(t)
	s.interlock(t, greedy)
	const count = `
import os, sys, time
n = 0
for _ in range(300):
    try:
        if os.fork() == 0: time.sleep(20); os._exit(0)
        n += 1
    except OSError: break
print(n, flush=True)
time.sleep(20)
`
	_, out, errs := greedy.start(t, greedy.python(t, count))
	_, out2, _ := s.open(t).start(t, greedy.python(t, count))
	if !soon(t, patience, func() bool { return out.String() != "" && out2.String() != "" }) {
		t.Fatalf("no answer: %q %q", out.String(), errs.String())
	}
	for _, got := range []string{out.String(), out2.String()} {
		if got != "63\n" && got != "62\n" {
			t.Errorf("children: got %s, want the limit of %d less the process itself", strings.TrimSpace(got), greedy.spec.MaxTasks)
		}
	}
	if u := greedy.usage(t); u.PeakTasks > greedy.spec.MaxTasks {
		t.Errorf("peak tasks %d, limit %d", u.PeakTasks, greedy.spec.MaxTasks)
	}
}

func cpuTime(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.CPUTime = time.Second })
	r, _, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "trap '' XCPU; while :; do :; done"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e, err := r.Wait(ctx)
	if err != nil || e.Signal != 9 && e.Signal != 24 {
		t.Errorf("a busy loop beyond its CPU time: %+v, %v", e, err)
	}
}

// cpuQuota: if a quota is reported, two busy processes get that much and no more (D09).
func cpuQuota(t *testing.T, s *suite) {
	x := s.open(t, func(p *backend.Spec) { p.CPUCores = 0.5 })
	iso, err := x.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(iso.Walls, func(w string) bool { return strings.HasPrefix(w, "cpu quota") }) {
		if s.o.HeldLimits {
			t.Errorf("no CPU quota among the walls: %q", iso.Walls)
		}
		return
	}
	begin := time.Now()
	x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "(while :; do :; done) & while :; do :; done"}})
	pause(t, 2*time.Second)
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	wall := time.Since(begin)
	if got, most := x.usage(t).CPU, time.Duration(0.5*1.3*float64(wall))+150*time.Millisecond; got > most {
		t.Errorf("half a core for %v: took %v, want at most %v", wall, got, most)
	}
}

// cpuShareHoldsForContinued: a program that continues itself whenever it is stopped gets no more than
// its share. Without a quota of the kernel it is ended (D22).
func cpuShareHoldsForContinued(t *testing.T, s *suite) {
	if !s.full() {
		s.lacks(t, "a process that can stop its programs")
	}
	x := s.open(t, func(p *backend.Spec) { p.CPUCores = 0.25 })
	s.interlock(t, x)
	e := x.run(t, x.python(t, "d22-continued.py"))
	u := x.usage(t)
	if s.o.HeldLimits {
		if e.Out != "burned\n" || len(u.Exceeded) != 0 {
			t.Errorf("got %+v %q %q, exceeded %q, want that the kernel holds its share", e.Exit, e.Out, e.Err, u.Exceeded)
		}
		return
	}
	if e.Exit.Signal != 9 || len(u.Exceeded) != 1 || !strings.Contains(u.Exceeded[0], "continue themselves") {
		t.Errorf("got %+v %q %q, exceeded %q, want it ended because it continues itself", e.Exit, e.Out, e.Err, u.Exceeded)
	}
}

// lostTimeIsUsed: the processor time of processes that are never waited for counts as the sandbox's
// (D20).
func lostTimeIsUsed(t *testing.T, s *suite) {
	x := s.open(t)
	s.interlock(t, x)
	e := x.run(t, x.python(t, "d20-unwaited.py"))
	if e.Out != "burned\n" {
		t.Fatalf("exit %+v, %q %q", e.Exit, e.Out, e.Err)
	}
	if got := x.usage(t).CPU; got < time.Second { // the processes have used 1.5 s
		t.Errorf("CPU time: got %v, want at least 1s", got)
	}
}
