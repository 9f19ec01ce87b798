//go:build linux

// Command bench compares the cost of this product with bare programs and with other
// sandboxes. It writes docs/benchmarks.md and docs/dev/benchmarks.md.
//
// All figures of a table are measured in one run. The run consists of rounds; each round
// measures every mode once, in a new random order. A wrong answer is not counted as a
// measurement. A peer that cannot run here is listed with the reason. The command fails
// only if it cannot measure, never because a target was missed. It ends the processes that
// it started and removes the files that it wrote.
//
//	make bench                     # everything, as the current user; builds bin/bench
//	bin/bench -user                # as root: also as an unprivileged user
//	bin/bench -quick               # 10 rounds, printed, no document
//	bin/bench -trace-phases 100    # where the time of a run goes
//
// Start it in the root of the tree; paths are relative to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

// options are the command line flags.
type options struct {
	rounds  int
	quick   bool
	user    bool
	rss     bool
	rssWait time.Duration
	leak    bool
	burst   bool
	load    bool
	cell    time.Duration
	idle    bool
	ready   bool
	long    bool
	sparse  int
	pause   time.Duration

	sparseRest time.Duration
	out        string
	bin        string
	s1         string
	judge      string
	docker     string
	gvisor     string
	srt        string
	science    string
	path       string

	against   string // an earlier build
	pairs     int
	pairPause time.Duration

	only    string
	profile string
	trace   int

	child string // task of a child process of this program
	kind  string // of the load that a child measures
	all   string
	suite string // file to which a child writes its figures
	state string
	lang  string

	noScience string // why there is no package set; empty: there is one
	group     string // name of the cgroup of a suite
	pandas    bool
}

