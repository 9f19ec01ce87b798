package process_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestJobsStayStopped: while other processes fork and share memory, the watch often stops and continues the programs. A process
// that a program has stopped stays stopped, even if it had not executed its first instruction. The test allows a few to go on,
// because the watch cannot always tell whether it or a program has stopped a process.
func TestJobsStayStopped(t *testing.T) {
	besideForks(t, `
went = 0
for n in range(100):
    p = os.fork()
    while p == 0: signal.pause()
    os.kill(p, signal.SIGSTOP)
    end = time.monotonic() + 1
    while time.monotonic() < end and not os.waitpid(p, os.WUNTRACED | os.WNOHANG)[0]: time.sleep(.0005)
    time.sleep(n % 20 / 400)
    if state(p) != "T":
        time.sleep(.05) # the watch stops it again
        went += state(p) != "T"
    os.kill(p, signal.SIGKILL)
    os.waitpid(p, 0)
os.kill(forks, signal.SIGKILL)
print("few" if went < 20 else f"{went} of 100", end="")
`)
}

// TestJobsAreNotContinued: the watch does not continue what a program has stopped, also not for a moment: a program that continues it in
// that moment would find it stopped afterwards. The test allows a few to go on, because a late measurement stops the programs without
// looking which of them are stopped.
func TestJobsAreNotContinued(t *testing.T) {
	besideForks(t, `
def turns(p):
    with open(f"/proc/{p}/status") as f: return f.read().partition("voluntary_ctxt_switches")[2]
def job():
    p = os.fork()
    while p == 0: signal.pause()
    return p
went = 0
for n in range(25):
    jobs = [job() for _ in range(4)]
    for p in jobs:
        while state(p) != "S": time.sleep(.001)
        os.kill(p, signal.SIGSTOP)
        end = time.monotonic() + 1
        while state(p) != "T" and time.monotonic() < end: time.sleep(.001)
    went += sum(state(p) != "T" for p in jobs)
    before = [turns(p) for p in jobs]
    time.sleep(.15)
    went += sum(turns(p) != b for p, b in zip(jobs, before))
    for p in jobs:
        os.kill(p, signal.SIGKILL)
        os.waitpid(p, 0)
os.kill(forks, signal.SIGKILL)
print("few" if went < 20 else f"{went} of 100", end="")
`)
}

// besideForks runs a program of Python beside forks that share memory, without a control group. It has to print "few".
func besideForks(t *testing.T, program string) {
	t.Helper()
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend(process.WithoutCgroup)(t)
	defer func() { _ = b.Close(t.Context()) }()
	const forks = `
import os, signal, time
def state(p):
    with open(f"/proc/{p}/stat") as f: return f.read().rpartition(")")[2].split()[0]
shared = b"1" * (24 << 20)
forks = os.fork()
while forks == 0:
    if os.fork() == 0:
        time.sleep(.03)
        os._exit(0)
    time.sleep(.005)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
`
	sb, err := b.Open(t.Context(), spec("jobs"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	var out, errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-I", "-c", forks + program}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	err = errors.Join(err, r.Flush(t.Context()))
	if got := strings.TrimSpace(out.String()); err != nil || got != "few" {
		t.Errorf("stopped processes that went on: got %q, %+v, %v, %q, want few", got, e, err, errs.String())
	}
}
