package host

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Names that are refused wherever they stand in a path, in lower case. A name with a slash is
// the end of a path, or a part of it.
var (
	// secretNames may hold keys or credentials. They are neither read nor written.
	secretNames = list(`.ssh .aws .azure .gnupg .kube .docker .gcloud .config/gcloud .config/gh .config/hub .config/op .config/rclone .config/sops .config/age .config/doctl .config/heroku
		.password-store .terraform.d .oci .ibmcloud .bluemix .minikube .helm .vault .vault-token .netrc _netrc .npmrc npmrc .yarnrc .yarnrc.yml .pypirc pip.conf .pip .config/pip .pgpass .pg_service.conf .postgresql .my.cnf .mylogin.cnf .dockercfg .s3cfg .boto
		.git-credentials .config/git/credentials .git/config .gem/credentials .cargo/credentials .cargo/credentials.toml .m2/settings.xml .gradle/gradle.properties .htpasswd .envrc
		credentials credentials.json credentials.db credentials.csv application_default_credentials.json access_tokens.db client_secret.json kubeconfig terraform.tfstate terraform.tfstate.backup
		secrets.yml secrets.yaml secrets.json secrets.toml .secrets master.key vault.key signing.key key4.db logins.json .local/share/keyrings keychains .mozilla .thunderbird .var/app .config/google-chrome .config/chromium
		.config/bravesoftware .config/microsoft-edge library/keychains library/cookies shadow gshadow shadow- gshadow- sudoers sudoers.d .bash_history .zsh_history .python_history .node_repl_history .psql_history
		.mysql_history .lesshst .viminfo .config/sandboxmcp .local/state/sandboxmcp sandboxmcp.db sandboxmcp.db-journal sandboxmcp.db-wal sandboxmcp.db-shm sandboxmcp.db-notes sandboxmcp.db-gate sandboxmcp.db-limits sandboxmcp.db-packages sandboxmcp.db-vault .claude .claude.json .codex .cursor .gemini .continue .windsurf .codeium .aider.conf.yml .config/github-copilot .config/claude .config/opencode .openai .anthropic
		.mcp.json mcp.json claude_desktop_config.json mcp_config.json .config/zed .jupyter .ipython .databrickscfg .snowflake .dbt .kaggle .huggingface .cache/huggingface/token .config/wandb
		.config/hcloud .config/scw .config/linode-cli .config/netlify .config/stripe .config/ngrok .ngrok2 .fly .aliyun .cloudflared .wrangler .config/.wrangler .config/containers/auth.json .config/composer/auth.json
		.composer/auth.json .pulumi .terraformrc .config/glab-cli .config/tea .config/vercel .local/share/com.vercel.cli .config/solana .bitcoin .electrum .android/adbkey .local/share/kwalletd .pki
		.local/share/fish/fish_history .sqlite_history .irb_history .rediscli_history .config/signal .config/slack .config/discord .local/share/telegramdesktop .config/vivaldi .config/opera .authinfo .msmtprc .mbsyncrc
		.smbcredentials .config/bitwarden .config/rbw .lpass .local/share/lpass .vault_pass .vault-pass .vault_pass.txt .git/modules .git/config.worktree
		.kiro .amazonq .junie .augment .opencode opencode.json opencode.jsonc .trae .qwen .crush .crush.json crush.json .config/crush .factory .config/goose .copilot .kilocode .openhands`)

	// obeyedNames are what another program executes or obeys. They are not written.
	obeyedNames = list(`.git .hg .svn .husky .githooks .pre-commit-config.yaml .gitconfig .gitmodules .gitattributes .config/git .vscode .idea .fleet .devcontainer .github/workflows .gitlab-ci.yml .circleci .envrc .direnv
		.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .config/fish .inputrc .xinitrc .xprofile .xsession .xsessionrc .xbindkeysrc
		.vimrc .exrc .nvimrc .config/nvim .emacs .emacs.d .tmux.conf .screenrc .gdbinit .gdbearlyinit .lldbinit .pdbrc .pylintrc .pythonrc .pythonstartup .config/systemd .config/autostart .config/environment.d .local/share/applications
		.condarc .rprofile .irbrc .pryrc .curlrc .wgetrc .ackrc .ripgreprc .config/containers .local/bin .local/lib crontab cron.d cron.daily cron.hourly cron.weekly cron.monthly
		claude.md claude.local.md agents.md gemini.md .cursorrules .cursorignore .windsurfrules .clinerules .roomodes .roo .cline .goosehints copilot-instructions.md sitecustomize.py usercustomize.py pyvenv.cfg conftest.py
		library/launchagents library/launchdaemons authorized_keys
		.zed .rules .kilocodemodes qwen.md warp.md .augment-guidelines .devcontainer.json .dir-locals.el .nvim.lua .lvimrc .vim .tool-versions .asdfrc .mise .mise.toml mise.toml .config/mise .cargo/config .cargo/config.toml .bazelrc .pnp.cjs .pnpmfile.cjs
		lefthook.yml lefthook.yaml .lefthook .lefthook.yml .lefthook.yaml .github/actions .gitea/workflows .forgejo/workflows .woodpecker .woodpecker.yml .drone.yml .travis.yml .buildkite jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml`)

	secretSuffixes = list(".pem .key .p12 .pfx .jks .keystore .ppk .kdbx .kdb .tfvars .ovpn .agekey")
	obeyedSuffixes = list(".pth .desktop .service .timer")

	// systemPlaces are never read or written, neverWritten never written, whatever the roots are.
	systemPlaces = list("/proc /sys /dev /run/secrets /var/run/secrets /run/credentials /etc/shadow /etc/gshadow /etc/sudoers /etc/sudoers.d /etc/ssh /etc/ssl/private /boot /var/lib/docker /var/lib/kubelet /run/containerd /var/spool/cron /var/lib/sandboxmcp " + runDir)
	neverWritten = list("/etc /usr /bin /sbin /lib /lib32 /lib64 /opt /run /var/run /var/lib /System /Library")
)

