package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	npmShort = "application/vnd.npm.install-v1+json"
	npmFull  = "application/json"
)

// npmDocument is a document of an npm registry, reduced to what npm needs to resolve.
type npmDocument struct {
	Name     string                `json:"name"`
	Tags     map[string]string     `json:"dist-tags"`
	Versions map[string]npmVersion `json:"versions"`

	dist map[string]file // by version
}

// npmVersion is one version of a package.
type npmVersion struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Dependencies json.RawMessage `json:"dependencies,omitempty"` // objects are kept as they are: as maps they would take many times as much memory
	Optional     json.RawMessage `json:"optionalDependencies,omitempty"`
	Peer         json.RawMessage `json:"peerDependencies,omitempty"`
	PeerMeta     json.RawMessage `json:"peerDependenciesMeta,omitempty"`
	Bundle       json.RawMessage `json:"bundleDependencies,omitempty"`
	Bundled      json.RawMessage `json:"bundledDependencies,omitempty"`
	Engines      json.RawMessage `json:"engines,omitempty"`
	OS           json.RawMessage `json:"os,omitempty"`
	CPU          json.RawMessage `json:"cpu,omitempty"`
	Libc         json.RawMessage `json:"libc,omitempty"`
	Deprecated   json.RawMessage `json:"deprecated,omitempty"`
	Shrinkwrap   bool            `json:"_hasShrinkwrap,omitempty"`
	Dist         npmDist         `json:"dist"`
}

type npmDist struct {
	Tarball   string `json:"tarball"`
	Integrity string `json:"integrity"`
}

// registry returns the registry of a name.
func (c *client) registry(name string) index {
	if scope, _, ok := strings.Cut(name, "/"); ok {
		if i, ok := c.scopes[scope]; ok {
			return i
		}
	}
	return c.indexes[0]
}

// fetchNode lists a package of an npm registry.
func (g *Gateway) fetchNode(ctx context.Context, name string) (*project, error) {
	i := g.client.registry(name)
	u := *i.url
	u.Path, u.RawPath = u.Path+"/"+name, u.EscapedPath()+"/"+strings.ReplaceAll(name, "/", "%2f")
	accept := npmShort + "; q=1.0, " + npmFull + "; q=0.8"
	if g.p.policy().MinAge > 0 {
		accept = npmFull // the short form has no times
	}
	d, err := g.fetchDocument(ctx, &u, accept)
	if err != nil {
		return nil, err
	}
	g.p.parsing <- struct{}{}
	defer func() { <-g.p.parsing }()
	doc, err := readRegistry(d.body)
	if err == nil && doc.name != name {
		err = errors.New("it is the document of another package")
	}
	const strange = "the package index %s does not answer like an npm registry for %s"
	if err != nil {
		return nil, unreadable(err, name, strange, "npm config list", i)
	}
	base, err := url.Parse(d.URL)
	if err != nil {
		return nil, err
	}
	out := &npmDocument{Name: name, Tags: map[string]string{}, Versions: map[string]npmVersion{}, dist: map[string]file{}}
	err = eachPart(doc.versions, func(p part) error {
		g.listNode(out, base, p.name, p.raw, doc.times[p.name])
		switch {
		case len(out.Versions) > maxListed:
			return tooMany(name, maxListed)
		case g.kept.Add(1) > maxKept:
			return tooMuch("versions in the lists of the index", maxKept)
		}
		return nil
	})
	if err != nil {
		return nil, unreadable(err, name, strange, "npm config list", i)
	}
	out.tag(doc.tags)
	return &project{index: i.url.Hostname(), npm: out}, nil
}

// registryDocument is a document of a registry before its versions are read.
type registryDocument struct {
	name        string
	tags, times map[string]string
	versions    []byte
}

func readRegistry(body []byte) (doc registryDocument, err error) {
	err = eachPart(body, func(p part) (err error) {
		switch p.name {
		case "name":
			err = json.Unmarshal(p.raw, &doc.name)
		case "dist-tags":
			doc.tags, err = texts(p.raw)
		case "time":
			doc.times, err = texts(p.raw)
		case "versions":
			doc.versions = bytes.Clone(p.raw)
		}
		return err
	})
	if err == nil && doc.versions == nil {
		doc.versions = []byte("null")
	}
	return doc, err
}

// maxNodeVersion bounds the bytes of a version, as npm does.
const maxNodeVersion = 256

