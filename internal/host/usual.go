package host

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// usual is what the server knows of a rule that the settings have by default. A command of such a rule reads only what the rule is
// for: the files that its program finds in its directory may be those of a program in a sandbox, and name others.
type usual struct {
	flags *flags   // flags that may follow the words of the rule; nil: any
	with  []string // flags that each command gets behind the words of its rule
	reads []string // places of the system that its program reads besides ofPrograms

	// places returns variables for a command, and the places that it may read besides those of the system. It may refuse the command.
	// nil: neither.
	places func(c further) (env, places []string, err error)
}

// further is what a command has behind the words of its rule.
type further struct {
	dir      string   // its directory, without links
	operands []string // words that are neither flags nor their values
	named    []string // what is there of the paths that words name, without links
}

// known are the rules that the settings have by default.
var known = sync.OnceValue(func() map[string]*usual {
	// What tells programs about processes, mounts and the machine.
	kernel := list("/proc /sys/devices /sys/fs/cgroup /run/utmp /run/systemd/sessions")
	units := append(list("/run/systemd /run/log/journal /var/log/journal /etc/systemd /etc/machine-id /sys/firmware /sys/fs/selinux"), kernel...)

	// --no-merges changes nothing in git diff. But if git finds no repository, because .git is damaged, and would compare any files,
	// it fails: then it does not know that flag.
	return map[string]*usual{
		"ls":   {places: andHere},
		"cat":  {places: named},
		"head": {places: named},
		"tail": {places: named},
		"df":   {places: andHere, reads: kernel},
		"free": {reads: kernel},

		"uptime":   {reads: kernel, flags: &flags{short: "ps", long: list("pretty since version help")}},
		"whoami":   {flags: &flags{long: list("version help")}},
		"hostname": {flags: &flags{short: "adfiIsyA", long: list("alias domain fqdn long ip-address all-ip-addresses short all-fqdns version help")}, reads: list("/etc/hostname /proc/sys")},
		"uname":    {flags: &flags{short: "asnrvmpio", long: list("all kernel-name nodename kernel-release kernel-version machine processor hardware-platform operating-system version help")}, reads: list("/proc/sys")},
		"date":     {flags: &flags{short: "ud:IRr:", long: list("date: iso-8601 rfc-email rfc-3339 reference: utc universal version help"), plus: true}},

		"docker ps":     {flags: &flags{short: "aqnlsf:", long: list("all filter: format: last: latest no-trunc quiet size"), operands: true}},
		"docker logs":   {flags: &flags{short: "fn:t", long: list("details follow since: tail: timestamps until:"), operands: true}},
		"docker images": {flags: &flags{short: "aqf:", long: list("all digests filter: format: no-trunc quiet tree"), operands: true}},
		"docker stats":  {flags: &flags{short: "a", long: list("all format: no-stream no-trunc"), operands: true}},

		"systemctl status":    {reads: units, flags: &flags{short: "aln:qt:", long: list("all full lines: no-pager no-legend plain quiet state: system type: user"), operands: true}},
		"systemctl is-active": {reads: units, flags: &flags{short: "aq", long: list("all quiet system user"), operands: true}},

		"pip list": {reads: list("~/.local/lib"), flags: &flags{short: "elvq", long: list("disable-pip-version-check editable exclude-editable format: local no-color not-required outdated pre quiet uptodate user verbose")}},
		"pip show": {reads: list("~/.local/lib"), flags: &flags{short: "fvq", long: list("disable-pip-version-check files no-color quiet verbose"), operands: true}},
		"npm list": {places: project, with: list("--globalconfig=" + noSettings), flags: &flags{short: "aglp", long: list("all depth global include json long omit parseable"), operands: true}},

		"git status": {places: tracked, with: list("--ignore-submodules=dirty"), flags: &flags{short: "sbuvz", long: list("ahead-behind branch ignored long no-renames porcelain short show-stash untracked-files verbose"), operands: true}},
		"git log": {places: tracked, with: list("--no-ext-diff --no-textconv"), flags: &flags{short: "n:pqS:G:L:izwb", number: true, operands: true, long: list("abbrev-commit after: all author: before: committer: date: decorate first-parent follow format graph grep: " +
			"max-count: merges name-only name-status no-decorate no-merges no-patch no-color numstat oneline patch pretty reverse shortstat since: skip: stat summary tags until:")}},
		"git diff":   {places: tracked, with: list("--no-merges --no-ext-diff --no-textconv --ignore-submodules=dirty"), flags: &flags{short: "pubwzU", number: true, operands: true, long: list("cached check color-words name-only name-status no-color no-prefix numstat patch shortstat staged stat summary unified word-diff")}},
		"git branch": {places: tracked, flags: &flags{short: "arvl", long: list("all contains format list merged no-color no-contains no-merged points-at remotes show-current sort verbose")}},
	}
})

