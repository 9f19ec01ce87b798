package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// packed returns a release whose programs are a few bytes, packed into a directory of the test.
func packed(t *testing.T, targets ...target) *release {
	t.Helper()
	_, err := exec.LookPath("dpkg-deb")
	testkit.Need(t, "dpkg", err == nil, "dpkg-deb is missing")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test was built without modules")
	}
	r := &release{
		root: "../..", out: filepath.Join(t.TempDir(), "out"), version: "1.2.3-rc1+abc", when: time.Unix(1_700_000_000, 0).UTC(),
		targets: targets, bases: map[string]string{}, log: io.Discard, notices: []byte("licenses\n"),
	}
	programs := map[target]program{}
	for _, tgt := range targets {
		programs[tgt] = program{[]byte("the program for " + tgt.String()), info}
	}
	if err := r.pack(t.Context(), programs); err != nil {
		t.Fatal(err)
	}
	return r
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEveryTargetHasItsFiles(t *testing.T) {
	r := packed(t, allTargets...)
	var got []string
	for line := range strings.Lines(string(contents(t, filepath.Join(r.out, "SHA256SUMS")))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		digest := sha256.Sum256(contents(t, filepath.Join(r.out, name)))
		if want := hex.EncodeToString(digest[:]); sum != want {
			t.Errorf("%s: SHA256SUMS has %s, want %s", name, sum, want)
		}
		got = append(got, name)
	}
	var want []string
	for _, p := range []string{"linux_amd64", "linux_arm64"} {
		for _, suffix := range []string{".cdx.json", ".mcpb", ".oci.tar", ".tar.gz"} {
			want = append(want, "sandboxmcp_1.2.3-rc1+abc_"+p+suffix)
		}
	}
	for _, p := range []string{"darwin_amd64", "darwin_arm64"} {
		want = append(want, "sandboxmcp_1.2.3-rc1+abc_"+p+".cdx.json", "sandboxmcp_1.2.3-rc1+abc_"+p+".tar.gz")
	}
	for _, p := range []string{"windows_amd64", "windows_arm64"} {
		want = append(want, "sandboxmcp_1.2.3-rc1+abc_"+p+".cdx.json", "sandboxmcp_1.2.3-rc1+abc_"+p+".zip")
	}
	want = append(want, "sandboxmcp_1.2.3~rc1+abc_amd64.deb", "sandboxmcp_1.2.3~rc1+abc_arm64.deb", "server.json")
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files of the release (-want +got):\n%s", d)
	}
}

// TestPackingTwiceGivesTheSameBytes, whatever the clock and the directory are.
func TestPackingTwiceGivesTheSameBytes(t *testing.T) {
	one, two := packed(t, allTargets...), packed(t, allTargets...)
	if d := cmp.Diff(string(contents(t, one.out+"/SHA256SUMS")), string(contents(t, two.out+"/SHA256SUMS"))); d != "" {
		t.Errorf("checksums of two releases (-first +second):\n%s", d)
	}
}

func TestArchiveHoldsProgramAndAliases(t *testing.T) {
	r := packed(t, target{"linux", "amd64"})
	f, err := os.Open(r.file(r.targets[0], ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gr, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	tr := tar.NewReader(gr)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[path.Base(h.Name)] = fmt.Sprintf("%o %s", h.Mode, h.Linkname)
		if !h.ModTime.Equal(r.when) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: got time %v and owner %d %q, want those of the release", h.Name, h.ModTime, h.Uid, h.Uname)
		}
	}
	want := map[string]string{
		"sandboxmcp_1.2.3-rc1+abc": "755 ", "sandboxmcp": "755 ", "LICENSE": "644 ", "README.md": "644 ", "SECURITY.md": "644 ",
		"CHANGELOG.md": "644 ", thirdParty: "644 ",
	}
	for _, alias := range aliases {
		want[alias] = "777 sandboxmcp"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("archive (-want +got):\n%s", d)
	}
}

