// Package packages is the server's index of packages: the only network that resolving and
// installing packages has.
//
// A caller asks for packages by [Spec]. A resolver (pip or npm) runs in a sandbox whose only
// network is a [Gateway], an [http.Handler] that speaks the protocols of package indexes. The
// gateway asks the indexes that this machine's pip and npm are configured for, applies the
// operator's [Policy], lists wheels and npm tarballs only, and keeps what it fetched. What the
// resolver answers is not trusted: [Gateway.Install] looks up every file again in the
// documents of the index, verifies its hash and unpacks it itself. No code of a package is
// run, and credentials of an index never reach the sandbox.
//
// The result is a [Tree], a read-only directory that is named after the digest of its
// manifest:
//
//	packages/blobs/              wheels and tarballs, by the hash that an index gives for them
//	packages/index/              documents of indexes, with their ETag and age
//	packages/asked/              which tree answers which specs
//	packages/locks/DIGEST        is locked while a process uses a tree
//	packages/trees/DIGEST/manifest.json
//	packages/trees/DIGEST/site-packages/ or node_modules/
//
// Everything is written under another name and renamed, so several processes can share the
// directory.
package packages

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Decision is what a policy does with a package.
type Decision string

// The decisions. The zero Decision is [Allow].
const (
	Allow Decision = "allow"
	Ask   Decision = "ask" // a person decides
	Deny  Decision = "deny"
)

// Policy says which packages may be installed. Deny goes before Allow, and both go before
// Default. It applies to dependencies, too.
type Policy struct {
	Default Decision
	Allow   []string      // names that need no question; * matches any part of a name, and python: or node: in front limits the language
	Deny    []string      // names that are refused, in the form of Allow
	MinAge  time.Duration // files that were uploaded less than this ago are not listed
}

// Config configures a [Packages].
type Config struct {
	Dir       string // directory of the cache and the trees; it need not exist. See [Dir].
	Policy    Policy
	Env       []string                                               // environment of the machine's user: PIP_…, npm_config_…, proxy and CA variables
	Home      string                                                 // home directory of the machine's user, for pip.conf, .npmrc and .netrc; empty: none is read
	Version   string                                                 // version of the product, for User-Agent
	MaxCache  int64                                                  // bytes of all blobs and documents together, and of all trees together; 0: 4 GiB each
	Spare     func(bytes int64) error                                // fails if the file system of Dir has too little space for so many bytes more; nil: it is not asked
	Owners    func(ctx context.Context) (map[string][]string, error) // the namespaces whose later runs see a tree, by its digest; nil: none
	Logger    *slog.Logger                                           // nil: nothing is logged
	Now       func() time.Time                                       // nil: the machine's clock
	Transport http.RoundTripper                                      // nil: the machine's network, with the address check of egress for hosts that are no index

	// Changeable is a directory that programs in sandboxes can change, as plainfile.Unlinked returns it; empty: none.
	// No configuration and no local packages are read from it: they would decide what other programs get.
	Changeable string
}

// Dir returns the directory of packages in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "packages") }

// Target is the interpreter that packages are installed for. Two targets share a tree only if
// all fields are equal.
type Target struct {
	Language sandboxmcp.Language `json:"language"`           // Python or Node
	Runtime  string              `json:"runtime"`            // kind of interpreter, such as cp311 (see environment.Python.Tag) or node24
	Platform string              `json:"platform,omitempty"` // such as linux-x64-glibc: process.platform, process.arch and, on Linux, glibc or musl
}

// Order is a request for packages.
type Order struct {
	Target

	Specs []Spec

	// Ask asks a person for packages that the policy neither allows nor denies. It returns nil
	// if all may be installed, or else an [sandboxmcp.Error], such as approval_pending. It is
	// called for the names of Specs, before anything is fetched, and then for everything that
	// they need. If it is nil, such a package is rejected.
	Ask func(ctx context.Context, lang sandboxmcp.Language, names []string) error

	// Note receives progress. It must not block. It may be nil.
	Note func(Event)

	// Compile prepares a new tree for use, for example by compiling its modules. dir is the
	// directory that will be [Tree.Path]. It may add files below dir. It may be nil.
	Compile func(ctx context.Context, dir string) error
}