// allow returns the word that is not allowed, or "".
func (u *usual) allow(words []string) string {
	if u == nil || u.flags == nil {
		return ""
	}
	_, bad := u.flags.parse(words)
	return bad
}

// only returns variables for a command, and the only places that it may read; nil: all but the closed ones.
func (h *Host) only(r *Rule, words []string, dir string, named []string) (env, places []string, err error) {
	if r.usual == nil {
		return nil, nil, nil
	}
	if r.usual.places != nil {
		c := further{dir: dir, named: named}
		if r.usual.flags != nil {
			c.operands, _ = r.usual.flags.parse(words[1+len(r.Words):])
		}
		if env, places, err = r.usual.places(c); err != nil {
			return nil, nil, err
		}
	}
	home := ""
	if u, err := user.Current(); err == nil {
		home = u.HomeDir
	}
	mounts := plainfile.ReadMounts()
	var changeable []string
	if h.cfg.Changeable != "" {
		changeable = mounts.Whole(h.cfg.Changeable)
	}
	all := append([]string{}, places...) // not nil, also if the system has none of these
	for _, p := range slices.Concat(ofPrograms(), r.usual.reads, r.program.beside()) {
		if below, ok := strings.CutPrefix(p, "~"); ok && home != "" {
			p = home + below
		}
		if !mounts.LeadsInto(h.cfg.Changeable, p) { // else a program in a sandbox may have put code there
			all = append(all, besides(plainfile.Unlinked(p), changeable)...)
		}
	}
	return env, all, nil
}

// ofPrograms returns the places of the system that every program reads: libraries, what says where they are, and what the C library
// looks up names in.
func ofPrograms() []string {
	return list(`/lib /lib32 /lib64 /usr/lib /usr/lib32 /usr/lib64 /usr/libexec /usr/share /usr/local/lib /usr/local/lib64 /usr/local/libexec /usr/local/share /nix/store /gnu/store
		/etc/ld.so.cache /etc/ld.so.preload /etc/localtime /etc/passwd /etc/group /etc/nsswitch.conf /etc/hosts /etc/host.conf /etc/resolv.conf /etc/gai.conf /etc/services /etc/protocols
		/etc/ssl/openssl.cnf /etc/pki/tls/openssl.cnf /etc/crypto-policies /etc/os-release /var/lib/sss/mc`)
}

// beside returns the directories that a program and its interpreters are in, and what they have beside these, such as /opt/python/lib.
func (p *program) beside() (all []string) {
	for _, way := range slices.Concat(p.ways, p.execs) {
		all = append(all, filepath.Dir(way))
		around := filepath.Dir(filepath.Dir(way))
		for _, n := range list("lib lib64 libexec share node_modules package.json npmrc pyvenv.cfg") {
			all = append(all, filepath.Join(around, n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// named allows what the words of a command name.
func named(c further) (_, places []string, _ error) { return nil, c.named, nil }

// andHere allows also the directory of a command: which of its words are flags, and name nothing although there is a file of that name,
// the program decides.
func andHere(c further) (_, places []string, _ error) { return nil, append(c.named, c.dir), nil }

// project allows the directory that npm takes for that of its project: the next one above that has a package.json or node_modules, and
// those above it whose package.json may name it as a part.
func project(c further) (_, places []string, _ error) {
	for at := c.dir; ; at = filepath.Dir(at) {
		about := filepath.Join(at, "package.json")
		switch {
		case len(places) > 0:
			if text, err := plainfile.Read(about, maxPackage); err == nil && strings.Contains(string(text), `"workspaces"`) {
				places = append(places, at)
			}
		case there(about), there(filepath.Join(at, "node_modules")):
			places = append(places, at)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	if len(places) == 0 {
		places = []string{c.dir}
	}
	return nil, places, nil
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
