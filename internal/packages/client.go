package packages

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// The indexes that pip and npm use without a configuration, and the file server of the
// former.
const (
	defaultPython = "https://pypi.org/simple"
	pythonFiles   = "files.pythonhosted.org:443"
	defaultNode   = "https://registry.npmjs.org/"
)

// client is what pip or npm is configured for on this machine.
type client struct {
	indexes []index // Python: in the order in which they are asked. Node: the registry for names without a scope of its own
	scopes  map[string]index
	links   []string // Python: local directories with wheels
	hosts   []string // Python: hosts that pip trusts, with or without a port
	login   []login
	bundles []string // files with CA certificates
	proxy   func(*url.URL) (*url.URL, error)
	avoid   string // see Config.Changeable
}

// index is a package index.
type index struct{ url *url.URL } // without user and password

// login is a credential for all URLs that begin with prefix (host and path, without scheme).
type login struct {
	prefix, header string
	anyPort        bool // a prefix without a port is for every port of the host, as in .netrc
}

// names returns the URLs of all indexes, without credentials.
func (c *client) names() []string {
	var all []string
	for _, i := range c.indexes {
		all = append(all, i.url.String())
	}
	for _, scope := range slices.Sorted(maps.Keys(c.scopes)) {
		all = append(all, scope+"="+c.scopes[scope].url.String())
	}
	return append(all, c.links...)
}

