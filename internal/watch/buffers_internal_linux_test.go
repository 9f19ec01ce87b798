package watch

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// piped makes a pipe with n bytes.
func piped(t *testing.T, n int) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err == nil {
		t.Cleanup(func() { _, _ = read.Close(), write.Close() })
		_, err = write.Write(make([]byte, n))
	}
	if err != nil {
		t.Fatal(err)
	}
	return read, write
}

// holding starts a process that has these files and no other pipes, and returns its id. The pipes of this process are no measure:
// what it has written to its output may have been read or not.
func holding(t *testing.T, files ...*os.File) string {
	t.Helper()
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil { // descriptors that the tests were started with
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.ExtraFiles = files
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return strconv.Itoa(cmd.Process.Pid)
}

// TestPipesCountWithWhatTheyMayHold: a pipe counts once, however many descriptors it has. It counts with its whole size if a
// byte waits in it, and with smallPipe if it is empty. The same holds for a named pipe.
func TestPipesCountWithWhatTheyMayHold(t *testing.T) {
	empty, toEmpty := piped(t, 0)
	full, toFull := piped(t, 1)
	name := filepath.Join(t.TempDir(), "p")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	named, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = named.Close() }()
	for what, c := range map[string]struct {
		files []*os.File
		want  int64
	}{
		"nothing":                 {nil, 0},
		"an empty pipe":           {[]*os.File{empty, toEmpty}, smallPipe},
		"no writer":               {[]*os.File{empty}, smallPipe},
		"a pipe with a byte":      {[]*os.File{full, toFull}, pipeBytes},
		"another descriptor":      {[]*os.File{full, toFull, full}, pipeBytes},
		"one descriptor":          {[]*os.File{full}, pipeBytes},
		"a pipe with a name":      {[]*os.File{named}, smallPipe},
		"all pipes of this table": {[]*os.File{empty, full, named}, pipeBytes + 2*smallPipe},
	} {
		if got := newPipes().of(holding(t, c.files...)); got != c.want {
			t.Errorf("%s: got %d bytes, want %d", what, got, c.want)
		}
	}
	known := newPipes()
	if first, second := known.of(holding(t, empty, full)), known.of(holding(t, full, empty)); first != pipeBytes+smallPipe || second != 0 {
		t.Errorf("of two processes that share all pipes: got %d and %d bytes, want %d, and none for the second", first, second, pipeBytes+smallPipe)
	}
	if got := newPipes().of("0"); got != 0 {
		t.Errorf("of no process: got %d bytes, want none", got)
	}
	if self := strconv.Itoa(os.Getpid()); isZombie(self) || !isZombie("0") {
		t.Error("got this process as ended, or a process 0, want neither")
	}
	if got := inPipe(-1, "0"); got != pipeBytes {
		t.Errorf("a pipe that the kernel does not show: got %d bytes, want %d", got, pipeBytes)
	}
}

// diagMessage is a message of a list of sockets.
func diagMessage(kind uint16, body []byte) []byte {
	ne := binary.NativeEndian
	m := ne.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = ne.AppendUint16(m, kind)
	m = append(append(m, make([]byte, 10)...), body...)
	return append(m, make([]byte, -len(m)&3)...)
}

// TestListsOfSocketsAreRead: the bytes of all senders are added up. A list that is cut off or malformed causes no panic.
func TestListsOfSocketsAreRead(t *testing.T) {
	ne := binary.NativeEndian
	socket := func(sent uint32) []byte {
		b := append(make([]byte, diagHead), 6, 0, 7, 0, 1, 1, 0, 0) // another attribute, and its padding
		b = ne.AppendUint16(ne.AppendUint16(b, 4+36), diagMemory)
		for i := range uint32(9) {
			b = ne.AppendUint32(b, map[uint32]uint32{diagSent: sent}[i])
		}
		return diagMessage(diagByFamily, b)
	}
	done, refused := diagMessage(unix.NLMSG_DONE, make([]byte, 4)), diagMessage(unix.NLMSG_ERROR, ne.AppendUint32(nil, ^uint32(unix.ENOENT)+1))
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, c := range map[string]struct {
		packet  []byte
		queued  int64
		sockets int
		done    bool
		err     error
	}{
		"Two":         {join(socket(1000), socket(500)), 1500, 2, false, nil},
		"Last":        {join(socket(7), done), 7, 1, true, nil},
		"NoMemory":    {diagMessage(diagByFamily, make([]byte, diagHead)), 0, 1, false, nil},
		"Refused":     {refused, 0, 0, true, unix.ENOENT},
		"ShortSocket": {diagMessage(diagByFamily, make([]byte, 3)), 0, 1, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			queued, sockets, done, err := queuedIn(c.packet)
			if queued != c.queued || sockets != c.sockets || done != c.done || !errors.Is(err, c.err) {
				t.Errorf("got %d bytes in %d sockets, done %t, %v, want %d in %d, %t, %v", queued, sockets, done, err, c.queued, c.sockets, c.done, c.err)
			}
		})
	}
	whole := join(socket(1000), socket(500), done)
	for n := range whole {
		for at := range n { // neither a list that is cut off nor a changed one may cause a panic
			changed := append([]byte(nil), whole[:n]...)
			changed[at] ^= 0xff
			_, _, _, _ = queuedIn(changed)
		}
	}
}

