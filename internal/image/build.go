package image

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Order says which image to make, and where it goes.
type Order struct {
	Set    Set
	Tar    string   // file to write; empty: none
	RootFS string   // directory to make; empty: none
	Names  []string // names of the image in the engine; empty: those of Set, unless Tar or RootFS is given
	Mirror string   // URL of Debian's packages; empty: as mmdebstrap chooses
	Env    []string // environment: PATH, TMPDIR, proxies, SOURCE_DATE_EPOCH, DOCKER_HOST
	Say    func(string)
}

// Report is what Build has made.
type Report struct {
	Set     string   `json:"set"`
	SHA256  string   `json:"sha256"` // of the tar
	Bytes   int64    `json:"bytes"`
	Tar     string   `json:"tar,omitempty"`
	RootFS  string   `json:"rootfs,omitempty"`
	ID      string   `json:"id,omitempty"` // in the engine
	Names   []string `json:"names,omitempty"`
	Kept    []string `json:"kept,omitempty"` // names of another image, which keeps them
	Seconds float64  `json:"seconds"`
}

// epoch is the time of all files of an image if SOURCE_DATE_EPOCH is not set: that of the release
// of the suite.
const epoch = "1754697600"

// Build makes an image. Its errors have the codes backend_unavailable (mmdebstrap is missing),
// docker_unavailable and docker_error (the engine), access_denied (no rights to make it),
// file_exists, and install_failed.
func Build(ctx context.Context, o Order) (Report, error) {
	began := time.Now()
	tool, err := o.check()
	if err != nil {
		return Report{}, err
	}
	var eng *Engine
	if o.imports() {
		if eng, err = Connect(ctx, o.Env); err != nil { // before the minutes that the rest takes
			return Report{}, err
		}
	}
	work, err := os.MkdirTemp(o.scratch(), "sandboxmcp-image-")
	if err != nil {
		return Report{}, failed(err)
	}
	defer os.RemoveAll(work)
	if err = os.Chmod(work, 0o711); err != nil { //nolint:gosec // mmdebstrap may continue as another user
		return Report{}, failed(err)
	}
	file := filepath.Join(work, "root.tar")
	r := Report{Set: o.Set.Name}
	if r.SHA256, r.Bytes, err = o.debootstrap(ctx, tool, work, file); err != nil {
		return Report{}, err
	}
	if o.RootFS != "" {
		o.Say("unpacking it into " + o.RootFS)
		if err = unpack(ctx, file, o.RootFS); err != nil {
			return Report{}, failed(err)
		}
		r.RootFS = o.RootFS
	}
	if eng != nil {
		o.Say("importing it into the engine")
		if err = eng.load(ctx, o, file, &r); err != nil {
			return Report{}, err
		}
	}
	if o.Tar != "" {
		if err = keep(file, o.Tar); err != nil {
			return Report{}, failed(err)
		}
		r.Tar = o.Tar
	}
	r.Seconds = float64(time.Since(began).Milliseconds()) / 1000
	return r, nil
}

// imports reports whether the image goes into an engine.
func (o Order) imports() bool { return len(o.Names) > 0 || o.Tar == "" && o.RootFS == "" }

// scratch returns the directory for temporary files: that of the result, so that it can be
// renamed, else TMPDIR.
func (o Order) scratch() string {
	if to := cmp.Or(o.Tar, o.RootFS); to != "" {
		return filepath.Dir(to)
	}
	return cmp.Or(variable(o.Env, "TMPDIR"), "/tmp")
}

// check finds mmdebstrap and refuses what cannot succeed.
func (o *Order) check() (tool string, err error) {
	for _, path := range []*string{&o.Tar, &o.RootFS} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return "", failed(err)
		}
		if _, err = os.Lstat(*path); !errors.Is(err, fs.ErrNotExist) {
			return "", sandboxmcp.Errorf(sandboxmcp.CodeFileExists, "%s exists already", sandboxmcp.Quote(*path)).WithHint("remove it first, or choose another name").WithCause(err)
		}
	}
	for _, dir := range filepath.SplitList(variable(o.Env, "PATH")) {
		path := filepath.Join(dir, "mmdebstrap")
		if st, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "mmdebstrap, which makes images, is not installed").
		WithHint("sudo apt-get install -y mmdebstrap; or build docker/Dockerfile of the sources with your own builder")
}

