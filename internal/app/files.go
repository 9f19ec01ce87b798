package app

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// fileDoor is the HTTP server for files of sessions and runs. Its methods may be called
// concurrently.
type fileDoor struct {
	open  func() // makes links usable, or sets why; called once. Nil: there are never links
	once  sync.Once
	links *server.Links

	mu     sync.Mutex
	why    []string // why there are no links
	stop   func()
	closed bool
}

// openFiles returns the file server of a server on stdio. If the port is set, or for
// mcp-code-sandbox, it listens from the start. Otherwise it listens on a free loopback port
// from the first link on, so that the start takes no time for it.
func (a *App) openFiles(ctx context.Context, d front) *fileDoor {
	cfg := d.cfg
	port, chosen := cfg.Port()
	f := &fileDoor{links: server.NewLinks(d.engine.Namespace(), linkedBytes(cfg))}
	if !cfg.ArtifactServer {
		return f
	}
	at := listen.Config{}
	if chosen || d.five {
		at = listen.Config{Host: fileHost(cfg), Port: port, PortSet: chosen}
	}
	f.open = func() {
		l, err := listen.Open(ctx, at)
		if err != nil {
			why := sandboxmcp.AsError(err).Message
			a.tell(why)
			f.set([]string{why}, nil)
			return
		}
		if l.Note != "" {
			a.tell(l.Note)
		}
		f.links.Open(l.URL)
		f.set(nil, server.ServeFiles(ctx, l, server.Files(server.FilesConfig{Engine: d.engine, Links: f.links, Names: []string{at.Host}, Logger: d.logger}), d.logger))
		d.logger.Info("files are handed out", "url", l.URL)
	}
	if chosen || d.five {
		f.once.Do(f.open)
	}
	return f
}

// set stores the outcome of open. After close it ends the server at once.
func (f *fileDoor) set(why []string, stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.why, f.stop = why, stop
	if f.closed && stop != nil {
		stop()
	}
}

// linker returns how files get links; nil if they never do.
func (f *fileDoor) linker() server.LinkFunc {
	if f.open == nil {
		return nil
	}
	return f.link
}

// link is a [server.LinkFunc].
func (f *fileDoor) link(ns sandboxmcp.Namespace, id, path string, size int64) string {
	f.once.Do(f.open)
	return f.links.URL(ns, id, path, size)
}

// notes returns why there are no links; nil: there are, or none was needed yet.
func (f *fileDoor) notes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

// close ends the server.
func (f *fileDoor) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.stop != nil {
		f.stop()
	}
}

// opened returns the links of a server whose files are served by its own HTTP listener.
func opened(links *server.Links) *fileDoor {
	f := &fileDoor{links: links, open: func() {}}
	f.once.Do(f.open)
	return f
}

// fileHost returns the host of the HTTP listener.
func fileHost(cfg *config.Config) string {
	if cfg.Source("api_host") == config.FromDefault {
		return cfg.Tools.HTTPHost
	}
	return cfg.APIHost
}

// linkedBytes is the size of the largest file that gets a link: the largest that /mnt/data can
// hold. An operator who has lowered the bound on what an answer returns has lowered it for links,
// too.
func linkedBytes(cfg *config.Config) int64 {
	if most := cfg.Tools.MaxArtifactReadBytes; most < server.DefaultMaxRead {
		return most
	}
	return max(server.MaxLinked, cfg.Tools.MaxArtifactReadBytes, int64(cfg.WorkQuotaMB)<<20)
}

// told returns the part of the settings that the server's instructions tell models. Limits that are stored for
// the namespace count as settings.
func told(ctx context.Context, d front, cfg *config.Config) server.Told {
	t := server.Told{
		Limits: cfg.Limits(), Ceilings: cfg.Ceilings(), Hosts: openHosts(cfg),
		NoAsking: !cfg.EgressApprovals, NoSecrets: cfg.VaultInject != "all", Packages: d.engine.Packages,
		NoInstall: cfg.Packages == "deny", AskPkg: cfg.Packages == "ask", Host: cfg.EnableHostAccess,
	}
	if kept, err := d.engine.SetLimits(ctx, sandboxmcp.Caller{Namespace: d.engine.Namespace(), Actor: "mcp"}, sandboxmcp.LimitsChange{}); err == nil {
		t.Limits = kept.Current
	}
	if cfg.InContainers() {
		most := cfg.ContainerLimits()
		t.Limits, t.Ceilings = t.Limits.Under(most), t.Ceilings.Under(most)
	}
	return t
}

func openHosts(cfg *config.Config) []string {
	if !cfg.OpensNetwork() {
		return nil
	}
	hosts := make([]string, 0, len(cfg.AllowedDomains))
	for _, d := range cfg.AllowedDomains {
		hosts = append(hosts, d.String())
	}
	return hosts
}

// tell prints a line for the person who started the server, even if the log goes
// elsewhere.
func (a *App) tell(line string) { _, _ = fmt.Fprintln(a.Stderr, "sandboxmcp: "+line) }

// tellOpenSettings warns the operator if every user can change the settings file, which decides what
// callers may do.
func (a *App) tellOpenSettings() {
	if a.file == "" || runtime.GOOS == "windows" { // on Windows the mode of a file does not say which users may write it
		return
	}
	if info, err := os.Stat(a.file); err == nil && info.Mode().Perm()&0o002 != 0 {
		a.tell("warning: every user of this machine can change the settings file " + sandboxmcp.Quote(a.file) + "; run chmod o-w on it")
	}
}

// fiveSettings returns the settings of the tools sandbox_*.
func fiveSettings(cfg *config.Config) server.Five {
	t := cfg.Tools
	return server.Five{
		Limits: cfg.ToolLimits(), TTL: time.Duration(t.SessionTTLMinutes * float64(time.Minute)),
		MaxCodeBytes: int(t.MaxCodeBytes), MaxUploadBytes: t.MaxUploadBytes, MaxReadBytes: t.MaxArtifactReadBytes, Stateful: t.Stateful, Network: t.Network == "approved",
	}
}
