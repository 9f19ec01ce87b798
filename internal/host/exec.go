package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"
)

// Bounds of a command's run.
const (
	maxShown    = 64 << 10               // bytes of a stream that are returned
	spare       = 64 << 10               // bytes beyond these that are kept until secrets are masked
	maxFlood    = 16_000_000             // bytes of a stream that end the command
	graceOfPipe = 250 * time.Millisecond // how long a stream may stay open after the program has ended
)

// job is a command that is ready to be executed.
type job struct {
	file      *os.File    // the program file, which was checked
	pinned    os.FileInfo // it must still be this one when it begins; nil: only root can change it
	path      string      // its path
	rule      string      // name of the rule that allows it
	words     []string
	dir       string
	env       []string
	reads     []string // places whose files may not be read
	only      []string // the only places that may be read, without links; nil: all but reads
	lists     []string // further ones whose names may be read
	writes    []string // places that may be written
	unwritten []string // those in them that may not
	execs     []string // files that may be executed; nil: any
	after     []string // binary that executes the program, which is a script, and words for it; nil: the kernel finds it
	last      bool     // the program has to execute no other one
	known     *usual   // its rule, if the settings have it by default; nil: another one
	timeout   time.Duration
}

// ended is how a command ended.
type ended struct {
	exit           int // -1: it was stopped
	signal         int
	why            string // why it was stopped; empty: it was not
	stdout, stderr []byte
	total          [2]int64 // bytes of the streams
	walls, weak    []string
}

// Reasons why a command is stopped.
const (
	stoppedTime   = "time"
	stoppedOutput = "output"
	stoppedCaller = "caller"
)

// collector keeps the begin of a stream and counts the rest.
type collector struct {
	mu    sync.Mutex
	kept  bytes.Buffer
	total int64
	flood func()
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += int64(len(p))
	if room := maxShown + spare - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(len(p), room)])
	}
	if c.total > maxFlood {
		c.flood()
	}
	return len(p), nil
}

// streams are the pipes for the output of a command.
type streams struct {
	out, err collector
	writers  [2]*os.File
	readers  [2]*os.File
	done     sync.WaitGroup
}

// newStreams makes the pipes, and reads from them. It fails if the pipes have no deadlines: Go needs an epoll
// watch for each, and the kernel refuses one if the user has too many. A read would then last until all writers have closed the pipe.
func newStreams(flood func(), pipe func() (r, w *os.File, err error)) (*streams, error) {
	s := &streams{}
	s.out.flood, s.err.flood = flood, flood
	for i, c := range []*collector{&s.out, &s.err} {
		r, w, err := pipe()
		if err == nil {
			s.readers[i], s.writers[i] = r, w
			err = watched(r)
		}
		if err != nil {
			s.close()
			s.done.Wait()
			return nil, fmt.Errorf("pipes for the output: %w", err)
		}
		s.done.Go(func() { _, _ = io.Copy(c, r) })
	}
	return s, nil
}

// started closes the ends that the program has.
func (s *streams) started() {
	for _, w := range s.writers {
		_ = w.Close()
	}
}

// finish waits for the ends of the streams. A process that left the command's group may hold
// them open, so it waits only for a moment.
func (s *streams) finish(e *ended) {
	for _, r := range s.readers {
		_ = r.SetReadDeadline(time.Now().Add(graceOfPipe))
	}
	s.done.Wait()
	for i, c := range []*collector{&s.out, &s.err} {
		drain(s.readers[i], c)
	}
	e.stdout, e.stderr, e.total = s.out.kept.Bytes(), s.err.kept.Bytes(), [2]int64{s.out.total, s.err.total}
	s.close()
}

func (s *streams) close() {
	for i := range s.readers {
		if s.readers[i] != nil {
			_ = errors.Join(s.readers[i].Close(), s.writers[i].Close())
		}
	}
}

// stopper ends a command once, for the first reason.
type stopper struct {
	mu   sync.Mutex
	why  string
	over bool
	kill func()
}

func (s *stopper) stop(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.why != "" {
		return
	}
	s.why = why
	if s.kill != nil {
		s.kill()
	}
}

// begin sets how the command is ended.
func (s *stopper) begin(kill func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill = kill
	if s.why != "" {
		kill()
	}
}

// end says that the command has ended. Its process id may now be that of another process.
func (s *stopper) end() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.why
}

// execute executes a job and waits for its end.
func execute(ctx context.Context, j job) (ended, error) {
	stop := &stopper{}
	s, err := newStreams(func() { stop.stop(stoppedOutput) }, os.Pipe)
	if err != nil {
		return ended{}, err
	}
	timer := time.AfterFunc(j.timeout, func() { stop.stop(stoppedTime) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { stop.stop(stoppedCaller) })()
	e, err := run(ctx, j, s, stop)
	if err != nil {
		s.close()
		s.done.Wait()
		return e, err
	}
	s.finish(&e)
	if e.why != "" {
		e.exit = -1
	}
	return e, nil
}

// environment returns the environment of every command. It has nothing of the server's. The
// variables beyond the first line keep programs from reading settings of the user that name
// programs to execute, or hold secrets.
func environment() []string {
	home, name := "/", "nobody"
	if u, err := user.Current(); err == nil {
		home, name = u.HomeDir, u.Username
	}
	return []string{
		"PATH=" + strings.Join(searchDirs, ":"), "HOME=" + home, "USER=" + name, "LOGNAME=" + name, "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TERM=dumb", "PAGER=cat", "SYSTEMD_PAGER=cat",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_EDITOR=false", "GIT_ATTR_NOSYSTEM=1",
		"GIT_CONFIG_COUNT=5", "GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0=false", "GIT_CONFIG_KEY_1=core.hooksPath", "GIT_CONFIG_VALUE_1=" + os.DevNull,
		"GIT_CONFIG_KEY_2=core.pager", "GIT_CONFIG_VALUE_2=cat", "GIT_CONFIG_KEY_3=safe.directory", "GIT_CONFIG_VALUE_3=*",
		"GIT_CONFIG_KEY_4=safe.bareRepository", "GIT_CONFIG_VALUE_4=explicit", // files named HEAD and config are a repository, and can be written below host_roots
		"DOCKER_CONFIG=/nonexistent", "PIP_CONFIG_FILE=" + os.DevNull, "PIP_NO_INPUT=1", "PIP_NO_INDEX=1", "PIP_NO_CACHE_DIR=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",
		"NPM_CONFIG_USERCONFIG=" + os.DevNull, "NPM_CONFIG_UPDATE_NOTIFIER=false", "NPM_CONFIG_OFFLINE=true",
		"NPM_CONFIG_GLOBALCONFIG=" + noSettings,
	}
}
