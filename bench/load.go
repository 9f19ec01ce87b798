//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	burstSize  = 64
	memoryRuns = 100
	leakFirst  = 200
	leakLast   = 2000
)

// burst is the result of many concurrent requests.
type burst struct {
	Requests int
	Right    int
	Wrong    string // description of the first wrong result
	WallMS   float64
	RSS      int64 // resident bytes of the process before the burst, after one request
	MaxRSS   int64 // peak resident bytes of the process, as counted by the kernel
	MaxTree  int64 // peak resident bytes of the process and its descendants, sampled; shared pages count several times
}

func (b *bed) burst(ctx context.Context) (*burst, error) {
	dir, err := b.dir("burst")
	if err != nil {
		return nil, err
	}
	return ask[burst](ctx, b, "burst", "-state", dir)
}

// burstOnce runs in a child process and makes the requests.
func burstOnce(ctx context.Context, o options, out io.Writer) error {
	e, err := openEngine(ctx, o.state, o.path, os.Environ())
	if err != nil {
		return err
	}
	defer shut(e)
	if _, err := execute(ctx, e, sandboxmcp.Request{Code: "print(1)"}); err != nil {
		return err
	}
	pid := os.Getpid()
	r := burst{Requests: burstSize, RSS: statusBytes(pid, "VmRSS")}
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for watched.Err() == nil {
			tree := statusBytes(pid, "VmRSS")
			for _, p := range descendants(pid) {
				tree += statusBytes(p, "VmRSS")
			}
			r.MaxTree = max(r.MaxTree, tree)
			pause(watched, 20*time.Millisecond)
		}
	})
	errs := make([]error, burstSize)
	var work sync.WaitGroup
	began := time.Now()
	for i := range burstSize {
		work.Go(func() {
			res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print(" + strconv.Itoa(i) + " * 3)"})
			if want := strconv.Itoa(i*3) + "\n"; err == nil && res.Stdout != want {
				err = fmt.Errorf("request %d printed %.80q, not %q", i, res.Stdout, want)
			}
			errs[i] = err
		})
	}
	work.Wait()
	r.WallMS = milliseconds(time.Since(began))
	stop()
	watch.Wait()
	r.MaxRSS = statusBytes(pid, "VmHWM")
	for _, err := range errs {
		if err == nil {
			r.Right++
		} else if r.Wrong == "" {
			r.Wrong = err.Error()
		}
	}
	return encode(out, r)
}

// serverMemory is the memory of a server, in bytes.
type serverMemory struct {
	Calls     int
	Rested    time.Duration
	Fresh     int64 // resident, after the handshake
	RSS       int64 // resident, after the calls and a rest
	Anon      int64 // part of RSS that no file backs
	Peak      int64
	Helpers   int   // number of child processes
	HelperRSS int64 // sum of their resident bytes
}

func (b *bed) memory(ctx context.Context) (m *serverMemory, err error) {
	c, err := b.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	pid := c.cmd.Process.Pid
	m = &serverMemory{Calls: memoryRuns, Rested: b.o.rssWait, Fresh: statusBytes(pid, "VmRSS")}
	for range memoryRuns {
		if _, err := c.execute("python", "print(1)", "1\n"); err != nil {
			return nil, err
		}
	}
	pause(ctx, b.o.rssWait)
	m.RSS, m.Anon, m.Peak = statusBytes(pid, "VmRSS"), statusBytes(pid, "RssAnon"), statusBytes(pid, "VmHWM")
	for _, p := range descendants(pid) {
		m.Helpers++
		m.HelperRSS += statusBytes(p, "VmRSS")
	}
	return m, ctx.Err()
}

// leak compares what one server holds after few runs and after many.
type leak struct {
	First, Last   int
	Before, After held
	Opened        map[string]int // descriptors of the server that were added between the measurements, by kind
}

// leak runs programs of all languages through one server; some fail, leave a file or
// leave a process behind. The server keeps no sandboxes ready, because their number
// varies.
func (b *bed) leak(ctx context.Context) (l *leak, err error) {
	c, err := b.serve(ctx, "SANDBOXMCP_SANDBOX_POOL", "false")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	pid := c.cmd.Process.Pid
	l = &leak{First: leakFirst, Last: leakLast}
	programs := b.leakPrograms()
	var before map[string]int
	for n := 1; n <= leakLast; n++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p := programs[n%len(programs)]
		if _, err := c.execute(p.lang, p.code, p.want); err != nil {
			return nil, fmt.Errorf("run %d: %w", n, err)
		}
		if n == 1 { // opens every database connection before the first count
			if _, _, err := c.call("tools/call", map[string]any{"name": "get_artifacts", "arguments": map[string]any{"request_id": "nobodys"}}); err != nil {
				return nil, fmt.Errorf("look for a result: %w", err)
			}
		}
		switch n {
		case leakFirst:
			l.Before = settled(ctx, pid)
			before = descriptors(pid)
		case leakLast:
			l.After = settled(ctx, pid)
			l.Opened = map[string]int{}
			for what, n := range descriptors(pid) {
				if n > before[what] {
					l.Opened[what] = n - before[what]
				}
			}
		}
	}
	return l, nil
}

type leakProgram struct{ lang, code, want string }

func (b *bed) leakPrograms() []leakProgram {
	var out []leakProgram
	for _, i := range b.interpreters {
		if i.Search != b.o.path {
			continue
		}
		lang := string(i.Lang)
		out = append(out, leakProgram{lang, i.hello(), "1\n"})
		switch i.Lang {
		case sandboxmcp.Python:
			out = append(out, leakProgram{lang, "open('left.txt', 'w').write('x' * 100000)\nprint(2)", "2\n"})
		case sandboxmcp.Shell:
			out = append(out,
				leakProgram{lang, "echo 3; exit 7", "3\n"},
				leakProgram{lang, "sleep 600 >/dev/null 2>&1 & echo 4", "4\n"},
				leakProgram{lang, "head -c 1000000 /dev/zero >/tmp/left; echo 5", "5\n"},
				leakProgram{lang, "kill -9 $$", ""},
			)
		case sandboxmcp.Node:
		}
	}
	return out
}

// settled measures repeatedly until two results are equal, because sandboxes are removed
// after the response.
func settled(ctx context.Context, pid int) held {
	last := holds(pid)
	for range 50 {
		pause(ctx, 100*time.Millisecond)
		now := holds(pid)
		rss := now.RSS
		last.RSS, now.RSS = 0, 0
		same := now == last
		now.RSS = rss
		last = now
		if same {
			break
		}
	}
	return last
}
