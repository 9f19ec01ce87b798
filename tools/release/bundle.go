package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// serverName is the name in the MCP registry; images carry it as a proof of their origin.
const serverName = "io.github.sandboxmcp/sandboxmcp"

// bundle writes the MCP bundle for a target: a zip with a manifest, which a client installs by
// itself. A manifest cannot name an architecture, so each has a bundle of its own.
func (r *release) bundle(t target, p program) error {
	binary := "server/" + t.executable()
	manifest, err := document(map[string]any{
		"manifest_version": "0.3",
		"name":             "sandboxmcp",
		"display_name":     "sandboxmcp",
		"version":          r.version,
		"description":      about,
		"author":           map[string]any{"name": "the authors of sandboxmcp", "url": repository},
		"repository":       map[string]any{"type": "git", "url": repository},
		"homepage":         repository,
		"support":          repository + "/issues",
		"license":          license,
		"keywords":         []string{"sandbox", "python", "javascript", "shell", "code execution"},
		"tools_generated":  true, // the settings decide which tools there are
		"server": map[string]any{
			"type":        "binary",
			"entry_point": binary,
			"mcp_config": map[string]any{
				"command": "${__dirname}/" + binary,
				"args":    []string{"serve"},
				"env":     map[string]string{},
			},
		},
		"compatibility": map[string]any{"platforms": []string{t.os}},
	})
	if err != nil {
		return err
	}
	entries, err := r.pages("", "LICENSE")
	if err != nil {
		return err
	}
	entries = append(entries,
		entry{name: "manifest.json", mode: 0o644, data: manifest},
		entry{name: binary, mode: 0o755, data: p.data})
	return writeFile(r.file(t, ".mcpb"), func(w io.Writer) error { return writeZip(w, entries, r.when) })
}

// registryEntry writes server.json, which the MCP registry publishes. It names the bundles by
// where a release has them and by their hashes.
func (r *release) registryEntry() error {
	packages := []any{}
	for _, t := range r.targets {
		file := r.file(t, ".mcpb")
		sum, err := digest(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		packages = append(packages, map[string]any{
			"registryType": "mcpb",
			"identifier":   repository + "/releases/download/v" + r.version + "/" + filepath.Base(file),
			"version":      r.version,
			"fileSha256":   sum,
			"transport":    map[string]any{"type": "stdio"},
		})
	}
	data, err := document(map[string]any{
		"$schema":     "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":        serverName,
		"title":       "sandboxmcp",
		"description": about,
		"version":     r.version,
		"repository":  map[string]any{"url": repository, "source": "github"},
		"packages":    packages,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "server.json"), data, 0o644)
}

// document returns a JSON document as a person reads it.
func document(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
