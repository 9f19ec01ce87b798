package browser

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// names are the programs that are looked for, in this order.
var names = []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"}

// programs are where packages put the program behind the scripts of these names. The scripts
// read the configuration of a user, which no sandbox has.
var programs = []string{"/usr/lib/chromium/chromium", "/usr/lib64/chromium-browser/chromium-browser", "/opt/google/chrome/chrome"}

// Program is a browser on this machine.
type Program struct {
	Path  string         // absolute, without links
	Trees []backend.Tree // what a sandbox has to show besides the system's own
}

// Find returns the browser of this machine. It does not return one for whose path, without links, refused returns
// true. It fails with browser_unavailable.
func Find(refused func(path string) bool) (Program, error) {
	for _, name := range names {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) { //nolint:forbidigo // exec.LookPath reads it, too, and returns the first program alone
			path, err := exec.LookPath(filepath.Join(dir, name))
			if err != nil || !filepath.IsAbs(path) {
				continue
			}
			if p, ok := programOf(path); ok && !refused(p.Path) {
				return p, nil
			}
		}
	}
	return Program{}, unavailable("no browser is installed")
}

// unavailable is the error of a machine without a browser.
func unavailable(why string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBrowserUnavailable, "%s", why).
		WithHint("install Chromium on the server's machine: sudo apt-get install -y chromium fonts-liberation")
}

// programOf returns the program that a command of the PATH starts.
func programOf(path string) (Program, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Program{}, false
	}
	if isScript(real) {
		i := slices.IndexFunc(programs, func(p string) bool { _, err := os.Stat(p); return err == nil })
		if i < 0 { // such as the script of a snap, which only snapd can start
			return Program{}, false
		}
		real = programs[i]
	}
	p := Program{Path: real}
	if !strings.HasPrefix(real, "/usr/") {
		p.Trees = backend.Trees(filepath.Dir(real))
	}
	return p, true
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	head := make([]byte, 2)
	n, _ := f.Read(head)
	return n < 2 || string(head) == "#!"
}

// Size of the window in pixels, and so of screenshots.
const (
	width  = 1280
	height = 800
)

// flags are the arguments of every browser.
//
// Chromium's own sandbox is off: it needs user namespaces and system call filters, which the
// sandbox around it refuses to programs. That sandbox holds one page and is thrown away.
var flags = []string{
	"--headless", "--remote-debugging-pipe", "--no-sandbox", "--no-zygote", "--disable-gpu",
	"--user-data-dir=/tmp/profile", "--disk-cache-size=8388608", "--incognito",
	"--window-size=" + strconv.Itoa(width) + "," + strconv.Itoa(height), "--hide-scrollbars", "--mute-audio",
	// the only way out, also for this machine's own addresses
	"--proxy-server=http://127.0.0.1:" + strconv.Itoa(backend.ProxyPort), "--proxy-bypass-list=<-loopback>",
	"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--dns-prefetch-disable", "--disable-quic",
	"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
	// nothing that no page asked for
	"--no-first-run", "--no-default-browser-check", "--no-pings", "--disable-background-networking", "--disable-component-update",
	"--disable-default-apps", "--disable-domain-reliability", "--disable-extensions", "--disable-sync", "--disable-breakpad", "--disable-crash-reporter",
	"--disable-client-side-phishing-detection", "--gaia-url=http://127.0.0.1:1/", "--component-updater=url-source=http://127.0.0.1:1/,disable-background-downloader", "--disable-component-extensions-with-background-pages", "--disable-field-trial-config", "--metrics-recording-only", "--password-store=basic", "--no-service-autorun",
	"--disable-features=MojoUseEventFd,MojoLinuxChannelSharedMem,Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,HttpsUpgrades,AutofillServerCommunication,CertificateTransparencyComponentUpdater,NetworkTimeServiceQuerying",
	// nothing that waits for a person
	"--block-new-web-contents", "--deny-permission-prompts", "--disable-prompt-on-repost", "--disable-hang-monitor",
	"about:blank",
}

// swap exchanges descriptors 3 and 4 and starts the browser, which reads commands from 3.
// A process of a sandbox writes to 3.
const swap = `exec 5<&4 4>&3 3<&5 5<&-; exec "$@"`

// process returns the process that runs the browser in a sandbox.
func (p Program) process(log *tail) backend.Process {
	return backend.Process{
		Argv:     append([]string{"/bin/sh", "-c", swap, "sh", p.Path}, flags...),
		Env:      []string{"HOME=/tmp", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "XDG_CONFIG_HOME=/tmp/config", "XDG_CACHE_HOME=/tmp/cache", "DBUS_SESSION_BUS_ADDRESS=unix:path=/dev/null", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/dev/null"},
		Dir:      backend.TempDir,
		Stdout:   log,
		Stderr:   log,
		Channels: 2,
	}
}

// start starts the browser in a sandbox. The browser ends with the sandbox.
func (p Program) start(ctx context.Context, sb backend.Sandbox, log *tail) (backend.Running, error) {
	r, err := sb.Start(ctx, p.process(log))
	if err != nil {
		return nil, err
	}
	if r.Channel(0) == nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the backend has no private channels")
	}
	return r, nil
}

// tail keeps the end of what a browser logs.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(len(p)-maxTail, 0):]...)
	t.text = t.text[max(len(t.text)-maxTail, 0):]
	return len(p), nil
}

// String returns the last lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.ToValidUTF8(bytes.TrimSpace(t.text), nil))
}
