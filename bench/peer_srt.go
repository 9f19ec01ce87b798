//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	rowSrt   = "srt, python"
	srtCLI   = "node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js"
	srtRules = `{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":[],"denyWrite":[]}}`
)

// srtMode returns the mode of sandbox-runtime: a new sandbox of bubblewrap for each run, without
// a network.
func (b *bed) srtMode(i interpreter) mode {
	absent := func(why string) mode { return mode{rows: []string{rowSrt}, skip: why} }
	cli := filepath.Join(b.o.srt, srtCLI)
	if _, err := os.Stat(cli); err != nil {
		return absent("not installed (scripts/peers.sh installs it)")
	}
	dir, err := b.dir("srt")
	if err != nil {
		return absent(err.Error())
	}
	rules := filepath.Join(dir, "settings.json")
	if err = os.WriteFile(rules, []byte(srtRules), 0o600); err != nil {
		return absent(err.Error())
	}
	node := filepath.Join(b.o.srt, "node_modules/.bin/node")
	command := "'" + i.Path + "' -c '" + i.hello() + "'"
	p := program{dir: dir, env: []string{"PATH=" + cleanPath, "HOME=" + dir}, argv: []string{node, cli, "-s", rules, "-c", command}}
	m := b.one(rowSrt, i.bare(), func(ctx context.Context) (time.Duration, error) { return b.command(ctx, p) })
	m.every = 6
	return m
}

// srtVersion returns the version of the sandbox-runtime that is measured.
func srtVersion(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, strings.Replace(srtCLI, "dist/cli.js", "package.json", 1)))
	var about struct {
		Version string `json:"version"`
	}
	if err != nil || json.Unmarshal(data, &about) != nil {
		return "srt is not installed"
	}
	return "srt " + about.Version
}
