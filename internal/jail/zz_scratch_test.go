package jail

import (
	"fmt"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

func TestZZ(t *testing.T) {
	tree, err := cgroup.Open(cgroup.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	f, _ := seccomp.Compile(seccomp.New(seccomp.Variant{}), seccomp.AMD64)
	variants := []struct {
		n   string
		cg  bool
		off map[wall]bool
	}{{"all", true, nil}, {"nocg", false, nil}, {"nolandlock", false, map[wall]bool{wallLandlock: true}}, {"noseccomp", false, map[wall]bool{wallSeccomp: true}}, {"nocaps", false, map[wall]bool{wallCaps: true}}, {"nomounts", false, map[wall]bool{wallMounts: true}}}
	m := ModeUser
	if os.Geteuid() == 0 {
		m = ModeRoot
	}
	var js []*Jail
	for _, v := range variants {
		j, err := Open(Config{Mode: m, FirstUID: 1900000000, Filter: f, off: v.off})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		js = append(js, j)
	}
	res := map[string][]float64{}
	add := func(n string, t0 time.Time) { res[n] = append(res[n], time.Since(t0).Seconds()*1e3) }
	for i := 0; i < 60; i++ {
		for k, v := range variants {
			cfg := SlotConfig{Size: Size{WorkBytes: 128 << 20, WorkInodes: 20000, TempBytes: 64 << 20, MaxTasks: 160}}
			var g *cgroup.Group
			var e cgroup.Entry
			if v.cg {
				t0 := time.Now()
				g, err = tree.New(fmt.Sprint("x", i), cgroup.Limits{MemoryBytes: 512 << 20, CPUCores: 1, MaxTasks: 161})
				if err != nil {
					t.Fatal(err)
				}
				add("cgroup new", t0)
				t0 = time.Now()
				e, _ = g.Entry()
				add("cgroup entry", t0)
				for _, f := range e.Tasks {
					cfg.Tasks = append(cfg.Tasks, int(f.Fd()))
				}
			}
			t0 := time.Now()
			s, err := func() (*Slot, error) { tn, err := js[k].Turn(); if err != nil { return nil, err }; return tn.New(cfg) }()
			if err != nil {
				t.Fatal(err)
			}
			add(v.n, t0)
			t0 = time.Now()
			s.Kill()
			add("kill "+v.n, t0)
			s.Close()
			if v.cg {
				e.Close()
				t0 = time.Now()
				g.Remove()
				add("cgroup remove", t0)
			}
		}
	}
	var ks []string
	for k := range res {
		ks = append(ks, k)
	}
	sort.Strings(ks)
	for _, k := range ks {
		a := res[k]
		sort.Float64s(a)
		fmt.Printf("%-20s p50 %.3f min %.3f p99 %.3f\n", k, a[len(a)/2], a[0], a[len(a)*99/100])
	}
}