// debootstrap runs mmdebstrap and returns the hash and size of the tar that it writes.
func (o Order) debootstrap(ctx context.Context, tool, work, file string) (sum string, size int64, err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // packages of Debian are no secret
	if err != nil {
		return "", 0, failed(err)
	}
	defer out.Close()
	hash := sha256.New()
	count := &counter{}
	cmd := exec.CommandContext(ctx, tool, o.arguments()...)
	cmd.Dir, cmd.Env, cmd.Stdout = work, o.environ(work), io.MultiWriter(out, hash, count)
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return stop(cmd.Process.Pid) }
	cmd.WaitDelay = 30 * time.Second
	said, err := cmd.StderrPipe()
	if err != nil {
		return "", 0, failed(err)
	}
	o.Say("making the image " + o.Set.Name + " of Debian's packages (some minutes)")
	if err = cmd.Start(); err != nil {
		return "", 0, failed(err)
	}
	faults := o.follow(said)
	if err = cmd.Wait(); err == nil {
		err = out.Close()
	}
	switch {
	case ctx.Err() != nil:
		return "", 0, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the image was not made").WithCause(ctx.Err())
	case err != nil:
		return "", 0, explain(err, faults, work)
	}
	return hex.EncodeToString(hash.Sum(nil)), count.n, nil
}

func (o Order) arguments() []string {
	args := []string{"--variant=essential", "--format=tar", "--verbose", "--include=" + strings.Join(o.Set.Packages, ","), "--skip=output/dev"}
	for _, path := range unneeded {
		args = append(args, "--dpkgopt="+path)
	}
	args = append(args, "--customize-hook="+finish(), suite, "-")
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	return args
}

// environ returns the environment of mmdebstrap: the caller's, without this program's variables.
func (o Order) environ(work string) []string {
	env := []string{"TMPDIR=" + work, "SOURCE_DATE_EPOCH=" + cmp.Or(variable(o.Env, "SOURCE_DATE_EPOCH"), epoch), "PYTHONHASHSEED=0", "LC_ALL=C.UTF-8"}
	for _, kv := range o.Env {
		switch name, _, _ := strings.Cut(kv, "="); {
		case strings.HasPrefix(name, "SANDBOX"), strings.HasPrefix(name, "PYTHON"), name == "TMPDIR", name == "SOURCE_DATE_EPOCH", name == "LC_ALL":
		default:
			env = append(env, kv)
		}
	}
	return env
}

// follow reads what mmdebstrap prints until it ends, tells the steps, and returns the last lines
// that name faults.
func (o Order) follow(said io.Reader) (faults []string) {
	const most, every = 5, 50
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	done := 0
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case fault().MatchString(line):
			if faults = append(faults, line); len(faults) > most {
				faults = faults[1:]
			}
		case strings.HasPrefix(line, "Setting up "):
			if done++; done%every == 0 {
				o.Say(fmt.Sprintf("%d packages installed", done))
			}
		case strings.HasPrefix(line, "I: "):
			o.Say(strings.TrimSuffix(strings.TrimPrefix(line, "I: "), "..."))
		}
	}
	_, _ = io.Copy(io.Discard, said) // after a line that is too long
	return faults
}

var fault = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(E: |Err:|dpkg: error|.*No space left on device)`) })

// explain returns the error for an mmdebstrap that has failed.
func explain(err error, faults []string, work string) error {
	text := strings.Join(faults, "; ")
	last := text
	if n := len(faults); n > 0 {
		last = strings.TrimPrefix(faults[n-1], "E: ")
	}
	switch {
	case strings.Contains(text, "No space left on device") || errors.Is(err, syscall.ENOSPC):
		return full(work)
	case os.Geteuid() != 0 && (strings.Contains(text, "subuid") || strings.Contains(text, "newuidmap") || strings.Contains(text, "unshare") || strings.Contains(text, "cannot run as")):
		return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "this user cannot make an image: %s", last).
			WithHint("run it as root, or give the user subordinate ids: sudo apt-get install -y uidmap && sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER").WithCause(err)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "mmdebstrap failed: %s", cmp.Or(last, err.Error())).
		WithHint("check the network and --mirror").WithCause(err)
}

func full(dir string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "no space is left in %s", sandboxmcp.Quote(filepath.Dir(dir))).
		WithHint("about 3 GB are needed; set TMPDIR to a directory with more room")
}

func failed(err error) error {
	var known *sandboxmcp.Error
	var at *fs.PathError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC) && errors.As(err, &at):
		return full(at.Path).WithCause(err)
	case errors.Is(err, fs.ErrPermission):
		return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the image cannot be made: %s", err).WithHint("run it as a user who may write there").WithCause(err)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the image cannot be made: %s", err).WithCause(err)
}

// keep moves a finished file to its place, which must not exist.
func keep(file, to string) error {
	if err := os.Link(file, to); err != nil {
		return fmt.Errorf("keep the image: %w", err)
	}
	return nil
}

// counter counts the bytes that are written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func variable(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			value = v
		}
	}
	return value
}
