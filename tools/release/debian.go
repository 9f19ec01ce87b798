package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
	"github.com/sandboxmcp/sandboxmcp/tools/manual"
)

// files holds what packages install besides the program.
//
//go:embed files
var files embed.FS

const control = `Package: sandboxmcp
Version: %s
Architecture: %s
Maintainer: sandboxmcp <sandboxmcp@users.noreply.github.com>
Installed-Size: %d
Recommends: bash, ca-certificates, nodejs, python3
Suggests: apparmor, chromium, npm, python3-pip
Section: devel
Priority: optional
Homepage: ` + repository + `
Description: runs untrusted code in sandboxes of the kernel
 An MCP server, a command line and a Go library that run Python, JavaScript and
 shell code, such as code that a language model wrote, behind namespaces,
 Landlock, seccomp and cgroups. It needs no daemon, no Docker and no root.
`

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: sandboxmcp
Source: ` + repository + `

Files: *
Copyright: the authors of sandboxmcp
License: Apache-2.0
 The text is in /usr/share/common-licenses/Apache-2.0. The licenses of the Go
 modules in the program are in THIRD_PARTY_LICENSES beside this file.
`

// debian writes the Debian package for a target. dpkg-deb builds it, for every architecture.
func (r *release) debian(ctx context.Context, t target, p program) error {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return errors.New("dpkg-deb is missing; on Debian and Ubuntu it is always there, elsewhere install dpkg")
	}
	entries, err := r.installed(p) //nolint:contextcheck // the commands are listed and not run
	if err != nil {
		return err
	}
	size := 0
	for _, e := range entries {
		size += len(e.data)
	}
	entries = append(entries, entry{
		name: "DEBIAN/control", mode: 0o644,
		data: fmt.Appendf(nil, control, debianVersion(r.version), t.arch, (size+1023)/1024), // the names of architectures are Go's
	})
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		script, failure := files.ReadFile("files/" + name)
		if failure != nil {
			return failure
		}
		entries = append(entries, entry{name: "DEBIAN/" + name, mode: 0o755, data: script})
	}
	stage, err := os.MkdirTemp("", "release-deb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	tree := filepath.Join(stage, "tree")
	if err := writeTree(tree, entries, r.when); err != nil {
		return err
	}
	file := filepath.Join(r.out, "sandboxmcp_"+debianVersion(r.version)+"_"+t.arch+".deb")
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, file)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10), "DPKG_DEB_THREADS_MAX=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w\n%s", err, out)
	}
	return nil
}

// debianVersion returns a version that dpkg sorts before the release that it leads to.
func debianVersion(version string) string { return strings.ReplaceAll(version, "-", "~") }

// installed returns what the package puts into the file system.
func (r *release) installed(p program) ([]entry, error) {
	entries := []entry{{name: "usr/bin/sandboxmcp", mode: 0o755, data: p.data}}
	for _, name := range aliases {
		entries = append(entries, entry{name: "usr/bin/" + name, link: "sandboxmcp"})
	}
	for _, f := range []struct{ from, to string }{
		{"sandboxmcp.service", "usr/lib/systemd/system/"},
		{"sandboxmcp.sysusers", "usr/lib/sysusers.d/sandboxmcp.conf"},
		{"sandboxmcp.apparmor", "usr/share/sandboxmcp/apparmor/sandboxmcp"},
	} {
		data, err := files.ReadFile("files/" + f.from)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(f.to, "/") {
			f.to += f.from
		}
		entries = append(entries, entry{name: f.to, mode: 0o644, data: data})
	}
	completions, err := completions()
	if err != nil {
		return nil, err
	}
	entries = append(entries, completions...)
	manuals, err := r.manuals()
	if err != nil {
		return nil, err
	}
	entries = append(entries, manuals...)
	const doc = "usr/share/doc/sandboxmcp/"
	names, err := fs.Glob(os.DirFS(r.root), "docs/*.md") // to which README.md links
	if err != nil {
		return nil, err
	}
	pages, err := r.pages(doc, append(names, "README.md", "SECURITY.md", "CHANGELOG.md")...)
	if err != nil {
		return nil, err
	}
	entries = append(entries, pages...)
	return append(entries, entry{name: doc + "copyright", mode: 0o644, data: []byte(copyright)}), nil
}

// manuals returns the manual pages, compressed as Debian has them.
func (r *release) manuals() ([]entry, error) {
	dir, err := os.MkdirTemp("", "release-man")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err = manual.Write(dir); err != nil {
		return nil, err
	}
	const to = "usr/share/man/man1/"
	pages, err := readTree(dir)
	if err != nil {
		return nil, err
	}
	for i, p := range pages {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // without name and time
		if err != nil {
			return nil, err
		}
		if _, err = z.Write(p.data); err != nil {
			return nil, err
		}
		if err = z.Close(); err != nil {
			return nil, err
		}
		pages[i] = entry{name: to + p.name + ".gz", mode: 0o644, data: b.Bytes()}
	}
	for _, name := range aliases {
		pages = append(pages, entry{name: to + name + ".1.gz", link: "sandboxmcp.1.gz"})
	}
	return pages, nil
}

// completions returns the completion scripts where the shells look for them.
func completions() ([]entry, error) {
	root := cli.Commands()
	var entries []entry
	for _, shell := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{"usr/share/bash-completion/completions/sandboxmcp", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"usr/share/zsh/vendor-completions/_sandboxmcp", root.GenZshCompletion},
		{"usr/share/fish/vendor_completions.d/sandboxmcp.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
	} {
		var b bytes.Buffer
		if err := shell.write(&b); err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: shell.path, mode: 0o644, data: b.Bytes()})
	}
	return entries, nil
}