// runDir is where servers of root show each other what is theirs. One that may read a file there can lock it, and then no server gets
// user ids for sandboxes.
const runDir = "/run/sandboxmcp"

// sandboxPrefix begins the names of the directories in which sandboxes of tier L1 have their files; see backend/process.
// They belong to callers of all namespaces.
const sandboxPrefix = "sandboxmcp-l1-"

// secret returns why a path must not be read, or "". It judges names alone.
func secret(path string) string {
	names := parts(path)
	for i, n := range names {
		if strings.HasPrefix(n, sandboxPrefix) {
			return "a sandbox has its files in " + n
		}
		if listed(secretNames, names, i) {
			return "secrets are kept in " + n
		}
	}
	if len(names) == 0 {
		return ""
	}
	n := names[len(names)-1]
	switch {
	case n == ".env" || strings.HasPrefix(n, ".env.") && !isSample(n) || strings.HasSuffix(n, ".env"):
		return "it holds settings that may be secret"
	case keyName(n), hasSuffix(n, secretSuffixes):
		return "it may be a key"
	case strings.HasPrefix(n, "service-account") && strings.HasSuffix(n, ".json"), strings.HasPrefix(n, "service_account") && strings.HasSuffix(n, ".json"):
		return "it may hold credentials"
	}
	return ""
}

// obeyed returns why a path must not be written although it may be read, or "".
func obeyed(path string) string {
	names := parts(path)
	for i, n := range names {
		if listed(obeyedNames, names, i) {
			return "another program executes or obeys " + n
		}
	}
	if len(names) > 0 && hasSuffix(names[len(names)-1], obeyedSuffixes) {
		return "another program executes or obeys it"
	}
	return ""
}

// isSample reports whether an .env file is one that is meant to be shared.
func isSample(name string) bool {
	return slices.Contains([]string{".env.example", ".env.sample", ".env.template", ".env.dist"}, name)
}

