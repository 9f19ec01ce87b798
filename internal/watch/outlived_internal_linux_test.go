package watch

import (
	"os"
	"os/exec"
	"strconv"
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

func (r *relatives) shares(child, _ string) (shares, known bool) {
	return r.sharing[child], !r.unknown
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
