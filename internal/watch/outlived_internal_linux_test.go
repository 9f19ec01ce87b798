package watch

import (
	"cmp"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// relatives is a kin of processes whose memory stays, but for those in gone.
type relatives struct {
	t       *testing.T
	gone    map[string]bool
	sharing map[string]bool
	unknown bool
	opened  int

	compared int
	ended    map[string]bool // since the look has begun

	executing map[string]bool // execute another program while their files are opened
}

func (r *relatives) open(s seen) (fd int, same bool, err error) {
	r.opened++
	pid := "self"
	if r.gone[s.path] {
		c := exec.CommandContext(r.t.Context(), "sleep", "60")
		if err := c.Start(); err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = c.Wait() }()
		defer func() { _ = c.Process.Kill() }() // after its file is open
		pid = strconv.Itoa(c.Process.Pid)
	}
	fd, err = unix.Open("/proc/"+pid+"/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, !r.executing[s.path], err
}

func (r *relatives) compare(child, other string) (order int, known bool) {
	r.compared++
	if r.ended[child] || r.ended[other] {
		return 0, false
	}
	if child == other || r.sharing[child] || r.sharing[other] {
		return 0, !r.unknown
	}
	return cmp.Or(len(child)-len(other), strings.Compare(child, other)), !r.unknown
}

// TestMemoryOfEndedProcessesIsCounted while the kernel has it.
func TestMemoryOfEndedProcessesIsCounted(t *testing.T) {
	process := func(pid, layout string, resident int64) seen {
		return seen{path: pid, parent: "1", layout: layout, resident: resident, reserved: 1 << 30}
	}
	type look map[string]seen
	top := process("2", "a", 50)
	for name, c := range map[string]struct {
		relatives
		looks []look
		want  []int64
	}{
		"Stays": {
			looks: []look{{"2 0": top, "3 0": process("3", "b", 10)}, {"2 0": top, "3 0": process("3", "b", 70)}, {"2 0": top}, {"2 0": top}},
			want:  []int64{0, 0, 70, 70},
		},
		"IsFreed": {
			relatives: relatives{gone: map[string]bool{"3": true}},
			looks:     []look{{"2 0": top, "3 0": process("3", "b", 70)}, {"2 0": top}},
			want:      []int64{0, 0},
		},
		"IsNotReaped": {
			looks: []look{{"2 0": top, "3 0": process("3", "b", 70)}, {"2 0": top, "3 0": {path: "3", parent: "1"}}, {"2 0": top}},
			want:  []int64{0, 70, 70},
		},
		"ShowsNothingForAWhile": {
			looks: []look{{"3 0": process("3", "b", 70)}, {"3 0": {path: "3", parent: "1", blind: true}}, {"3 0": process("3", "b", 70)}, {}},
			want:  []int64{0, 70, 0, 70},
		},
		"ShowsNothingUntilItIsFreed": {
			relatives: relatives{gone: map[string]bool{"3": true}},
			looks:     []look{{"3 0": process("3", "b", 70)}, {"3 0": {path: "3", parent: "1", blind: true}}, {}},
			want:      []int64{0, 0, 0},
		},
		"ShowsNothingThatAnotherShows": {
			relatives: relatives{sharing: map[string]bool{"3": true}},
			looks: []look{
				{"2 0": top, "3 0": {path: "3", parent: "2", layout: "a", resident: 50, reserved: 1 << 30}},
				{"2 0": top, "3 0": {path: "3", parent: "2", blind: true}},
				{"2 0": {path: "2", parent: "1", blind: true}, "3 0": {path: "3", parent: "2", blind: true}},
			},
			want: []int64{0, 0, 50},
		},
		"ExecutesAnother": {
			looks: []look{{"3 0": process("3", "b", 70)}, {"3 0": process("3", "c", 5)}, {}},
			want:  []int64{0, 70, 75},
		},
		"Fork": {
			looks: []look{{"2 0": top, "3 0": {path: "3", parent: "2", layout: "a", resident: 50, reserved: 1 << 30}}, {"2 0": top}},
			want:  []int64{0, 50},
		},
		"VforkAndExecute": {
			relatives: relatives{sharing: map[string]bool{"3": true}},
			looks: []look{
				{"2 0": top, "3 0": {path: "3", parent: "2", layout: "a", resident: 50, reserved: 1 << 30}},
				{"2 0": top, "3 0": {path: "3", parent: "2", layout: "c", resident: 7, reserved: 1 << 30}},
				{"2 0": top},
			},
			want: []int64{0, 0, 7},
		},
		"ExecutesMeanwhile": {
			relatives: relatives{executing: map[string]bool{"3": true}},
			looks:     []look{{"2 0": top, "3 0": process("3", "b", 50)}, {"2 0": top}},
			want:      []int64{0, 0},
		},
		"MakesAFork": { // the fork server, which is not seen, has that memory
			looks: []look{{"2 0": top, "3 0": {path: "3", parent: outsideOf, layout: "b", resident: 50, reserved: 1 << 30}}, {"2 0": top}},
			want:  []int64{0, 0},
		},
		"NotKnownYet": {
			relatives: relatives{unknown: true},
			looks:     []look{{"2 0": top, "3 0": {path: "3", parent: "2", layout: "a", resident: 50, reserved: 1 << 30}}, {"2 0": top}},
			want:      []int64{0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			var o outlived
			defer o.close()
			for i, l := range c.looks {
				if got := o.look(l, &c.relatives); got != c.want[i] {
					t.Errorf("look %d: got %d bytes of ended processes, want %d", i, got, c.want[i])
				}
			}
		})
	}
}

// TestMemoryIsComparedOnce: comparing processes costs time, and a program can start many that share memory.
func TestMemoryIsComparedOnce(t *testing.T) {
	r := &relatives{t: t, sharing: map[string]bool{"3": true}}
	var o outlived
	defer o.close()
	now := map[string]seen{
		"2 0": {path: "2", parent: "1", layout: "a", resident: 1, reserved: 1},
		"3 0": {path: "3", parent: "2", layout: "a", resident: 1, reserved: 1},
	}
	for range 3 {
		o.look(now, r)
	}
	if r.opened != 1 {
		t.Errorf("got %d files opened, want one, of the parent", r.opened)
	}
}

// TestOrphansAreComparedWithFew: a process whose parent has ended may share memory with any other of its layout. A program
// can start thousands of these, and each comparison takes the server's time.
func TestOrphansAreComparedWithFew(t *testing.T) {
	r, most, now := &relatives{t: t}, 0, map[string]seen{}
	var o outlived
	defer o.close()
	begin := func(n int) {
		pid := strconv.Itoa(n)
		now[pid+" 0"] = seen{path: pid, parent: "1", layout: "a", resident: 1, reserved: 1}
	}
	for n := range 200 {
		begin(2 + n)
	}
	for look, added := range []int{0, 1, 1, 50} {
		for n := range added {
			begin(1000*look + n)
		}
		if r.compared = 0; look > 0 {
			most = 8 * added
		} else {
			most = 8 * len(now)
		}
		if o.look(now, r); r.compared > most {
			t.Errorf("look %d: got %d comparisons of %d processes, want at most %d", look, r.compared, len(now), most)
		}
	}
	r.sharing = map[string]bool{"9999": true}
	if begin(9999); o.look(now, r) != 0 || r.opened != len(now)-1 {
		t.Errorf("got %d files opened for %d processes, of which two share their memory", r.opened, len(now))
	}
	r.sharing, r.ended = nil, map[string]bool{"100": true, "101": true, "1001": true, "9000": true}
	begin(9000)
	begin(5000)
	if o.look(now, r); o.kept["5000 0"] == nil || o.kept["9000 0"] != nil {
		t.Error("beside processes that have just ended: got memory of one of them, or none of another one")
	}
	r.ended = nil
	if o.look(now, r); o.kept["9000 0"] == nil {
		t.Error("got no memory of a process that could not be compared before")
	}
	now["7000 0"] = seen{path: "7000", parent: "3", layout: "a", resident: 1, reserved: 1}
	o.look(now, r) // compares it with its parent alone
	r.ended = map[string]bool{"7000": true}
	begin(7001)
	if o.look(now, r); o.kept["7001 0"] == nil {
		t.Error("beside a process that has ended since it was compared with its parent: got no memory of another one")
	}
}

// TestSharedMemoryIsHeldOnce: memory that a process shares is no memory of an ended process while one of them lives,
// and takes one descriptor.
func TestSharedMemoryIsHeldOnce(t *testing.T) {
	process := func(parent, layout string) seen {
		return seen{parent: parent, layout: layout, resident: 50, reserved: 1}
	}
	type look map[string]seen
	for name, looks := range map[string][]look{
		"ParentEnds":     {{"2 0": process("1", "a"), "3 0": process("2", "a")}, {"3 0": process("1", "a")}},
		"ParentExecutes": {{"2 0": process("1", "a"), "3 0": process("2", "a")}, {"2 0": process("1", "b"), "3 0": process("2", "a")}},
		"SeenAsOrphan":   {{"2 0": process("1", "a")}, {"2 0": process("1", "a"), "3 0": process("1", "a")}, {"2 0": process("1", "a")}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &relatives{t: t, sharing: map[string]bool{"3": true}}
			var o outlived
			defer o.close()
			for i, l := range looks {
				if got := o.look(l, r); got != 0 {
					t.Errorf("look %d: got %d bytes of ended processes, want 0", i, got)
				}
			}
			if len(o.left) != 0 {
				t.Errorf("got %d descriptors of ended processes, want none", len(o.left))
			}
			if got := o.look(look{}, r); got < 50 {
				t.Errorf("after the end of all: got %d bytes, want those that were shared", got)
			}
		})
	}
}

// TestWhatAProcessShowsNowIsNotLeft: left does not count memory that a process shows now, because the exact sum has it. This
// holds also if the process showed none at the last measurement.
func TestWhatAProcessShowsNowIsNotLeft(t *testing.T) {
	w, p := &Group{outside: true}, strconv.Itoa(os.Getpid())
	defer w.outlived.close()
	s, _ := w.see(p)
	for id, want := range map[string]int64{p + " " + s.start: 0, p + " 0": 70} {
		h := open(seen{resident: 70}, &relatives{t: t})
		w.outlived.hides = map[string]*held{id: h}
		if got := w.left(); got != want {
			t.Errorf("%s: got %d bytes, want %d", id, got, want)
		}
		h.close()
	}
}