// listNode adds a version, unless a rule leaves it out.
func (g *Gateway) listNode(out *npmDocument, base *url.URL, version string, raw json.RawMessage, uploaded string) {
	var v npmVersion
	if len(raw) > maxVersion || len(version) > maxNodeVersion || !nodeExact().MatchString(version) || json.Unmarshal(lenient(raw), &v) != nil || v.Name != out.Name || v.Version != version {
		g.reject(out.Name, clean(version), "the index describes it wrongly", false)
		return
	}
	if g.tooYoung(uploaded) {
		g.reject(out.Name, version, g.youngReason(uploaded), g.direct(out.Name))
		return
	}
	sum, ok := parseIntegrity(v.Dist.Integrity)
	u, err := base.Parse(v.Dist.Tarball)
	if !ok || err != nil || v.Dist.Tarball == "" || len(v.Dist.Tarball) > maxURL {
		g.reject(out.Name, version, "the index gives no SHA-512 for it", false)
		return
	}
	out.dist[version] = file{pkg: out.Name, version: version, name: tarballName(out.Name, version), digest: sum, url: u}
	out.Versions[version] = v
}

// lenient replaces fields that old packages have in another type than npm expects today.
func lenient(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	for _, name := range []string{"dependencies", "optionalDependencies", "peerDependencies"} {
		if f, ok := fields[name]; ok && !bytes.HasPrefix(bytes.TrimSpace(f), []byte("{")) {
			delete(fields, name)
		}
	}
	if f, ok := fields["_hasShrinkwrap"]; ok && string(f) != "true" && string(f) != "false" {
		delete(fields, "_hasShrinkwrap")
	}
	fixed, err := json.Marshal(fields)
	if err != nil {
		return raw
	}
	return fixed
}

// clean makes a text of an index or of an archive fit to be shown. The message around it is the server's own
// words, so only a single plain word is not quoted.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "")
	end := ""
	if len(s) > maxShown {
		s, end = strings.ToValidUTF8(s[:maxShown], ""), "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !plainLetter(r) }) {
		s = sandboxmcp.Quote(s)
	}
	return s + end
}

// maxShown is how many bytes of such a text are shown.
const maxShown = 60

// plainLetter reports whether a letter occurs in names of packages, files and hosts, and in versions.
func plainLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+!~@/:[]", r)
}

// tag keeps the tags whose versions are listed. If the latest version is left out, latest is
// the newest of the others.
func (d *npmDocument) tag(tags map[string]string) {
	for tag, version := range tags {
		if _, ok := d.Versions[version]; ok {
			d.Tags[tag] = version
		}
	}
	if d.Tags["latest"] != "" {
		return
	}
	newest := ""
	for v := range d.Versions {
		stable := semver.Prerelease("v"+v) == ""
		if newest == "" || stable && semver.Prerelease("v"+newest) != "" || stable == (semver.Prerelease("v"+newest) == "") && semver.Compare("v"+v, "v"+newest) > 0 {
			newest = v
		}
	}
	if newest != "" {
		d.Tags["latest"] = newest
	}
}

// tarballName returns the file name of a tarball: without the scope, as npm writes it.
func tarballName(name, version string) string {
	return name[strings.LastIndexByte(name, '/')+1:] + "-" + version + ".tgz"
}

// serveNode answers a request of npm: /NAME, /@SCOPE%2fNAME and /NAME/-/FILE.tgz.
func (g *Gateway) serveNode(w http.ResponseWriter, r *http.Request) error {
	name, tarball, isFile := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/-/")
	if !isName(sandboxmcp.Node, name) {
		return errNotListed
	}
	pr, err := g.project(name)
	if err != nil {
		return err
	}
	if isFile {
		for _, f := range pr.npm.dist {
			if f.name == tarball {
				return g.serveFile(w, r, f)
			}
		}
		return errNotListed
	}
	out := npmDocument{Name: name, Tags: pr.npm.Tags, Versions: make(map[string]npmVersion, len(pr.npm.Versions))}
	for version, v := range pr.npm.Versions {
		f := pr.npm.dist[version]
		v.Dist.Tarball = fmt.Sprintf("http://%s/%s/-/%s", r.Host, name, f.name)
		out.Versions[version] = v
	}
	w.Header().Set("Content-Type", npmShort)
	return json.NewEncoder(w).Encode(out)
}