// IndexHosts returns the hosts of the indexes that pip and npm use on this machine and in a
// sandbox, which has no configuration of the machine.
func (p *Packages) IndexHosts() []string {
	all := []string{defaultPython, defaultNode, "https://" + pythonFiles}
	for _, lang := range []sandboxmcp.Language{sandboxmcp.Python, sandboxmcp.Node} {
		c, err := readClient(lang, p.env, p.cfg.Home, p.cfg.Changeable)
		if err != nil { // an installation reports it
			continue
		}
		for _, i := range c.indexes {
			all = append(all, i.url.String())
		}
		for _, i := range c.scopes {
			all = append(all, i.url.String())
		}
	}
	var hosts []string
	for _, text := range all {
		if u, err := url.Parse(text); err == nil {
			hosts = append(hosts, strings.ToLower(u.Hostname()))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// readClient reads the configuration of the language's package manager, without files that lead into the
// directory avoid.
func readClient(lang sandboxmcp.Language, env map[string]string, home, avoid string) (*client, error) {
	c := &client{scopes: map[string]index{}, avoid: avoid}
	for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"} {
		c.bundles = append(c.bundles, env[name])
	}
	pick := func(names ...string) string {
		for _, n := range names {
			if v := env[n]; v != "" {
				return v
			}
		}
		return ""
	}
	p := &httpproxy.Config{HTTPProxy: pick("http_proxy", "HTTP_PROXY"), HTTPSProxy: pick("https_proxy", "HTTPS_PROXY"), NoProxy: pick("no_proxy", "NO_PROXY")}
	if all := pick("all_proxy", "ALL_PROXY"); all != "" {
		p.HTTPProxy, p.HTTPSProxy = or(p.HTTPProxy, all), or(p.HTTPSProxy, all)
	}
	read := c.readPip
	if lang == sandboxmcp.Node {
		read = c.readNpm
	}
	if err := read(env, home, p); err != nil {
		return nil, err
	}
	c.proxy = p.ProxyFunc()
	if home != "" {
		c.readNetrc(or(env["NETRC"], filepath.Join(home, ".netrc")))
	}
	return c, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// parseIndex parses the URL of an index. A user and a password in it become a login.
func (c *client) parseIndex(text, where string) (index, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return index{}, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the package index in %s is not an http or https URL", where).
			WithHint("correct it there; see `pip config list` or `npm config list`")
	}
	if u.User != nil {
		secret, _ := u.User.Password()
		c.login = append(c.login, login{prefix: u.Host + "/", header: basic(u.User.Username(), secret)})
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return index{url: u}, nil
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// readPip reads what pip reads: its files, global before user, and its variables.
func (c *client) readPip(env map[string]string, home string, proxy *httpproxy.Config) error {
	global, install := map[string]string{}, map[string]string{}
	for _, file := range pipFiles(env, home) {
		for _, e := range c.readINI(file, "=:") {
			key := strings.ToLower(strings.ReplaceAll(strings.TrimLeft(e.key, "-"), "_", "-"))
			switch e.section {
			case "global":
				global[key] = e.value
			case "install":
				install[key] = e.value
			}
		}
	}
	get := func(key string) string {
		if v := env["PIP_"+strings.ToUpper(strings.ReplaceAll(key, "-", "_"))]; v != "" {
			return v
		}
		return or(install[key], global[key])
	}
	c.bundles = append(c.bundles, get("cert"))
	if p := get("proxy"); p != "" {
		proxy.HTTPProxy, proxy.HTTPSProxy = p, p
	}
	c.hosts = strings.Fields(get("trusted-host"))
	for text := range strings.FieldsSeq(get("find-links")) {
		if u, err := url.Parse(text); err == nil && u.Scheme == "file" {
			text = u.Path
		}
		if filepath.IsAbs(text) && !plainfile.LeadsInto(c.avoid, text) {
			c.links = append(c.links, text)
		}
	}
	if on := strings.ToLower(get("no-index")); on == "1" || on == "true" || on == "yes" || on == "on" {
		return nil
	}
	// An index that was added is asked first: a name in it is not to be taken over by a
	// stranger who registers the same name in the public index.
	for _, text := range append(strings.Fields(get("extra-index-url")), or(get("index-url"), defaultPython)) {
		i, err := c.parseIndex(text, "pip's configuration")
		if err != nil {
			return err
		}
		c.indexes = append(c.indexes, i)
	}
	return nil
}

// pipFiles returns pip's configuration files; the later go before the earlier.
func pipFiles(env map[string]string, home string) []string {
	own := env["PIP_CONFIG_FILE"]
	if own == "/dev/null" || strings.EqualFold(own, "nul") {
		return nil
	}
	var files []string
	name := "pip.conf"
	if runtime.GOOS == "windows" {
		name = "pip.ini"
		files = append(files, filepath.Join(or(env["ProgramData"], `C:\ProgramData`), "pip", name))
	} else {
		for _, dir := range filepath.SplitList(or(env["XDG_CONFIG_DIRS"], "/etc/xdg")) {
			files = append(files, filepath.Join(dir, "pip", name))
		}
		files = append(files, "/etc/pip.conf")
	}
	if runtime.GOOS == "darwin" {
		files = append(files, "/Library/Application Support/pip/pip.conf")
	}
	if home != "" {
		config := or(env["XDG_CONFIG_HOME"], filepath.Join(home, ".config"))
		if runtime.GOOS == "windows" {
			config = or(env["APPDATA"], config)
		}
		files = append(files, filepath.Join(home, ".pip", name), filepath.Join(config, "pip", name))
		if runtime.GOOS == "darwin" {
			files = append(files, filepath.Join(home, "Library", "Application Support", "pip", name))
		}
	}
	if venv := env["VIRTUAL_ENV"]; venv != "" {
		files = append(files, filepath.Join(venv, name))
	}
	if own != "" {
		files = append(files, own)
	}
	return files
}

// readNpm reads what npm reads: its files, global before user, and its variables.
func (c *client) readNpm(env map[string]string, home string, proxy *httpproxy.Config) error {
	set := map[string]string{}
	vars := map[string]string{}
	for k, v := range env {
		if key, ok := strings.CutPrefix(strings.ToLower(k), "npm_config_"); ok && v != "" {
			key = strings.TrimPrefix(key, "_")
			if !strings.HasPrefix(key, "//") && !strings.HasPrefix(key, "@") {
				key = strings.ReplaceAll(key, "_", "-")
			} else {
				key = k[len("npm_config_"):] // tokens are told apart by case
			}
			vars[key] = v
		}
	}
	prefix := or(or(vars["prefix"], env["PREFIX"]), "/usr/local")
	files := []string{"/etc/npmrc", "/usr/etc/npmrc", filepath.Join(prefix, "etc", "npmrc")}
	if g := vars["globalconfig"]; g != "" {
		files = []string{g}
	}
	if u := vars["userconfig"]; u != "" {
		files = append(files, u)
	} else if home != "" {
		files = append(files, filepath.Join(home, ".npmrc"))
	}
	for _, file := range files {
		for _, e := range c.readINI(file, "=") {
			set[expand(e.key, env)] = expand(strings.Trim(e.value, `"'`), env)
		}
	}
	maps.Copy(set, vars)
	c.bundles = append(c.bundles, set["cafile"])
	if p := or(set["https-proxy"], set["proxy"]); p != "" && p != "null" && p != "false" {
		proxy.HTTPProxy, proxy.HTTPSProxy = p, p
	}
	proxy.NoProxy = or(or(set["noproxy"], set["no-proxy"]), proxy.NoProxy)
	main, err := c.parseIndex(or(set["registry"], defaultNode), "npm's configuration")
	if err != nil {
		return err
	}
	c.indexes = []index{main}
	for k, v := range set {
		if scope, ok := strings.CutSuffix(k, ":registry"); ok && strings.HasPrefix(scope, "@") {
			if c.scopes[scope], err = c.parseIndex(v, "npm's configuration"); err != nil {
				return err
			}
		}
		if rest, ok := strings.CutPrefix(k, "//"); ok {
			at := strings.LastIndex(rest, ":")
			if at < 0 {
				continue
			}
			where := strings.TrimRight(rest[:at], "/") + "/"
			switch rest[at+1:] {
			case "_authToken":
				c.login = append(c.login, login{prefix: where, header: "Bearer " + v})
			case "_auth":
				c.login = append(c.login, login{prefix: where, header: "Basic " + v})
			case "_password":
				if secret, err := base64.StdEncoding.DecodeString(v); err == nil {
					c.login = append(c.login, login{prefix: where, header: basic(set["//"+rest[:at]+":username"], string(secret))})
				}
			}
		}
	}
	return nil
}

// expand replaces ${NAME} as npm does.
func expand(s string, env map[string]string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			out.WriteString("${" + rest)
			return out.String()
		}
		out.WriteString(env[strings.TrimSuffix(name, "?")])
		s = after
	}
}

// entry is one setting of a configuration file.
type entry struct{ section, key, value string }

const maxClientFile = 1 << 20

// readFile reads a file of the configuration.
func (c *client) readFile(file string, limit int64) ([]byte, error) {
	if plainfile.LeadsInto(c.avoid, file) {
		return nil, errors.New("programs in sandboxes can change it")
	}
	return plainfile.Read(file, limit)
}

// readINI reads a configuration file. It returns nothing if the file cannot be read, as pip
// and npm do. A line that begins with a blank continues the value before it.
func (c *client) readINI(file, separators string) []entry {
	data, err := c.readFile(file, maxClientFile)
	if err != nil {
		return nil
	}
	var all []entry
	section := ""
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '[' && strings.HasSuffix(text, "]"):
			section = strings.ToLower(text[1 : len(text)-1])
		case (line[0] == ' ' || line[0] == '\t') && len(all) > 0 && section != "":
			all[len(all)-1].value += "\n" + text
		default:
			key, value, _ := cutAny(text, separators)
			all = append(all, entry{section, strings.TrimSpace(key), strings.TrimSpace(value)})
		}
	}
	return all
}

