package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// thirdParty is the name of the file that holds the licenses of other authors.
const thirdParty = "THIRD_PARTY_LICENSES"

// licenses returns the texts of the licenses of Go and of every module in the programs. It fails
// for a module without one.
func (r *release) licenses(ctx context.Context, programs map[target]program) ([]byte, error) {
	root, err := r.goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	list, err := r.goCommand(ctx, "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", "all")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for line := range strings.Lines(list) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	linked := map[string]string{"Go": strings.TrimSpace(root)}
	for _, p := range programs {
		for _, m := range p.info.Deps {
			linked[m.Path+" "+m.Version] = dirs[m.Path]
		}
	}
	var b bytes.Buffer
	b.WriteString("The program contains these works of other authors.\n")
	for _, name := range slices.Sorted(maps.Keys(linked)) {
		if err := addLicense(&b, name, linked[name]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// addLicense appends the license and notice files of the work in a directory.
func addLicense(b *bytes.Buffer, name, dir string) error {
	if dir == "" {
		return errors.New("the sources of " + name + " are not in the module cache; run `go mod download`")
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	n := 0
	for _, e := range found {
		stem, _, _ := strings.Cut(strings.ToUpper(e.Name()), ".")
		stem, _, _ = strings.Cut(stem, "-")
		if e.IsDir() || !slices.Contains([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "PATENTS"}, stem) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "\n==== %s: %s ====\n\n%s\n", name, e.Name(), bytes.TrimSpace(text))
		n++
	}
	if n == 0 {
		return errors.New(name + " has no license file")
	}
	return nil
}

// goCommand returns what the go command prints in the sources.
func (r *release) goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, failure.String())
	}
	return string(out), nil
}