func TestDebianPackage(t *testing.T) {
	r := packed(t, target{"linux", "arm64"})
	file := filepath.Join(r.out, "sandboxmcp_1.2.3~rc1+abc_arm64.deb")
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--field", file, "Package", "Version", "Architecture").CombinedOutput()
	if got, want := string(out), "Package: sandboxmcp\nVersion: 1.2.3~rc1+abc\nArchitecture: arm64\n"; err != nil || got != want {
		t.Errorf("fields: got %q and %v, want %q", got, err, want)
	}
	dir := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), "dpkg-deb", "--raw-extract", file, dir).CombinedOutput(); err != nil {
		t.Fatalf("extract: %v\n%s", err, text)
	}
	for name, want := range map[string]string{
		"usr/bin/sandboxmcp":                                  "the program for linux/arm64",
		"usr/lib/systemd/system/sandboxmcp.service":           "NoNewPrivileges=yes",
		"usr/lib/sysusers.d/sandboxmcp.conf":                  "u sandboxmcp",
		"usr/share/sandboxmcp/apparmor/sandboxmcp":            "userns,",
		"usr/share/bash-completion/completions/sandboxmcp":    "sandboxmcp",
		"usr/share/zsh/vendor-completions/_sandboxmcp":        "#compdef sandboxmcp",
		"usr/share/fish/vendor_completions.d/sandboxmcp.fish": "sandboxmcp",
		"usr/share/doc/sandboxmcp/copyright":                  "License: Apache-2.0",
		"usr/share/doc/sandboxmcp/" + thirdParty:              "licenses",
		"usr/share/doc/sandboxmcp/docs/quick-start.md":        "# Quick start",
		"DEBIAN/postinst":                                     "apparmor_parser",
	} {
		if got := string(contents(t, filepath.Join(dir, name))); !strings.Contains(got, want) {
			t.Errorf("%s: got %d bytes, want %q in them", name, len(got), want)
		}
	}
	page, err := gzip.NewReader(bytes.NewReader(contents(t, filepath.Join(dir, "usr/share/man/man1/sandboxmcp-run.1.gz"))))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(page); err != nil || !bytes.Contains(text, []byte(".SH EXAMPLE")) {
		t.Errorf("the manual page of run: got %d bytes and %v, want its example", len(text), err)
	}
	for _, alias := range aliases {
		if got, err := os.Readlink(filepath.Join(dir, "usr/share/man/man1", alias+".1.gz")); got != "sandboxmcp.1.gz" {
			t.Errorf("the manual page of %s: got a link to %q and %v, want that of sandboxmcp", alias, got, err)
		}
		if got, err := os.Readlink(filepath.Join(dir, "usr/bin", alias)); got != "sandboxmcp" {
			t.Errorf("%s: got a link to %q and %v, want sandboxmcp", alias, got, err)
		}
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if text, err := exec.CommandContext(t.Context(), "sh", "-n", filepath.Join(dir, "DEBIAN", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, text)
		}
	}
}

// TestServiceIsWhatSystemdAccepts checks the unit where systemd is, with a program that exists.
func TestServiceIsWhatSystemdAccepts(t *testing.T) {
	_, err := exec.LookPath("systemd-analyze")
	testkit.Need(t, "systemd", err == nil, "systemd-analyze is missing")
	unit, err := files.ReadFile("files/sandboxmcp.service")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(unit), "/usr/bin/sandboxmcp", "/bin/true")
	file := filepath.Join(t.TempDir(), "sandboxmcp.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil || strings.Contains(string(out), "sandboxmcp.service") {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold=40", file).CombinedOutput(); err != nil {
		t.Errorf("the exposure is above 4.0: %v\n%s", err, out)
	}
}

