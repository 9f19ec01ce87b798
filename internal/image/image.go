// Package image makes images that sandboxes run in: a root file system of Debian packages with
// interpreters, made by mmdebstrap. It needs no registry of images. The same packages give the
// same bytes. The image goes into a container engine, into a tar file, or into a directory that
// the process backend shows in its sandboxes.
//
// Programs of the packages run while the image is made, as Debian's installer runs them. They are
// those that Debian has signed.
package image

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Names of images.
const (
	Name       = "sandboxmcp/sandbox:latest"  // the set science
	Compatible = "llm-sandbox:latest"         // the default of SANDBOX_IMAGE, which the set science gets too
	minimal    = "sandboxmcp/sandbox:minimal" // the set minimal
)

// Names returns the names under which this program puts images into engines. Backends look for them
// in this order.
func Names() []string { return []string{Name, Compatible, minimal} }

// Usual returns the images that are used if an engine has none of Names, each for a language.
func Usual() map[sandboxmcp.Language]string {
	return map[sandboxmcp.Language]string{sandboxmcp.Python: "python:3.11-slim", sandboxmcp.Node: "node:20-slim", sandboxmcp.Shell: "ubuntu:22.04"}
}

// suite is the release of Debian.
const suite = "trixie"

// Set is what an image holds.
type Set struct {
	Name     string
	About    string
	Packages []string // of Debian
	Names    []string // that the image gets in an engine
}

// common are the packages of every set: interpreters, and the commands that programs expect.
var common = []string{"bash", "ca-certificates", "curl", "nodejs", "python3-minimal", "libpython3-stdlib", "tzdata"}

var sets = []Set{
	{
		Name: "science", About: "Python with pandas, numpy, scipy, matplotlib and others, Node.js and a shell",
		Packages: slices.Concat(common, []string{
			"python3", "python3-pip", "python3-numpy", "python3-pandas", "python3-scipy", "python3-matplotlib", "python3-seaborn",
			"python3-openpyxl", "python3-xlsxwriter", "python3-reportlab", "python3-pil", "python3-lxml", "python3-bs4", "python3-requests",
			"fonts-dejavu-core", "poppler-utils",
		}),
		Names: []string{Name, Compatible},
	},
	{
		Name: "minimal", About: "Python with its standard library, Node.js and a shell",
		Packages: common,
		Names:    []string{minimal},
	},
}

// Sets returns all sets; the first is the default.
func Sets() []Set { return slices.Clone(sets) }

// FindSet returns the set of a name.
func FindSet(name string) (Set, error) {
	var names []string
	for _, s := range sets {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Set{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "there is no image %s", sandboxmcp.Quote(name)).
		WithHint("use one of " + strings.Join(names, ", "))
}

// Missing returns the error of an image that an engine does not have.
func Missing(name string) *sandboxmcp.Error {
	fix := "docker pull " + name
	switch name {
	case Name, Compatible:
		fix = "sandboxmcp image build"
	case minimal:
		fix = "sandboxmcp image build minimal"
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeDockerError, "the engine has no image %s", sandboxmcp.Quote(name)).WithHint("run `" + fix + "`")
}

// Paths below the root of an image that backends mount on, and the user of its programs.
var places = []string{"mnt/data", "opt/sandboxmcp", "run/program", "workspace"}

const (
	user  = "sandbox:x:1000:1000:sandbox:/tmp:/bin/sh"
	group = "sandbox:x:1000:"
)

// unneeded are paths that packages do not unpack. A license file stays.
var unneeded = []string{"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright"}

// finish is the script that ends the making of an image. Its argument is the root.
func finish() string {
	lines := []string{"set -e"}
	for _, p := range places {
		lines = append(lines, `mkdir -p "$1/`+p+`"`)
	}
	return strings.Join(append(lines,
		`echo '`+user+`' >>"$1/etc/passwd"`,
		`echo '`+group+`' >>"$1/etc/group"`,
		`find "$1/" -xdev -type f -perm /6000 -exec chmod ug-s {} +`, // no program has the rights of another user
		`rm -rf "$1"/var/cache/* "$1"/var/log/* "$1"/var/lib/apt/lists/*`,
	), "\n")
}

// label marks images that this program has made.
const (
	labelSet    = "io.sandboxmcp.set"
	labelDigest = "io.sandboxmcp.rootfs"
)

// settings are the lines of a Dockerfile that describe how containers of the image start.
func settings(set string) []string {
	return []string{
		"ENV PATH=/usr/local/bin:/usr/bin:/bin",
		"ENV HOME=/tmp",
		"ENV LANG=C.UTF-8",
		"ENV MPLBACKEND=Agg",
		"ENV PYTHONDONTWRITEBYTECODE=1",
		"LABEL " + labelSet + "=" + set,
		"WORKDIR /mnt/data",
		"USER 1000:1000",
		`CMD ["/bin/bash"]`,
	}
}

// Dockerfile returns the text by which other builders make the image of a set: the same packages,
// user and settings, on the image that Debian publishes.
func Dockerfile(s Set) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Makes the image that `sandboxmcp image build %s` makes, with a registry: docker build -t %s .\n", s.Name, s.Names[0])
	fmt.Fprintf(&b, "# Code generated by make generate. DO NOT EDIT.\nFROM debian:%s-slim\n", suite)
	b.WriteString("RUN printf '%s\\n'")
	for _, p := range unneeded {
		b.WriteString(" '" + p + "'")
	}
	b.WriteString(" >/etc/dpkg/dpkg.cfg.d/sandboxmcp \\\n && apt-get update \\\n && DEBIAN_FRONTEND=noninteractive PYTHONHASHSEED=0 apt-get install -y --no-install-recommends")
	for _, p := range s.Packages {
		b.WriteString(" \\\n    " + p)
	}
	b.WriteString(" \\\n && set -- '' \\\n && ")
	b.WriteString(strings.ReplaceAll(strings.TrimPrefix(finish(), "set -e\n"), "\n", " \\\n && "))
	b.WriteString("\n" + strings.Join(settings(s.Name), "\n") + "\n")
	return b.String()
}
