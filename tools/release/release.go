package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	repository = "https://github.com/sandboxmcp/sandboxmcp"
	about      = "Runs untrusted code in sandboxes of the kernel, for agents, shells and Go programs"
	license    = "Apache-2.0"

	buildVersion = "github.com/sandboxmcp/sandboxmcp/internal/app.buildVersion"
)

// aliases are the names under which the program behaves as an older one.
var aliases = []string{"mcp-code-sandbox", "sandboxmcp-api"}

// target is a system that the program is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// executable returns the file name of the program on the target.
func (t target) executable() string {
	if t.os == "windows" {
		return "sandboxmcp.exe"
	}
	return "sandboxmcp"
}

var allTargets = []target{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// program is the program for a target, with what its linker recorded in it.
type program struct {
	data []byte
	info *debug.BuildInfo
}

// choose returns the targets that a list names; all of them if it is empty.
func choose(list string) ([]target, error) {
	if list == "" {
		return allTargets, nil
	}
	var chosen []target
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(allTargets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("no target %q; there are %v", name, allTargets)
		}
		chosen = append(chosen, allTargets[i])
	}
	return chosen, nil
}

// release is a release that is being built.
type release struct {
	root    string // the sources
	out     string // where the files go
	version string
	when    time.Time
	targets []target
	bases   map[string]string // by architecture: a root file system as a tar
	log     io.Writer
	key     ed25519.PrivateKey // signs the checksums; nil: they are not signed
	notices []byte             // the licenses of what is linked into the programs
}

// file returns the path of a file of the release for a target.
func (r *release) file(t target, suffix string) string {
	return filepath.Join(r.out, "sandboxmcp_"+r.version+"_"+t.os+"_"+t.arch+suffix)
}

// pages returns the named files of the sources, and the licenses, as entries of a directory.
func (r *release) pages(dir string, names ...string) ([]entry, error) {
	entries := []entry{{name: dir + thirdParty, mode: 0o644, data: r.notices}}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: dir + name, mode: 0o644, data: data})
	}
	return entries, nil
}

// build compiles the programs and packs them.
func (r *release) build(ctx context.Context) error {
	stage, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	programs := map[target]program{}
	for _, t := range r.targets {
		started := time.Now()
		if programs[t], err = r.compile(ctx, t, stage); err != nil {
			return err
		}
		fmt.Fprintf(r.log, "built for %s in %.0f s\n", t, time.Since(started).Seconds())
	}
	if r.notices, err = r.licenses(ctx, programs); err != nil {
		return fmt.Errorf("licenses: %w", err)
	}
	return r.pack(ctx, programs)
}

// compile returns the static program for a target. It contains neither the paths of this
// machine nor the state of its checkout.
func (r *release) compile(ctx context.Context, t target, stage string) (program, error) {
	file := filepath.Join(stage, t.os+"_"+t.arch, t.executable())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X "+buildVersion+"="+r.version, "-o", file, "./cmd/sandboxmcp")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOOS="+t.os, "GOARCH="+t.arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return program{}, fmt.Errorf("build for %s: %w\n%s", t, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	info, err := buildinfo.ReadFile(file)
	return program{data, info}, err
}

// pack writes the files of the release from the compiled programs.
func (r *release) pack(ctx context.Context, programs map[target]program) error {
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return err
	}
	for _, t := range r.targets {
		if err := r.archive(t, programs[t]); err != nil {
			return fmt.Errorf("archive for %s: %w", t, err)
		}
		if err := r.materials(t, programs[t]); err != nil {
			return fmt.Errorf("bill of materials for %s: %w", t, err)
		}
		if t.os != "linux" { // elsewhere the program refuses to run code
			continue
		}
		if err := r.debian(ctx, t, programs[t]); err != nil {
			return fmt.Errorf("package for %s: %w", t, err)
		}
		if err := r.bundle(t, programs[t]); err != nil {
			return fmt.Errorf("MCP bundle for %s: %w", t, err)
		}
		if err := r.image(t, programs[t]); err != nil {
			return fmt.Errorf("image for %s: %w", t, err)
		}
	}
	if err := r.registryEntry(); err != nil {
		return fmt.Errorf("server.json: %w", err)
	}
	if err := r.checksums(); err != nil {
		return err
	}
	return r.sign()
}

// checksums writes SHA256SUMS over every file of the release, for sha256sum -c.
func (r *release) checksums() error {
	names, err := os.ReadDir(r.out) // sorted
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range names {
		sum, err := digest(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, sumsFile), []byte(sums.String()), 0o644)
}

// digest returns the SHA-256 of a file in hex.
func digest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