func TestBundleAndItsEntryInTheRegistry(t *testing.T) {
	r := packed(t, target{"linux", "amd64"}, target{"windows", "amd64"})
	file := r.file(r.targets[0], ".mcpb")
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	modes := map[string]string{}
	var manifest struct {
		Name, Version string
		Server        struct {
			EntryPoint string `json:"entry_point"`
			Config     struct {
				Command string
				Args    []string
			} `json:"mcp_config"`
		}
	}
	for _, f := range z.File {
		modes[f.Name] = f.Mode().String()
		if f.Name != "manifest.json" {
			continue
		}
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(in).Decode(&manifest); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := modes[manifest.Server.EntryPoint], "-rwxr-xr-x"; got != want {
		t.Errorf("mode of %q in the bundle: got %q, want %q", manifest.Server.EntryPoint, got, want)
	}
	if got, want := manifest.Server.Config.Command, "${__dirname}/server/sandboxmcp"; got != want || manifest.Version != r.version {
		t.Errorf("manifest: got command %q of version %q, want %q of %q", got, manifest.Version, want, r.version)
	}
	var entry struct {
		Name, Version string
		Packages      []struct{ Identifier, FileSha256 string }
	}
	if err := json.Unmarshal(contents(t, filepath.Join(r.out, "server.json")), &entry); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(contents(t, file))
	if len(entry.Packages) != 1 || entry.Packages[0].FileSha256 != hex.EncodeToString(sum[:]) || path.Base(entry.Packages[0].Identifier) != filepath.Base(file) {
		t.Errorf("server.json: got packages %+v, want that of %s alone", entry.Packages, filepath.Base(file))
	}
	if len(about) > 100 { // the bound of the registry
		t.Errorf("the description has %d characters, want at most 100", len(about))
	}
}

func TestImageIsWhole(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.tar")
	if err := writeFile(base, func(w io.Writer) error {
		return writeTar(w, []entry{{name: "etc/os-release", mode: 0o644, data: []byte("ID=none\n")}}, time.Unix(1, 0))
	}); err != nil {
		t.Fatal(err)
	}
	r := packed(t, target{"linux", "arm64"})
	r.bases["arm64"], r.out = base, t.TempDir()
	if err := r.image(r.targets[0], program{data: []byte("the program")}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", r.file(r.targets[0], ".oci.tar"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the layout is broken: %v", err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("got %v and %v, want one image", list, err)
	}
	img, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Config.Labels["io.modelcontextprotocol.server.name"], serverName; got != want || cfg.Architecture != "arm64" || len(cfg.RootFS.DiffIDs) != 2 || cfg.Config.User == "" {
		t.Errorf("got label %q, architecture %s, %d layers, user %q; want %q, arm64, 2 and a user", got, cfg.Architecture, len(cfg.RootFS.DiffIDs), cfg.Config.User, want)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	own, err := layers[1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	var temp *tar.Header // the directory of the state, which any user can write to
	for files := tar.NewReader(own); temp == nil; {
		h, err := files.Next()
		if err != nil {
			t.Fatalf("got no /tmp in the image: %v", err)
		}
		if h.Name == "tmp/" {
			temp = h
		}
	}
	if temp.Typeflag != tar.TypeDir || temp.Mode != 0o1777 {
		t.Errorf("/tmp: got type %c, mode %o, want a directory with 1777", temp.Typeflag, temp.Mode)
	}
	var older []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(contents(t, filepath.Join(dir, "manifest.json")), &older); err != nil || len(older) != 1 {
		t.Fatalf("manifest.json: got %v and %v, want one image", older, err)
	}
	for _, blob := range append(older[0].Layers, older[0].Config) {
		if _, err := os.Stat(filepath.Join(dir, blob)); err != nil {
			t.Errorf("manifest.json names a blob that is not there: %v", err)
		}
	}
}

func TestMaterialsNameEveryModule(t *testing.T) {
	r := packed(t, target{"linux", "amd64"})
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(strings.NewReader(string(contents(t, r.file(r.targets[0], ".cdx.json")))), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, _ := debug.ReadBuildInfo()
	if got, want := len(*bom.Components), len(info.Deps)+1; got != want || want < 10 {
		t.Errorf("got %d components, want the %d modules and Go", got, len(info.Deps))
	}
	for _, c := range *bom.Components {
		if !strings.HasPrefix(c.PackageURL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("%s: got package URL %q", c.Name, c.PackageURL)
		}
	}
}

// TestTwoReleasesHaveTheSameBytes builds a whole release in two directories, each with a cache of
// its own.
func TestTwoReleasesHaveTheSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program twice without a cache")
	}
	goProgram, err := exec.LookPath("go")
	testkit.Need(t, "go", err == nil, "the go command is missing")
	_, err = exec.LookPath("dpkg-deb")
	testkit.Need(t, "dpkg", err == nil, "dpkg-deb is missing")
	modules, err := exec.CommandContext(t.Context(), goProgram, "env", "GOMODCACHE").Output()
	testkit.Need(t, "go", err == nil, "the go command does not run")
	t.Setenv("GOMODCACHE", strings.TrimSpace(string(modules)))
	var sums []string
	for _, name := range []string{"one", "another-directory"} {
		root := filepath.Join(t.TempDir(), name)
		copied := exec.CommandContext(t.Context(), "sh", "-c",
			`mkdir "$0" && cd ../.. && git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$0"`, root)
		if out, err := copied.CombinedOutput(); err != nil {
			t.Fatalf("copy the sources: %v\n%s", err, out)
		}
		t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache"))
		out := filepath.Join(t.TempDir(), "out")
		args := []string{"-root", root, "-out", out, "-version", "1.2.3", "-epoch", "1700000000", "-only", "linux/" + runtime.GOARCH}
		if err := run(t.Context(), args, io.Discard); err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(contents(t, out+"/SHA256SUMS")))
	}
	if d := cmp.Diff(sums[0], sums[1]); d != "" {
		t.Errorf("checksums of two releases (-first +second):\n%s", d)
	}
}
