//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// pairRow is a call that -against compares.
type pairRow struct {
	name, lang, code string
	session          bool // all calls are cells of one session
}

func pairRows() []pairRow {
	const python, node, shell = "print(42)", "console.log(42)", "echo 42"
	return []pairRow{
		{"Python", "python", python, false},
		{"shell", "shell", shell, false},
		{"Node", "node", node, false},
		{"a cell of a Python session", "python", python, true},
		{"a cell of a shell session", "shell", shell, true},
		{"a cell of a Node session", "node", node, true},
	}
}

// pairUnmeasured is how many calls each server answers before the first pair.
const pairUnmeasured = 10

// comparePairs compares two builds: each pair is one call to a server of each, in random
// order. It prints the medians of CPU time and of the time to the answer, and the 95 %
// interval of the median difference. The CPU time is that of all processes of a server,
// until the pause after the call has ended.
func comparePairs(ctx context.Context, o options, stdout io.Writer) error {
	fmt.Fprintf(stdout, "%d pairs, %v between calls; %s -> %s\n", o.pairs, o.pairPause, o.against, o.bin)
	for _, r := range pairRows() {
		only := strings.Split(o.only, "|")
		if !slices.ContainsFunc(only, func(part string) bool { return strings.Contains(r.name, part) }) {
			continue
		}
		if err := comparePair(ctx, o, r, stdout); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func comparePair(ctx context.Context, o options, r pairRow, stdout io.Writer) (err error) {
	var servers [2]*pairServer
	defer func() {
		for _, s := range servers {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	for i, bin := range []string{o.against, o.bin} {
		if servers[i], err = startPairServer(ctx, o, bin, i); err != nil {
			return err
		}
	}
	var cpu, wall [2][]float64 // ms
	for n := range pairUnmeasured + o.pairs {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, i := range shuffled(2) {
			c, w, err := servers[i].measure(r, o.pairPause)
			if err != nil {
				return err
			}
			if n >= pairUnmeasured {
				cpu[i], wall[i] = append(cpu[i], c), append(wall[i], w)
			}
		}
	}
	fmt.Fprintf(stdout, "%-28s CPU %s   answer %s\n", r.name, difference(cpu), difference(wall))
	return nil
}

// difference describes the measurements of two builds in ms.
func difference(of [2][]float64) string {
	before, now := quantile(of[0], 0.5), quantile(of[1], 0.5)
	diffs := make([]float64, len(of[0]))
	for i := range diffs {
		diffs[i] = of[1][i] - of[0][i]
	}
	low, high := medianInterval(diffs)
	percent := func(ms float64) float64 { return 100 * ms / before }
	return fmt.Sprintf("%.2f -> %.2f ms %+.1f %% [%+.1f, %+.1f]", before, now, percent(quantile(diffs, 0.5)), percent(low), percent(high))
}

// medianInterval returns the 95 % interval of the median of values, from their ranks.
func medianInterval(values []float64) (low, high float64) {
	// How many of n values are below the median is binomial with p = 1/2.
	beside := 0.98 / math.Sqrt(float64(len(values))) // 1.96 standard deviations, as a part of n
	return quantile(values, max(0.5-beside, 0)), quantile(values, min(0.5+beside, 1))
}

// pairServer is a server in a cgroup of its own.
type pairServer struct {
	*client
	meter   meter
	ungroup func() // removes the cgroup
	state   string
}

func startPairServer(ctx context.Context, o options, bin string, number int) (s *pairServer, err error) {
	s = &pairServer{ungroup: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if s.state, err = os.MkdirTemp("", "smbench."); err != nil {
		return s, err
	}
	group, fd, remove := makeGroup(fmt.Sprintf("smbench-%d-%d", os.Getpid(), number))
	if s.ungroup = remove; fd == nil {
		return s, errors.New("no control group can be made here, and CPU time is counted by it; run as root")
	}
	path, err := filepath.Abs(bin)
	if err != nil {
		return s, err
	}
	s.meter = newMeter(group)
	s.client, err = dialWith(ctx, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, path, "serve")
		cmd.Env = []string{"PATH=" + o.path, "HOME=" + s.state, "XDG_STATE_HOME=" + s.state}
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
		return cmd
	})
	return s, err
}

// measure makes a call and returns the CPU time and the time to the answer in ms.
func (s *pairServer) measure(r pairRow, pause time.Duration) (cpu, wall float64, err error) {
	before, err := s.meter.read()
	if err != nil {
		return 0, 0, err
	}
	args := map[string]any{"code": r.code, "language": r.lang}
	if r.session {
		args["session_id"] = "pairs"
	}
	var res struct {
		Stdout string `json:"stdout"`
	}
	took, err := s.tool("execute_code", args, &res)
	if err != nil || res.Stdout != "42\n" {
		return 0, 0, errors.Join(err, fmt.Errorf("execute_code printed %q, want 42", res.Stdout))
	}
	time.Sleep(pause)
	after, err := s.meter.read()
	return (after - before).Seconds() * 1000, took.Seconds() * 1000, err
}

func (s *pairServer) close() error {
	var errs []error
	if s.client != nil {
		errs = append(errs, s.client.close())
	}
	s.ungroup()
	if s.state != "" {
		errs = append(errs, os.RemoveAll(s.state))
	}
	return errors.Join(errs...)
}