func (o *options) define(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "rounds", 60, "rounds; each holds every mode once")
	f.BoolVar(&o.quick, "quick", false, "10 rounds, short loads, without -rss, -leak, -long and -sparse unless given; printed, not written")
	f.BoolVar(&o.user, "user", false, "as root: measure a second time as an unprivileged user")
	f.BoolVar(&o.rss, "rss", true, "measure the server's resident memory after 100 calls")
	f.DurationVar(&o.rssWait, "rss-wait", time.Minute, "how long the server rests before its memory is read")
	f.BoolVar(&o.leak, "leak", true, "compare what a server holds after 200 and after 2000 runs")
	f.BoolVar(&o.burst, "burst", true, "64 requests at once")
	f.BoolVar(&o.load, "load", true, "operations per second and their CPU time, at 1, 2, 8 and 32 at once")
	f.DurationVar(&o.cell, "cell", 2*time.Second, "how long each of these is measured")
	f.BoolVar(&o.idle, "idle", true, "memory of sessions that wait")
	f.BoolVar(&o.ready, "drain", true, "three times as many requests at once as there are ready sandboxes")
	f.BoolVar(&o.long, "long", true, "what 10000 runs of a session and 5000 fresh ones leave (two minutes)")
	f.IntVar(&o.sparse, "sparse", 4, "how many calls of an agent that calls rarely are measured; 0: none")
	f.DurationVar(&o.sparseRest, "sparse-rest", 90*time.Second, "rest before each of these calls")
	f.DurationVar(&o.pause, "pause", 3*time.Millisecond, "rest between two measurements, in which sandboxes are cleared away")
	f.StringVar(&o.out, "out", "docs/benchmarks.md", "where the page for users goes; - prints the page for developers, and writes none")
	f.StringVar(&o.all, "all", "docs/dev/benchmarks.md", "where the page for developers goes")
	f.StringVar(&o.bin, "bin", "bin/sandboxmcp", "the program that is measured")
	f.StringVar(&o.s1, "s1", ".tools/s1", "virtual environment that holds sandboxmcp (Python)")
	f.StringVar(&o.judge, "go-judge", ".tools/bin/go-judge", "the program go-judge, a peer")
	f.StringVar(&o.docker, "docker", ".tools/docker", "directory that holds docker's programs and an image, as scripts/peers.sh makes it")
	f.StringVar(&o.gvisor, "gvisor", ".tools/gvisor", "directory that holds gVisor's runsc by version, as scripts/gvisor.sh makes it")
	f.StringVar(&o.srt, "srt", ".tools/srt", "directory that holds srt, as scripts/peers.sh makes it")
	f.StringVar(&o.science, "science", ".tools/science/bench", "state directory in which the package set science is kept from run to run; empty: without pandas")
	f.StringVar(&o.path, "path", os.Getenv("PATH"), "PATH on which interpreters are looked for")
	f.StringVar(&o.only, "only", "", "only modes whose name holds one of these texts, joined by |; bare programs always stay")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the measuring process, which holds the engine, to this file")
	f.IntVar(&o.trace, "trace-phases", 0, "print where the time of so many runs goes, and nothing else")
	f.StringVar(&o.against, "against", "", "compare -bin with this earlier build in pairs of calls, and do nothing else")
	f.IntVar(&o.pairs, "pairs", 400, "how many pairs -against measures of each row")
	f.DurationVar(&o.pairPause, "pair-pause", 25*time.Millisecond, "rest after each call of -against, which counts as its cost")
	f.StringVar(&o.child, "child", "", "internal: which part a child measures")
	f.StringVar(&o.kind, "kind", "", "internal: which load a child measures")
	f.StringVar(&o.suite, "suite-file", "", "internal: where the figures of a suite go")
	f.StringVar(&o.state, "state", "", "internal: state directory of a child")
	f.StringVar(&o.lang, "lang", "python", "language of -trace-phases and of a child")
	f.StringVar(&o.noScience, "no-science", "not asked for", "internal: why there is no package set")
	f.StringVar(&o.group, "group", "", "internal: control group in which a suite is")
	f.BoolVar(&o.pandas, "pandas", false, "internal: a child's programs use pandas")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.define(f)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.quick {
		o.quicken(given)
	}
	if o.profile != "" && (o.child != "" || o.trace > 0) {
		end, err := profile(o.profile)
		if err != nil {
			return err
		}
		defer end()
	}
	switch {
	case o.against != "":
		return comparePairs(ctx, o, stdout)
	case o.trace > 0:
		return tracePhases(ctx, o, stdout)
	case o.child == "suite":
		return measureSuite(ctx, o)
	case o.child == "first":
		return firstRequest(ctx, o, stdout)
	case o.child == "load":
		return loadsApart(ctx, o, os.Stdin, stdout)
	case o.child == "serve":
		return timedServe(ctx, o, os.Stdin, stdout)
	case o.child == "serve-http":
		return timedHTTP(ctx, o, os.Stdin, stdout)
	case o.child == "burst":
		return burstOnce(ctx, o, stdout)
	case o.child == "drained":
		return drainOnce(ctx, o, stdout)
	case o.child == "idle":
		return idleOnce(ctx, o, stdout)
	case o.child == "leftovers":
		return leftoversOnce(ctx, o, stdout)
	case o.child != "":
		return fmt.Errorf("no such child: %s", o.child)
	}
	return parent(ctx, o, strings.Join(args, " "), stdout)
}

// quicken sets shorter values for flags that were not given.
func (o *options) quicken(given map[string]bool) {
	if !given["rounds"] {
		o.rounds = 10
	}
	if !given["rss"] {
		o.rss = false
	}
	if !given["leak"] {
		o.leak = false
	}
	if !given["long"] {
		o.long = false
	}
	if !given["sparse"] {
		o.sparse = 0
	}
	if !given["cell"] {
		o.cell = 600 * time.Millisecond
	}
	if !given["rss-wait"] {
		o.rssWait = 5 * time.Second
	}
	if !given["out"] {
		o.out = "-"
	}
}

func profile(file string) (end func(), err error) {
	w, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), w.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = w.Close()
	}, nil
}