func cutAny(s, separators string) (before, after string, ok bool) {
	if i := strings.IndexAny(s, separators); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// readNetrc reads logins from a .netrc. Those of indexes go before them.
func (c *client) readNetrc(file string) {
	data, err := c.readFile(file, maxClientFile)
	if err != nil {
		return
	}
	machine, user := "", ""
	words := strings.Fields(string(data))
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "machine":
			machine, user = words[i+1], ""
		case "login":
			user = words[i+1]
		case "password":
			if machine != "" {
				c.login = append(c.login, login{prefix: machine + "/", header: basic(user, words[i+1]), anyPort: true})
			}
		default:
			continue
		}
		i++
	}
}

// header returns the Authorization header for a URL, or "". The longest prefix wins, and
// among equals the first.
func (c *client) header(u *url.URL) string {
	best := login{}
	for _, l := range c.login {
		host, _, _ := strings.Cut(l.prefix, "/")
		where := u.Host + u.EscapedPath() + "/"
		if host == u.Hostname() && (l.anyPort || u.Port() == "") {
			where = u.Hostname() + u.EscapedPath() + "/"
		}
		if strings.HasPrefix(where, l.prefix) && len(l.prefix) > len(best.prefix) {
			best = l
		}
	}
	return best.header
}

// certificates returns the certificates that indexes may have: those of the system and those
// of the configured bundles.
func (c *client) certificates() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	seen := map[string]bool{"": true}
	for _, file := range c.bundles {
		if seen[file] {
			continue
		}
		seen[file] = true
		data, err := c.readFile(file, 16<<20)
		if err != nil {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInstallFailed, "the CA bundle %s of this machine's configuration cannot be read", file).WithCause(err).
				WithHint("correct PIP_CERT, REQUESTS_CA_BUNDLE, cafile or NODE_EXTRA_CA_CERTS")
		}
		pool.AppendCertsFromPEM(data)
	}
	return pool, nil
}

// address returns host:port of a URL.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return strings.ToLower(net.JoinHostPort(strings.TrimSuffix(u.Hostname(), "."), port))
}

// trusted returns the addresses that are dialed without a check: the indexes and proxies of
// this machine's configuration, and the hosts that it trusts. Their certificates are verified all the
// same.
func (c *client) trusted() (map[string]bool, error) {
	all := map[string]bool{}
	for _, h := range c.hosts {
		if h = strings.ToLower(h); strings.Contains(h, ":") {
			all[h] = true
		} else {
			all[h+":443"], all[h+":80"] = true, true
		}
	}
	list := append([]index(nil), c.indexes...)
	for _, i := range c.scopes {
		list = append(list, i)
	}
	for _, i := range list {
		all[address(i.url)] = true
		if i.url.Hostname() == "pypi.org" {
			all[pythonFiles] = true
		}
		via, err := c.proxy(i.url)
		if err != nil {
			return nil, fmt.Errorf("the proxy of this machine's configuration: %w", err)
		}
		if via != nil {
			all[address(via)] = true
		}
	}
	return all, nil
}