// keyName reports whether a name is that of an SSH key. Public keys are not.
func keyName(n string) bool {
	if strings.HasSuffix(n, ".pub") {
		return false
	}
	for _, k := range []string{"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_"} {
		if strings.HasPrefix(n, k) {
			return true
		}
	}
	return false
}

// folded are letters that have an ASCII form for file systems which ignore case.
var folded = strings.NewReplacer("ſ", "s", "ß", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// parts returns the names of a path, in lower case: some file systems ignore case, characters that are not seen, dots and
// spaces at the end, and what follows a colon.
func parts(path string) []string {
	var names []string
	for n := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		n = strings.Map(func(r rune) rune {
			if hidden(r) {
				return -1
			}
			return r
		}, n)
		n, _, _ = strings.Cut(folded.Replace(strings.ToLower(n)), ":")
		if t := strings.TrimRight(n, ". "); t != "" {
			n = t
		}
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// listed reports whether a list has the name at a position, alone or with the names before it.
func listed(all, names []string, i int) bool {
	if slices.Contains(all, names[i]) {
		return true
	}
	for back := 1; back <= 2 && back <= i; back++ {
		if slices.Contains(all, strings.Join(names[i-back:i+1], "/")) {
			return true
		}
	}
	return false
}

func hasSuffix(name string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// under reports whether a path is a directory, or below it.
func under(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// places are files and directories that commands and file tools may not use, and everything below them. Their paths have no links. A file system that ignores
// case shows the same file at other paths, so a place is also recognized by its device and inode (os.SameFile).
type places struct {
	paths []string
	files []os.FileInfo // of those that are there, without the kernel's: these may be mounted several times, and programs read them
	own   []string      // the files and directories of this program, which are among paths
}

func newPlaces(paths []string) places {
	p := places{paths: paths}
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && !kernels(path) { // it may be a link by now
			p.files = append(p.files, info)
		}
	}
	return p
}

// hold reports whether a path without links is one of the places, or below one, or takes too much to look at.
func (p places) hold(b *budget, path string) bool {
	if b.spend(costName+len(p.paths)/8) != nil || underAny(path, p.paths) { // of the places, many may be a stranger's
		return true
	}
	if kernels(path) || len(path) > maxPath || len(p.files) == 0 {
		return false
	}
	for {
		if b.spend(costName+len(path)+len(p.files)/8) != nil {
			return true
		}
		info, err := os.Stat(path)
		if err == nil && slices.ContainsFunc(p.files, func(file os.FileInfo) bool { return os.SameFile(file, info) }) {
			return true
		}
		if path == filepath.Dir(path) {
			return false
		}
		path = filepath.Dir(path)
	}
}

// crowded returns the home that contains a path, if that home is closed as a whole because it takes too much to look at. Otherwise it returns "".
func (p places) crowded(path string) string {
	all, _ := homes() // the places were found before
	for _, home := range all {
		if real := plainfile.Unlinked(home); under(path, real) && slices.Contains(p.paths, real) && !slices.Contains(p.own, home) {
			return home
		}
	}
	return ""
}

// holdFile is as hold, for a file that a file tool names.
func (p places) holdFile(path string) bool { return p.hold(newBudget(anyTime, maxLooked), path) }

// closedPlaces returns the paths that commands may not read, without links: those of
// secretNames in the homes of this machine's users, the system's, those of sandboxes, and own with what is mounted there, at each
// path that shows them.
func closedPlaces(b *budget, own []string) []string {
	var all []string
	mounts, failed := plainfile.Table()
	b.short(failed)
	users, failed := homes()
	b.short(failed)
	add := func(path string) {
		if real, err := b.follow(path); err == nil {
			all = append(all, mounts.Paths(real)...)
		}
	}
	for _, p := range own {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			all = append(all, mounts.Whole(real)...)
		}
	}
	for _, p := range systemPlaces {
		if !kernels(p) {
			add(p)
		}
	}
	for _, p := range slices.Concat(mounts.Paths("/dev"), mounts.Of("proc"), mounts.Of("devtmpfs")) {
		if !kernels(p) { // a directory with another system in it may have them; Landlock does not close a bind mount of /proc
			all = append(all, p)
		}
	}
	all = append(all, closedOf(b, users, mounts)...)
	all = append(all, runDir) // also if it is made later
	temp := plainfile.Unlinked(os.TempDir())
	all = append(all, filepath.Join(temp, sandboxPrefix)) // so that what is made there later is closed; see besides
	made := b.apart(maxHome)
	defer func() { b.short(made.failed) }()
	for _, n := range made.names(temp) {
		if strings.HasPrefix(n, sandboxPrefix) { // each user of this machine can make one, so no link is followed
			all = append(all, mounts.Paths(filepath.Join(temp, n))...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxHomes is in how many homes the server looks for closed paths. Each takes about a millisecond.
const maxHomes = 1000

// closedOf returns the closed paths of home directories. Homes beyond the first maxHomes are closed as a whole.
func closedOf(b *budget, homes []string, mounts plainfile.Mounts) (all []string) {
	mine, _ := os.UserHomeDir() // HOME may name another directory than ownHome
	for i, home := range homes {
		if i < maxHomes { // a stranger who uses up the part of one home closes that alone
			most := max(minHome, min(maxHome, maxLooked/len(homes)))
			if home == mine || home == ownHome() {
				most = maxOwn
			}
			part := b.apart(most)
			all = append(all, closedIn(home, mounts, &namesIn{budget: part})...)
			b.short(part.failed)
		} else if real := plainfile.Unlinked(home); real != "/" {
			all = append(all, mounts.Paths(real)...)
		}
	}
	return all
}

// closedIn returns the closed paths of a home directory. If these take too much to look at, that is the whole home: its user, or a program in a sandbox if it
// is a writable workspace, can make many spellings of each directory, put many entries into each, and make links that lead through thousands of directories.
func closedIn(home string, mounts plainfile.Mounts, seen *namesIn) (all []string) {
	mine, _ := os.UserHomeDir()    // its owner may be another user, as in a container
	add := func(paths ...string) { // users of this machine make the links in their homes
		for _, path := range paths {
			real, err := seen.budget.follow(path)
			if err != nil || home != mine && !keptBy(home, real) {
				continue
			}
			for _, p := range mounts.Paths(real) {
				if seen.above(p) || home == mine {
					all = append(all, p)
				}
			}
		}
	}
	for _, n := range list(".env id_rsa id_ed25519 snap") {
		add(filepath.Join(home, n))
	}
	hidden := slices.DeleteFunc(slices.Clone(secretNames), func(n string) bool { return n[0] != '.' && n[0] != '_' })
	for _, n := range hidden {
		add(filepath.Join(home, n)) // also where names cannot be listed
	}
	for _, n := range hidden {
		add(seen.spelled(home, n)...)
	}
	if real := plainfile.Unlinked(home); seen.budget.over() != nil && real != "/" {
		all = append(all, mounts.Paths(real)...)
	}
	return all
}

// keptBy reports whether a path without links, to which a name in a home directory leads, is the home's. A user can make a link to
// anything, such as to /, and no command would read what is there.
func keptBy(home, real string) bool {
	dir, err := os.Stat(home)
	if err != nil {
		return false
	}
	to, err := os.Stat(real)
	return err == nil && (under(real, plainfile.Unlinked(home)) || mayClose(dir, to))
}

// kernels reports whether a path is in the kernel's file systems at their usual places. Programs read much of them.
func kernels(path string) bool {
	return slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(dir string) bool { return under(path, dir) })
}

// maxEntries bounds the entries of a directory that are allowed one by one: each is a rule of Landlock.
const maxEntries = 20000

// besides returns paths that together are all of a directory but the closed ones: the entries
// of each directory above a closed path. An entry that is made later is closed.
func besides(b *budget, dir string, closed []string) []string {
	inside := dir
	if dir != "/" {
		inside += "/"
	}
	var below []string
	next := map[string]bool{} // names in the directory that are closed, or lead to what is
	for _, c := range closed {
		if c == dir {
			return nil
		}
		if rest, ok := strings.CutPrefix(c, inside); ok {
			name, _, _ := strings.Cut(rest, "/")
			below, next[name] = append(below, c), true
		}
	}
	if len(below) == 0 {
		return []string{dir}
	}
	var all []string
	for _, n := range b.names(dir) {
		switch {
		case strings.HasPrefix(n, sandboxPrefix): // it may have been made after closed was listed
		case next[n]:
			all = append(all, besides(b, inside+n, below)...)
		default:
			all = append(all, inside+n)
		}
	}
	return all
}

// namesIn are the names in directories that were read and may be a part of one of secretNames, by their form in lower case.
type namesIn struct {
	dirs   map[string]map[string][]string
	budget *budget // of the home
}

// partsOfSecrets are the names in secretNames.
var partsOfSecrets = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for _, path := range secretNames {
		for n := range strings.SplitSeq(path, "/") {
			all[n] = true
		}
	}
	return all
})

// in returns the names in a directory, or none if too many were read before.
func (e *namesIn) in(dir string) map[string][]string {
	all, known := e.dirs[dir]
	if known || e.budget.over() != nil {
		return all
	}
	all = map[string][]string{}
	for entry := range e.budget.entries(dir) { // all of them: if nothing in a directory is closed, Landlock allows it with all of its entries
		if lower := strings.ToLower(entry.Name()); partsOfSecrets()[lower] {
			all[lower] = append(all[lower], entry.Name())
		}
	}
	if e.dirs == nil {
		e.dirs = map[string]map[string][]string{}
	}
	e.dirs[dir] = all
	return all
}

// above reads the directories above a path, as besides does if that is closed. It reports whether these were not too many.
func (e *namesIn) above(path string) bool {
	for failed := e.budget.name(path); path != filepath.Dir(path) && failed == nil; {
		path = filepath.Dir(path)
		e.in(path)
		failed = e.budget.over()
	}
	return e.budget.over() == nil
}

// spelled returns the paths below a directory that a name of secretNames stands for, in the spelling that they have there, such as
// .config/BraveSoftware.
func (e *namesIn) spelled(dir, name string) []string {
	first, rest, deeper := strings.Cut(name, "/")
	all := e.in(dir)
	var paths []string
	for _, have := range all[first] {
		path := filepath.Join(dir, have)
		if deeper {
			paths = append(paths, e.spelled(path, rest)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}

// usersFile lists the users of this machine.
const usersFile = "/etc/passwd"

// homesOf returns the home directories of the users in a text like that of usersFile who can log in with a shell. Those directly
// below / are parts of the system.
func homesOf(text string) (all []string) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 7 || fields[6] != "" && !strings.HasSuffix(fields[6], "sh") { // an empty one is /bin/sh
			continue
		}
		if home := filepath.Clean(fields[5]); filepath.IsAbs(home) && filepath.Dir(home) != "/" {
			all = append(all, home)
		}
	}
	return all
}

// homes returns the home directories of this machine, each once, and that of this program's user among the first. With an error, others may be missing.
func homes() (all []string, failed error) {
	known := map[string]bool{}
	add := func(path string) {
		if !known[path] {
			known[path] = true
			all = append(all, path)
		}
	}
	add("/root")
	if h, err := os.UserHomeDir(); err == nil && filepath.IsAbs(h) {
		add(h)
	}
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) && u.HomeDir != "/" { // HOME may name another
		add(u.HomeDir)
	}
	text, failed := os.ReadFile(usersFile)
	for _, home := range homesOf(string(text)) {
		add(home)
	}
	for _, dir := range []string{"/home", "/Users"} {
		entries, err := os.ReadDir(dir)
		failed = errors.Join(failed, err)
		for _, e := range entries {
			add(filepath.Join(dir, e.Name()))
		}
	}
	return all, failed
}
