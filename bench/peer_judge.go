//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func inJudge(i interpreter) string { return "go-judge, HTTP, " + i.Label }

// judge is a go-judge server on the loopback interface, with a client.
type judge struct {
	skip  string // why it cannot be measured here; empty: it can
	url   string
	group string // name of its cgroup, which it does not remove
	cmd   *exec.Cmd
	http  *http.Client
	env   []string
}

const (
	judgeWorkers = 8 // containers that it keeps, each for one program at a time
	judgeMemory  = 512 << 20
	judgeTime    = 10 * time.Second
	judgeOutput  = 10 << 10
)

// startJudge starts the server in its own directory. Its containers see the system's files
// and a directory of packages.
func (b *bed) startJudge(ctx context.Context, packages string, env []string) *judge {
	j := &judge{env: append([]string{"PATH=/usr/bin:/bin"}, env...), group: "smbench-judge-" + strconv.Itoa(os.Getpid())}
	if _, err := os.Stat(b.o.judge); err != nil {
		j.skip = "not installed: no " + filepath.Base(b.o.judge) + " where -go-judge looks for it"
		return j
	}
	if err := j.start(ctx, b, packages); err != nil {
		j.skip = err.Error()
		return j
	}
	b.closers = append(b.closers, j.close)
	return j
}

func (j *judge) start(ctx context.Context, b *bed, packages string) error {
	dir, err := b.dir("judge")
	if err != nil {
		return err
	}
	mounts := filepath.Join(dir, "mount.yaml")
	if err = os.WriteFile(mounts, []byte(judgeMounts(packages)), 0o644); err != nil {
		return fmt.Errorf("write mounts: %w", err)
	}
	files := filepath.Join(dir, "files")
	if err = os.Mkdir(files, 0o700); err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	// It is ended by a signal, even if ctx has ended, so that it can clean up.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.o.judge, "-http-addr", addr, "-pre-fork", strconv.Itoa(judgeWorkers),
		"-release", "-silent", "-cgroup-prefix", j.group, "-dir", files, "-mount-conf", mounts)
	cmd.Dir, cmd.Env = dir, plainEnv()
	if err = cmd.Start(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	j.cmd, j.url = cmd, "http://"+addr
	j.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: judgeWorkers}}
	for range 100 {
		if resp, err := j.http.Get(j.url + "/version"); err == nil { //nolint:noctx // the client has a timeout
			_ = resp.Body.Close()
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	return errors.Join(errors.New("the server did not answer within 5 s"), j.close())
}

// judgeMounts returns the mounts of its containers: those of its default configuration, and
// the packages.
func judgeMounts(packages string) string {
	var y strings.Builder
	y.WriteString("mount:\n")
	bind := func(dir string, readOnly bool) {
		if _, err := os.Stat(dir); err == nil {
			fmt.Fprintf(&y, "  - {type: bind, source: %q, target: %q, readonly: %t}\n", dir, dir, readOnly)
		}
	}
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr", "/etc/ld.so.cache", "/etc/alternatives"} {
		bind(dir, true)
	}
	for _, node := range []string{"/dev/null", "/dev/urandom", "/dev/random", "/dev/zero", "/dev/full"} {
		bind(node, false)
	}
	for _, dir := range []string{"/w", "/tmp"} {
		fmt.Fprintf(&y, "  - {type: tmpfs, target: %q, data: \"size=128m,nr_inodes=4k\"}\n", dir)
	}
	if packages != "" { // the packages may be below one of these directories
		bind(packages, true)
	}
	y.WriteString("proc: true\nworkDir: /w\nhostName: judge\ndomainName: judge\nuid: 1000\ngid: 1000\n")
	return y.String()
}

func (j *judge) close() error {
	j.http.CloseIdleConnections()
	_ = j.cmd.Process.Signal(unix.SIGTERM)
	t := time.AfterFunc(5*time.Second, func() { _ = j.cmd.Process.Kill() })
	defer t.Stop()
	err := j.cmd.Wait()
	removeGroups(j.group)
	if err != nil {
		return fmt.Errorf("end go-judge: %w", err)
	}
	return nil
}

// execute runs a Python program and checks that its last line is 1.
func (j *judge) execute(ctx context.Context, i interpreter, code string) (time.Duration, error) {
	type object = map[string]any
	body, err := json.Marshal(object{"cmd": []object{{
		"args": []string{i.Path, "-c", code}, "env": j.env,
		"files":    []object{{"content": ""}, {"name": "stdout", "max": judgeOutput}, {"name": "stderr", "max": judgeOutput}},
		"cpuLimit": judgeTime, "memoryLimit": judgeMemory, "procLimit": 50,
	}}})
	if err != nil {
		return 0, fmt.Errorf("encode request: %w", err)
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.url+"/run", bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := j.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("go-judge: %w", err)
	}
	data, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	_ = resp.Body.Close()
	if err != nil {
		return 0, fmt.Errorf("go-judge: %w", err)
	}
	var out []struct {
		Status string            `json:"status"`
		Files  map[string]string `json:"files"`
	}
	if err := json.Unmarshal(data, &out); err != nil || len(out) != 1 || out[0].Status != "Accepted" || !bytes.Equal(lastLine([]byte(out[0].Files["stdout"])), []byte("1")) {
		return 0, fmt.Errorf("go-judge answered %.300q", data)
	}
	return took, nil
}

// modes returns the row of go-judge.
func (j *judge) modes(b *bed, i interpreter) []mode {
	if j.skip != "" {
		return []mode{{rows: []string{inJudge(i)}, skip: j.skip}}
	}
	return []mode{b.one(inJudge(i), i.bare(), func(ctx context.Context) (time.Duration, error) { return j.execute(ctx, i, i.hello()) })}
}

// judgeVersion returns the version that go-judge reports.
func judgeVersion(ctx context.Context, path string) string {
	out, err := exec.CommandContext(ctx, path, "-version").Output()
	if err != nil {
		return "go-judge is not installed"
	}
	return "go-judge " + strings.TrimSpace(string(out))
}
