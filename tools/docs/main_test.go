package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
	"github.com/sandboxmcp/sandboxmcp/tools/manual"
)

// TestPagesComeFromTheTables: each page holds what only its table knows.
func TestPagesComeFromTheTables(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"cli.md":             "sandboxmcp run SCRIPT",
		"config.md":          "SANDBOXMCP_MAX_RAM_MB",
		"errors.md":          "queue_full",
		"config.schema.json": `"timeout_seconds": {`,
		"rest.md":            "/execute/async",
		"tools.md":           "execute_code",
	} {
		got, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: got %d bytes and %v, want %q in it", page, len(got), err, want)
		}
	}
}

// TestEachCommandHasAManualPage, with its examples, and two calls write the same.
func TestEachCommandHasAManualPage(t *testing.T) {
	dir, again := t.TempDir(), t.TempDir()
	if err := errors.Join(manual.Write(dir), manual.Write(again)); err != nil {
		t.Fatal(err)
	}
	n := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		n++
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(page, []byte(".SH NAME")) || !bytes.Contains(page, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: got %d bytes and %v, want a page with a name and an example", name, len(page), err)
		}
		if other, err := os.ReadFile(filepath.Join(again, name)); err != nil || !bytes.Equal(page, other) {
			t.Errorf("%s differs from call to call, %v", name, err)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(cli.Commands())
	if n < 60 {
		t.Errorf("got %d commands, want at least 60", n)
	}
}

// TestEachToolHasACommand: the table names every tool once, and a command that exists.
func TestEachToolHasACommand(t *testing.T) {
	var pages strings.Builder
	if err := server.WriteDocs(&pages); err != nil {
		t.Fatal(err)
	}
	var tools []string
	for line := range strings.Lines(pages.String()) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			tools = append(tools, strings.TrimSpace(name))
		}
	}
	var named []string
	for _, row := range commandOf {
		named = append(named, row.tool)
		cmd, rest, err := cli.Commands().Find(strings.Fields(row.command))
		if err != nil || len(rest) > 0 || cmd.CommandPath() != "sandboxmcp "+row.command || cmd.RunE == nil {
			t.Errorf("%s: got %v, %v, want the command %s", row.tool, cmd.CommandPath(), err, row.command)
		}
	}
	slices.Sort(tools)
	slices.Sort(named)
	if len(tools) != 28 || !slices.Equal(tools, named) {
		t.Errorf("got tools %q and rows %q, want the same 28", tools, named)
	}
}
