//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// rowLoop measures a lower bound for the time of a session's run: the same interpreter keeps running and gets the code
// over a pipe, without isolation, limits, record and signature. Most of that is the time in which the two processes
// wake each other.
const rowLoop = "bare python that runs on, code over a pipe"

// loopScript reads programs, each a JSON string on a line. After the output of each it writes a line with a NUL byte.
const loopScript = `
import json, sys
for line in sys.stdin:
    exec(compile(json.loads(line), "<program>", "exec"), {})
    print("\0", flush=True)
`

// loop is a bare interpreter that keeps running. It runs one program at a time.
type loop struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// startLoop starts a loop. b ends it.
func (b *bed) startLoop(i interpreter) (*loop, error) {
	cmd := exec.Command(i.Path, "-c", loopScript) //nolint:noctx // b ends it
	cmd.Env = plainEnv()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("input of a loop: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("output of a loop: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a loop: %w", err)
	}
	l := &loop{in: in, out: bufio.NewReader(out), cmd: cmd}
	b.closers = append(b.closers, func() error { return errors.Join(l.in.Close(), l.cmd.Wait()) })
	return l, nil
}

// run runs a program, which must print the line 1, and returns the time that it took.
func (l *loop) run(code string) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	line, err := json.Marshal(code)
	if err == nil {
		_, err = l.in.Write(append(line, '\n'))
	}
	var printed, end string
	if err == nil {
		printed, err = l.out.ReadString('\n')
	}
	if err == nil {
		end, err = l.out.ReadString('\n')
	}
	took := time.Since(began)
	switch {
	case err != nil:
		return 0, fmt.Errorf("a loop: %w", err)
	case printed != "1\n" || end != "\x00\n":
		return 0, fmt.Errorf("a loop printed %.80q", printed+end)
	}
	return took, nil
}

// loopMode returns the benchmark of one loop.
func (b *bed) loopMode(i interpreter) mode {
	l, err := b.startLoop(i)
	if err != nil {
		return mode{rows: []string{rowLoop}, skip: err.Error()}
	}
	return b.one(rowLoop, i.bare(), func(context.Context) (time.Duration, error) { return l.run(i.hello()) })
}

// loopLoad returns the benchmark of several loops at once, one for each worker.
func (b *bed) loopLoad(i interpreter, at []int) load {
	out := load{name: rowLoop, at: at}
	var all []*loop
	for range at[len(at)-1] {
		l, err := b.startLoop(i)
		if err != nil {
			out.skip = err.Error()
			return out
		}
		all = append(all, l)
	}
	out.work = func(_ context.Context, worker int) error {
		_, err := all[worker].run(i.hello())
		return err
	}
	return out
}