// TestBuffersThatCannotMatterAreNotCounted: buffers are not counted if there is no program, if the programs have not run for
// some time, or if all descriptors together could not hold what is left of the limit.
func TestBuffersThatCannotMatterAreNotCounted(t *testing.T) {
	now := map[string]seen{"init": {path: strconv.Itoa(os.Getppid())}}
	w := &Group{outside: true, plain: true, limits: Limits{MemoryBytes: 1 << 40}}
	if got := w.buffered(now, idleCPU, 0); got != 0 || !w.buffers.pipes.at.IsZero() {
		t.Errorf("without a program: got %d bytes, want no count", got)
	}
	now["a"] = seen{path: strconv.Itoa(os.Getpid())}
	if got := w.buffered(now, idleCPU/2, 1<<40); got != 0 || w.buffers.pipes.counted != 0 {
		t.Errorf("at first: got %d bytes, counted after %v, want no count", got, w.buffers.pipes.counted)
	}
	if got := w.buffered(now, idleCPU, 1<<40); got != 0 || w.buffers.pipes.counted != idleCPU || !w.buffers.pipes.sure {
		t.Errorf("later: got %d bytes, counted after %v, want a count that reads no pipe", got, w.buffers.pipes.counted)
	}
	if n := w.descriptorsOf(strconv.Itoa(os.Getpid())); n < 3 || n > 10000 {
		t.Errorf("got %d descriptors, want some", n)
	}
}

// TestCountsOfBuffersComeAgain: buffers are counted again after some processor time of the sandbox, and after some time even
// if its programs seem not to run. Both grow with the time that the last count took.
func TestCountsOfBuffersComeAgain(t *testing.T) {
	var c counted
	c.done(time.Second, outcome[int64]{value: 5, took: time.Second}, true)
	for _, d := range []struct {
		used, after time.Duration
		want        bool
	}{
		{0, objectsEvery, false},
		{0, 3 * mappingsRest * time.Second, true},
		{time.Second, 0, false},
		{mappingsRest * time.Second, 0, true},
	} {
		if got := c.isDue(time.Second+d.used, c.at.Add(d.after)); got != d.want {
			t.Errorf("%v used within %v: got a count %t, want %t", d.used, d.after, got, d.want)
		}
	}
}

// TestFilesThatCallsKeepCountAsPipes: files that waiting calls keep open count as pipes if there are more than fewKept. If
// sockets have gone since the last count, bufferedStill returns the new count.
func TestFilesThatCallsKeepCountAsPipes(t *testing.T) {
	w := &Group{outside: true, plain: true, limits: Limits{MemoryBytes: 1 << 40}}
	for files, want := range map[int]int64{0: 0, fewKept: 0, fewKept + 10: 10 * keptPipe()} {
		if w.kept(files, time.Now()); w.keptByCalls() != want {
			t.Errorf("%d files: got %d bytes, want %d", files, w.keptByCalls(), want)
		}
	}
	var none *Group
	none.kept(1, time.Now())
	w.buffers.sockets.bytes = 500
	if got := w.bufferedStill(nil, 0, 700, 100); got != 0 { // this sandbox has no sockets, so the new count is 0
		t.Errorf("got %d bytes still, want none", got)
	}
}

// TestTheResultNamesBuffers: if memory exceeds the limit only because of what waits in buffers, the result says so.
func TestTheResultNamesBuffers(t *testing.T) {
	var excess string
	w := &Group{limits: Limits{MemoryBytes: 50 << 20}}
	w.kept(2*fewKept, time.Now())
	w.end = func(e string) { excess = e }
	if !w.judge(100<<20, 60<<20, 0, 1) || !strings.Contains(excess, "100 MiB of memory, 60 MiB of it in pipes") || w.ooms != 0 || w.peak != 100<<20 {
		t.Errorf("got %q, %d kills, peak %d, want the buffers named", excess, w.ooms, w.peak)
	}
	before := time.Now().Add(-time.Second)
	if w.kept(2*fewKept, before); w.keptByCalls() != 0 {
		t.Errorf("a count that began before the end: got %d bytes, want none", w.keptByCalls())
	}
	if excess = ""; !w.judge(50<<20, 40<<20, 0, 1) || excess != "" {
		t.Errorf("within the limit: got %q, want nothing", excess)
	}
}
