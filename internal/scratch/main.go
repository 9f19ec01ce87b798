package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"sort"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

var order = map[string]bool{}
var mu sync.Mutex
var phases = map[string][]float64{}

func note(n string, t time.Time) {
	mu.Lock()
	phases[n] = append(phases[n], time.Since(t).Seconds()*1e3)
	mu.Unlock()
}

type tb struct{ backend.Backend }
type ts struct {
	backend.Sandbox
	started time.Time
}

func (b tb) Open(ctx context.Context, s backend.Spec) (backend.Sandbox, error) {
	defer note("open", time.Now())
	x, err := b.Backend.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	return &ts{Sandbox: x}, nil
}
func (s *ts) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	t := time.Now()
	r, err := s.Sandbox.Start(ctx, p)
	note("start", t)
	if err != nil {
		return nil, err
	}
	return &tr{r, time.Now()}, nil
}
func (s *ts) Kill(ctx context.Context) error { defer note("kill", time.Now()); return s.Sandbox.Kill(ctx) }
func (s *ts) Usage() backend.Usage             { defer note("usage", time.Now()); return s.Sandbox.Usage() }
func (s *ts) Isolation(ctx context.Context) (sandboxmcp.Isolation, error) {
	defer note("isolation", time.Now())
	return s.Sandbox.Isolation(ctx)
}
func (s *ts) Close() error { defer note("close", time.Now()); return s.Sandbox.Close() }

type tr struct {
	backend.Running
	t time.Time
}

func (r *tr) Wait(ctx context.Context) (backend.Exit, error) {
	e, err := r.Running.Wait(ctx)
	note("wait", r.t)
	return e, err
}
func (r *tr) Drain(ctx context.Context) error { defer note("drain", time.Now()); return r.Running.Drain(ctx) }

func main() {
	ctx := context.Background()
	dir, _ := os.MkdirTemp("", "sc")
	defer os.RemoveAll(dir)
	e, err := engine.New(ctx, engine.Config{StateDir: dir + "/s", Backends: []backend.Backend{tb{process.New(process.Config{})}}, SearchPath: os.Getenv("BPATH")})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	py := os.Getenv("BPY")
	var last time.Time
	_ = func(n string) {
		now := time.Now()
		mu.Lock()
		phases["P "+n] = append(phases["P "+n], now.Sub(last).Seconds()*1e3)
		order[n] = true
		last = now
		mu.Unlock()
	}
	defer func() {
		for _, n := range []string{"admitted", "found", "opened", "intent", "x:planned", "x:started", "x:waited", "x:walls", "x:killed", "x:drained", "executed", "result", "collected", "signed", "recorded"} {
			a := phases["P "+n]
			sort.Float64s(a)
			if len(a) > 0 {
				fmt.Printf("%-10s p25 %.3f p50 %.3f\n", n, a[len(a)/4], a[len(a)/2])
			}
		}
	}()
	run := func(d sandboxmcp.Display) float64 {
		t := time.Now()
		last = t
		r, err := e.Execute(ctx, sandboxmcp.Request{Code: "print(1)", Display: d})
		if err != nil || r.Stdout != "1\n" {
			panic(fmt.Sprint(r, err))
		}
		return time.Since(t).Seconds() * 1e3
	}
	bash := func() float64 {
		t := time.Now()
		last = t
		r, err := e.Execute(ctx, sandboxmcp.Request{Code: "echo 1", Language: "shell"})
		if err != nil || r.Stdout != "1\n" {
			panic(fmt.Sprint(r, err))
		}
		return time.Since(t).Seconds() * 1e3
	}
	bare := func() float64 {
		t := time.Now()
		c := exec.Command(py, "-c", "print(1)")
		c.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
		if o, err := c.Output(); err != nil || string(o) != "1\n" {
			panic(err)
		}
		return time.Since(t).Seconds() * 1e3
	}
	bw := func() float64 {
		t := time.Now()
		c := exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", py, "-c", "print(1)")
		c.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
		if o, err := c.Output(); err != nil || string(o) != "1\n" {
			panic(err)
		}
		return time.Since(t).Seconds() * 1e3
	}
	fmt.Println("first", run(""))
	var b, n, s, w, sh []float64
	var rn, rs, rw []float64
	for range 60 {
		x := bare()
		b = append(b, x)
		y := run("")
		n = append(n, y)
		z := run("stdout")
		s = append(s, z)
		v := bw()
		w = append(w, v)
		sh = append(sh, bash())
		rn, rs, rw = append(rn, y/x), append(rs, z/x), append(rw, v/x)
	}
	q := func(a []float64, p float64) float64 { sort.Float64s(a); return a[int(p*float64(len(a)-1))] }
	fmt.Printf("bare %.2f p99 %.2f | none %.2f %.3f | stdout %.2f %.3f | bwrap %.2f %.3f | bash %.2f\n", q(b, .5), q(b, .99), q(n, .5), q(rn, .5), q(s, .5), q(rs, .5), q(w, .5), q(rw, .5), q(sh, .5))
	for _, k := range []string{"open", "start", "wait", "isolation", "kill", "drain", "usage", "close"} {
		fmt.Printf("%s p50 %.3f p99 %.3f\n", k, q(phases[k], .5), q(phases[k], .99))
	}
	if os.Getenv("PROF") != "" {
		f, _ := os.Create("/tmp/cpu.prof")
		pprof.StartCPUProfile(f)
		for range 400 {
			bash()
		}
		pprof.StopCPUProfile()
		f.Close()
	}
}
