package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// usual is what the server knows of a rule that the settings have by default. A command of such a rule reads only what the rule is
// for: others may have written the files that its program finds in its directory, and these can name any file.
type usual struct {
	flags *flags   // flags that may follow the words of the rule; nil: any
	with  []string // flags that each command gets behind the words of its rule
	reads []string // places of the system that its program reads besides ofPrograms

	sockets bool // its program uses sockets: it asks the host for names of users or machines, or another program for what it shows

	python bool // its program is Python's: it may list all directories, because pip fails at one that it may not list

	// scope returns what a command has besides what the system has for programs. It may refuse the command. nil: nothing.
	scope func(c further) (scope, error)
}

// scope is what a command has.
type scope struct {
	env    []string // variables
	reads  []string // places that it may read, without links; nil: all but the closed ones
	closed []string // further closed ones
	lists  []string // further ones whose names it may read
}

// further is what a command has behind the words of its rule.
type further struct {
	program  string   // path of its program, without links
	dir      string   // its directory, without links
	operands []string // words that are neither flags nor their values
	named    []string // what is there of the paths that words name, without links

	away changeable // its places are not in this, and do not contain it
	look *budget    // of the command
}

// known are the rules that the settings have by default.
var known = sync.OnceValue(func() map[string]*usual {
	// What tells programs about processes, mounts and the machine.
	kernel := list("/proc /sys/devices /sys/fs/cgroup /run/utmp /run/systemd/sessions")
	units := append(list("/run/systemd /run/log/journal /var/log/journal /etc/systemd /etc/machine-id /sys/firmware /sys/fs/selinux"), kernel...)

	packages := list("~/.local/lib /usr/share/python-wheels /usr/share/python3 /etc/debian_version /etc/*-release /etc/python3*/sitecustomize.py") // Debian links to the last

	// --no-merges changes nothing in git diff. But if git finds no repository, because .git is damaged, and would compare any files,
	// it fails: then it does not know that flag.
	return map[string]*usual{
		"ls":   {scope: namesHere, sockets: true},
		"cat":  {scope: named},
		"head": {scope: named},
		"tail": {scope: named},
		"df":   {scope: namesOnly, reads: kernel},
		"free": {reads: kernel},

		"uptime":   {reads: kernel, flags: &flags{short: "ps", long: list("pretty since version help")}},
		"whoami":   {sockets: true, flags: &flags{long: list("version help")}},
		"hostname": {sockets: true, flags: &flags{short: "adfiIsyA", long: list("alias domain fqdn long ip-address all-ip-addresses short all-fqdns version help")}, reads: list("/etc/hostname /proc/sys")},
		"uname":    {flags: &flags{short: "asnrvmpio", long: list("all kernel-name nodename kernel-release kernel-version machine processor hardware-platform operating-system version help")}, reads: list("/proc/sys")},
		"date":     {flags: &flags{short: "ud:IRr:", long: list("date: iso-8601 rfc-email rfc-3339 reference: utc universal version help"), plus: true}},

		"docker ps":     {sockets: true, flags: &flags{short: "aqnlsf:", long: list("all filter: format: last: latest no-trunc quiet size"), operands: true}},
		"docker logs":   {sockets: true, flags: &flags{short: "fn:t", long: list("details follow since: tail: timestamps until:"), operands: true}},
		"docker images": {sockets: true, flags: &flags{short: "aqf:", long: list("all digests filter: format: no-trunc quiet tree"), operands: true}},
		"docker stats":  {sockets: true, flags: &flags{short: "a", long: list("all format: no-stream no-trunc"), operands: true}},

		"systemctl status":    {sockets: true, reads: units, flags: &flags{short: "aln:qt:", long: list("all full lines: no-pager no-legend plain quiet state: system type: user"), operands: true}},
		"systemctl is-active": {sockets: true, reads: units, flags: &flags{short: "aq", long: list("all quiet system user"), operands: true}},

		"pip list": {reads: packages, python: true, flags: &flags{short: "elvq", long: list("disable-pip-version-check editable exclude-editable format: local no-color not-required outdated pre quiet uptodate user verbose")}},
		"pip show": {reads: packages, python: true, flags: &flags{short: "fvq", long: list("disable-pip-version-check files no-color quiet verbose"), operands: true}},
		"npm list": {scope: project, reads: list("/usr/share/nodejs /usr/share/javascript /usr/share/node_modules /usr/share/npm"), with: list("--globalconfig=" + noSettings + " --loglevel=error"), flags: &flags{short: "aglp", long: list("all depth global include json long omit parseable"), operands: true}},

		"git status": {scope: tracked, with: list("--ignore-submodules=dirty"), flags: &flags{short: "sbuvz", long: list("ahead-behind branch ignored long no-renames porcelain short show-stash untracked-files verbose"), operands: true}},
		"git log": {scope: tracked, with: list("--no-ext-diff --no-textconv"), flags: &flags{short: "n:pqS:G:L:izwb", number: true, operands: true, long: list("abbrev-commit after: all author: before: committer: date: decorate first-parent follow format graph grep: " +
			"max-count: merges name-only name-status no-decorate no-merges no-patch no-color numstat oneline patch pretty reverse shortstat since: skip: stat summary tags until:")}},
		"git diff":   {scope: tracked, with: list("--no-merges --no-ext-diff --no-textconv --ignore-submodules=dirty"), flags: &flags{short: "pubwzU", number: true, operands: true, long: list("cached check color-words name-only name-status no-color no-prefix numstat patch shortstat staged stat summary unified word-diff")}},
		"git branch": {scope: tracked, flags: &flags{short: "arvl", long: list("all contains format list merged no-color no-contains no-merged points-at remotes show-current sort verbose")}},
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

// only returns what a command has.
func (h *Host) only(look *budget, r *Rule, words []string, dir string, named []string) (s scope, err error) {
	if r.usual == nil {
		return s, nil
	}
	away := h.changeable(look)
	if r.usual.scope != nil {
		c := further{program: r.program.path, dir: dir, named: named, away: away, look: look}
		if r.usual.flags != nil {
			c.operands, _ = r.usual.flags.parse(words[1+len(r.Words):])
		}
		if s, err = r.usual.scope(c); err != nil {
			return s, err
		}
	}
	s.reads = append([]string{}, s.reads...)                                                        // not nil, also if the system has none of these
	reads := away.outside(expanded(slices.Concat(ofPrograms(), r.usual.reads, r.program.beside()))) // the others may have code of a program in a sandbox
	if r.usual.python {
		reads, s.lists = append(reads, away.outside(editable(look, reads, away.has))...), []string{"/"}
	}
	for _, p := range reads {
		s.reads = append(s.reads, away.rest(p)...)
	}
	return s, look.over()
}

// expanded returns paths with the home directory for ~, and with what is there for a pattern.
func expanded(paths []string) (all []string) {
	home := ownHome()
	for _, p := range paths {
		if below, ok := strings.CutPrefix(p, "~"); ok && home != "" {
			p = home + below
		}
		if !strings.Contains(p, "*") {
			all = append(all, p)
			continue
		}
		found, _ := filepath.Glob(p) // the patterns are constants
		all = append(all, found...)
	}
	return all
}

// ofPrograms returns the places of the system that every program reads: libraries, what says where they are, and what the C library
// looks up names in. /usr/share and the like are no such places: they can have whole applications, such as a web server's, with their
// secrets.
func ofPrograms() []string {
	return list(`/lib /lib32 /lib64 /usr/lib /usr/lib32 /usr/lib64 /usr/local/lib /usr/local/lib64 /usr/share/zoneinfo /usr/share/locale /usr/share/terminfo /usr/share/crypto-policies /nix/store /gnu/store
		/etc/ld.so.cache /etc/ld.so.preload /etc/ld-musl-*.path /etc/localtime /etc/passwd /etc/group /etc/nsswitch.conf /etc/hosts /etc/host.conf /etc/resolv.conf /etc/gai.conf /etc/services /etc/protocols
		/etc/ssl/openssl.cnf /etc/pki/tls/openssl.cnf /etc/pki/tls/openssl.d /etc/pki/tls/fips_local.cnf /etc/crypto-policies /etc/os-release /var/lib/sss/mc /run/systemd/userdb`)
}

// beside returns what a program and its interpreters have beside their directories, such as /opt/python/lib, and the directories of
// scripts. What is beside a directory of / is not theirs.
func (p *program) beside() (all []string) {
	for _, way := range slices.Concat(p.ways, p.execs) {
		dir := filepath.Dir(way)
		if !binaryFile(way) {
			all = append(all, dir) // modules of a script
		}
		around := filepath.Dir(dir)
		if around == "/" {
			continue
		}
		for _, n := range list("lib lib64 node_modules package.json npmrc pyvenv.cfg") {
			all = append(all, filepath.Join(around, n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// named allows the files that the words of a command name. In a directory there may be further ones, to which links lead once the
// command has begun.
func named(c further) (s scope, _ error) {
	for _, path := range c.named {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			s.reads = append(s.reads, path)
		} else {
			s.lists = append(s.lists, path)
		}
	}
	return s, nil
}

// namesOnly allows the names in what the words of a command name: a word that names a file may be a flag, or its value.
func namesOnly(c further) (scope, error) { return scope{lists: slices.Clone(c.named)}, nil }

// namesHere also allows the names in its directory. If that is in the writable workspace, words have to name another one.
func namesHere(c further) (scope, error) {
	if err := c.away.refuseDir(c.dir); err != nil {
		if len(c.named) > 0 {
			err = nil
		}
		return scope{lists: slices.Clone(c.named)}, err
	}
	return scope{lists: append(slices.Clone(c.named), c.dir)}, nil
}