// Event is one step of an installation, for progress messages.
type Event struct {
	Text    string // such as "six 1.16.0: fetched 11 KiB"
	Package string // empty: the step is of no single package
	Done    int    // steps done and steps known so far; 0, 0: unknown
	Total   int
}

// Installed is one package of a tree.
type Installed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"` // of the wheel or tarball
	File    string `json:"file"`   // its name
	Bytes   int64  `json:"bytes"`  // its size
	License string `json:"license,omitempty"`
	PURL    string `json:"purl"`             // package URL, such as pkg:pypi/six@1.16.0
	Index   string `json:"index"`            // host of the index that listed it
	Path    string `json:"path,omitempty"`   // node: its directory, such as node_modules/a/node_modules/b
	Script  bool   `json:"script,omitempty"` // node: it has an install script, which was not run
	Direct  bool   `json:"direct,omitempty"` // it was asked for by name

	Bundled []string `json:"bundled,omitempty"` // node: names of the packages that its tarball contains, sorted
}

// Rejected is a package, or some versions of it, that the gateway did not offer.
type Rejected struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Tree is a directory with installed packages. It is read-only and does not change while this
// process runs.
type Tree struct {
	Target

	Digest    string      // SHA-256 of the manifest; the name of Dir
	Dir       string      // absolute path
	Path      string      // the directory in Dir that PYTHONPATH or NODE_PATH has to name
	Installed []Installed // sorted by name
	Bytes     int64       // of the unpacked files
	disk      int64       // bytes, counted with entryBytes for each file and directory
	Warnings  []string    // for the caller, such as a name that is close to a well-known one
}

// defaultCache is Config.MaxCache if none is given.
const defaultCache = 4 << 30

// What installations leave free on the disk, besides what Config.Spare does.
const (
	crowded    = 4        // nothing is installed while all trees have so many times Config.MaxCache bytes
	spareBytes = 1 << 30  // so much is left for others
	spareEvery = 64 << 20 // after so many bytes, Config.Spare is asked again
)

// copyFile copies to a file of the room. It fails when the disk has too little space left.
func (p *Packages) copyFile(to io.Writer, from io.Reader) error {
	for {
		if p.cfg.Spare != nil {
			if err := p.cfg.Spare(spareBytes); err != nil {
				return err
			}
		}
		if _, err := io.CopyN(to, from, spareEvery); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

const maxParsing = 2

// Packages resolves and installs packages. Its methods may be called concurrently, also by
// several processes with one directory.
type Packages struct {
	cfg   Config
	env   map[string]string
	rules atomic.Pointer[Policy]
	sizes atomic.Pointer[map[string]int64] // bytes on disk of the trees that were there lately, by digest

	parsing chan struct{} // bounds the documents that are parsed at once, which takes several times their size
}

// SetPolicy replaces the policy, for orders to come.
func (p *Packages) SetPolicy(policy Policy) { p.rules.Store(&policy) }

// Closed reports whether no package can be installed.
func (p *Packages) Closed() bool {
	policy := p.policy()
	return policy.Default == Deny && len(policy.Allow) == 0
}

func (p *Packages) policy() Policy { return *p.rules.Load() }

// New makes a Packages. It does not access the directory or a network.
func New(c Config) *Packages {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.MaxCache <= 0 {
		c.MaxCache = defaultCache
	}
	p := &Packages{cfg: c, env: map[string]string{}, parsing: make(chan struct{}, maxParsing)}
	p.SetPolicy(c.Policy)
	for _, kv := range c.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			p.env[name] = value
		}
	}
	return p
}
