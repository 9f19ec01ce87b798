package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Site is what the caller makes on the machine for the programs to aim at.
type Site struct {
	dir      string
	canary   string      // file that every user may read
	drop     string      // directory that every user may write to
	made     os.FileInfo // of the canary, as the programs find it
	socket   string      // unix socket that every user may connect to
	abstract string      // name of a unix socket without a path
	port     int         // of 127.0.0.1
	pid      int         // this process
	start    string      // when it was started, as the kernel counts it
	home     string
	daemon   string // argument of a process that is left behind

	listeners []net.Listener
	done      sync.WaitGroup
	mu        sync.Mutex
	accepted  map[string]int
}

// NewSite makes a site in the directory for temporary files. The caller closes it.
func NewSite(ctx context.Context) (*Site, error) {
	dir, err := os.MkdirTemp("", "sandboxmcp-probe-")
	if err != nil {
		return nil, fmt.Errorf("make a place for the probes: %w", err)
	}
	s := &Site{
		dir: dir, canary: filepath.Join(dir, "canary"), drop: filepath.Join(dir, "drop"), socket: filepath.Join(dir, "socket"),
		abstract: "sandboxmcp-probe-" + rand.Text(), daemon: "sandboxmcp-probe-" + rand.Text(), pid: os.Getpid(), accepted: map[string]int{},
	}
	if err := s.build(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("make a place for the probes: %w", err)
	}
	return s, nil
}

func (s *Site) build(ctx context.Context) error {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return errors.New("the kernel does not say when this process was started")
	}
	s.start = fields[19]
	if s.home, err = os.UserHomeDir(); err != nil {
		s.home = "/root"
	}
	f, err := os.OpenFile(s.canary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("canary " + rand.Text() + "\n")
	err = errors.Join(err, f.Chmod(0o644), f.Close(), os.Mkdir(s.drop, 0o700))
	if err == nil {
		s.made, err = os.Stat(s.canary)
	}
	if err == nil { // every user of the machine may do this, so that only walls stop a program
		err = errors.Join(os.Chmod(s.drop, 0o777), os.Chmod(s.dir, 0o755)) //nolint:gosec // as above
	}
	if err != nil {
		return err
	}
	for _, l := range []struct{ name, network, address string }{{"port", "tcp", "127.0.0.1:0"}, {"socket", "unix", s.socket}, {"abstract", "unix", "@" + s.abstract}} {
		if err := s.listen(ctx, l.name, l.network, l.address); err != nil {
			return err
		}
	}
	return os.Chmod(s.socket, 0o777) //nolint:gosec // as above
}

// listen counts the connections to an address.
func (s *Site) listen(ctx context.Context, name, network, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, l)
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.port = a.Port
	}
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			s.mu.Lock()
			s.accepted[name]++
			s.mu.Unlock()
		}
	})
	return nil
}

// Close removes all of the site.
func (s *Site) Close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
	s.done.Wait()
	_ = os.RemoveAll(s.dir)
}

// reached says that a listener had a connection, or nothing.
func (s *Site) reached(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted[name] > 0 {
		return "a connection arrived"
	}
	return ""
}

// written says that a file was made, or nothing.
func (s *Site) written() string {
	names, err := os.ReadDir(s.drop)
	if err != nil {
		return "the directory cannot be listed: " + err.Error()
	}
	if len(names) > 0 {
		return "a file was made"
	}
	return ""
}

// changed says that the file has another mode or other times, or nothing.
func (s *Site) changed() string {
	now, err := os.Stat(s.canary)
	if err != nil {
		return "the file cannot be looked at: " + err.Error()
	}
	if now.Mode() != s.made.Mode() || !now.ModTime().Equal(s.made.ModTime()) {
		return "the file was changed"
	}
	return ""
}

// left says that a process is left behind, or nothing.
func (s *Site) left() string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		return "the processes cannot be listed"
	}
	for _, name := range files {
		if line, err := os.ReadFile(name); err == nil && bytes.Contains(line, []byte(s.daemon)) {
			return "process " + strconv.Itoa(pidOf(name)) + " is left"
		}
	}
	return ""
}

func pidOf(cmdline string) int {
	pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(cmdline)))
	return pid
}

// wait waits until no process is left, at most for a time.
func (s *Site) wait(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.left() != "" {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
