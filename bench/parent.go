//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// cleanPath is the PATH of a user without own installations.
const cleanPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// parent runs one suite per user, each in a child process, and writes the document.
func parent(ctx context.Context, o options, command string, stdout io.Writer) (err error) {
	if o.user && os.Geteuid() != 0 {
		return errors.New("-user needs root, to become somebody else")
	}
	work, err := os.MkdirTemp("/tmp", "smbench.")
	if err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err = os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("open scratch directory: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	// The second user must be able to run the programs, wherever the checkout is.
	bench, bin := filepath.Join(work, "bench"), filepath.Join(work, "sandboxmcp")
	if judge := filepath.Join(work, "go-judge"); copyFile(o.judge, judge) == nil {
		o.judge = judge
	}
	for to, from := range map[string]string{bench: self, bin: o.bin} {
		if err = copyFile(from, to); err != nil {
			return fmt.Errorf("%w (make build makes bin/sandboxmcp)", err)
		}
	}
	for _, path := range []*string{&o.s1, &o.docker, &o.gvisor, &o.srt, &o.science, &o.judge} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("make path absolute: %w", err)
		}
	}
	d := document{At: time.Now().UTC(), Commit: commit(ctx), Command: command, Machine: describe(ctx), Peer: s1Versions(o.s1)}
	d.Peers = []string{judgeVersion(ctx, o.judge), dockerVersion(ctx, o.docker), gvisorVersion(o.gvisor), srtVersion(o.srt)}
	s, err := startSuite(ctx, o, suiteUser{name: currentUser(), work: filepath.Join(work, "own"), bench: bench, bin: bin, path: o.path})
	if err != nil {
		return err
	}
	d.Suites = append(d.Suites, s)
	if o.user {
		var uid int
		if uid, err = scratchUID(); err != nil {
			return err
		}
		s, err = startSuite(ctx, o, suiteUser{name: "unprivileged user", uid: uid, work: filepath.Join(work, "user"), bench: bench, bin: bin, path: cleanPath})
		if err != nil {
			return err
		}
		d.Suites = append(d.Suites, s)
	}
	d.LoadAfter = loadAverage()
	if o.out == "-" {
		_, err = io.WriteString(stdout, d.markdown())
		return err
	}
	if err = errors.Join(replaceFile(o.out, d.users()), replaceFile(o.all, d.markdown())); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\nwritten to %s and %s\n", d.summary(), o.out, o.all)
	return err
}

// suiteUser is the user that runs a suite. A uid of 0 means the current user.
type suiteUser struct {
	name       string
	uid        int
	work       string
	bench, bin string
	path       string
}

func startSuite(ctx context.Context, o options, u suiteUser) (suite, error) {
	var s suite
	for _, dir := range []string{u.work, filepath.Join(u.work, "tmp"), filepath.Join(u.work, "home")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return s, fmt.Errorf("make scratch directory: %w", err)
		}
		if u.uid != 0 {
			if err := os.Chown(dir, u.uid, u.uid); err != nil {
				return s, fmt.Errorf("give scratch directory: %w", err)
			}
		}
	}
	file := filepath.Join(u.work, "figures.json")
	o.state, o.suite, o.bin, o.path = u.work, file, u.bin, u.path
	o.science, o.noScience = scienceFor(ctx, o, u)
	group, fd, remove := makeGroup("smbench-" + strconv.Itoa(os.Getpid()))
	defer remove()
	o.group = group
	args := append([]string{u.bench, "-child", "suite"}, o.pass()...)
	if o.profile != "" && u.uid == 0 {
		args = append(args, "-cpuprofile", o.profile)
	}
	env := append(withoutOurs(os.Environ()), "TMPDIR="+filepath.Join(u.work, "tmp"))
	if u.uid != 0 {
		id := strconv.Itoa(u.uid)
		args = append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps=-all", "--"}, args...)
		env = []string{"HOME=" + filepath.Join(u.work, "home"), "LANG=C.UTF-8", "PATH=" + cleanPath, "TMPDIR=" + filepath.Join(u.work, "tmp")}
	}
	fmt.Fprintf(os.Stderr, "measuring as %s\n", u.name)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// An interrupted suite ends its own processes; the kernel ends the others.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if fd != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	}
	cmd.Env, cmd.Stderr, cmd.Dir = env, os.Stderr, u.work
	if o.profile != "" && !filepath.IsAbs(o.profile) {
		cmd.Dir = "" // the current directory, in which the profile is written
	}
	if err := cmd.Run(); err != nil {
		return s, fmt.Errorf("measure as %s: %w", u.name, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return s, fmt.Errorf("read figures: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read figures: %w", err)
	}
	s.User = u.name
	return s, nil
}

// pass returns the flags of a suite's process.
func (o *options) pass() []string {
	out := []string{
		"-suite-file", o.suite, "-state", o.state, "-bin", o.bin, "-s1", o.s1, "-go-judge", o.judge, "-docker", o.docker, "-gvisor", o.gvisor, "-srt", o.srt,
		"-science", o.science, "-no-science", o.noScience, "-group", o.group, "-path", o.path, "-only", o.only,
		"-rounds", strconv.Itoa(o.rounds), "-pause", o.pause.String(), "-rss-wait", o.rssWait.String(), "-cell", o.cell.String(),
		"-sparse", strconv.Itoa(o.sparse), "-sparse-rest", o.sparseRest.String(),
	}
	for name, on := range map[string]bool{"rss": o.rss, "leak": o.leak, "burst": o.burst, "load": o.load, "idle": o.idle, "drain": o.ready, "long": o.long} {
		out = append(out, "-"+name+"="+strconv.FormatBool(on))
	}
	return out
}

// scienceFor returns a state directory that belongs to the user and has the package set. If
// that is not possible, why has the reason.
func scienceFor(ctx context.Context, o options, u suiteUser) (dir, why string) {
	if o.science == "" {
		return "", o.noScience
	}
	if err := setUpScience(ctx, o, u.path); err != nil {
		return "", err.Error()
	}
	if u.uid == 0 {
		return o.science, ""
	}
	dir = filepath.Join(u.work, "science")
	if err := giveScience(ctx, o.science, dir, u.uid); err != nil {
		return "", err.Error()
	}
	return dir, ""
}

func currentUser() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "an unprivileged user"
}

// scratchUID returns a user id that is not in use.
func scratchUID() (int, error) {
	for uid := 61_700; uid < 61_900; uid++ {
		_, err := user.LookupId(strconv.Itoa(uid))
		var unknown user.UnknownUserIdError
		if errors.As(err, &unknown) && !ownsProcess(uid) {
			return uid, nil
		}
	}
	return 0, errors.New("no unused user id was found")
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	return nil
}

// replaceFile replaces a file atomically.
func replaceFile(name, text string) error {
	temp := name + ".new"
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	if err := os.Rename(temp, name); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}
