package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Rule allows commands of one program.
type Rule struct {
	Text  string   // as the settings or a person wrote it
	Name  string   // name of the program, as a command has it
	Words []string // words that have to follow it
	Exact *Pattern // the whole command; nil: further words are free, within those of usual
	Any   bool     // it may execute other programs: a person was warned of that

	usual   *usual // what the server knows of a default rule; nil: the rule is another one
	program *program
}

// newRule returns the rule of a setting, such as "git status".
func newRule(text string) (*Rule, error) {
	words, err := Words(text)
	if err != nil {
		return nil, err
	}
	r := &Rule{Text: text, Name: words[0], Words: words[1:], usual: known()[strings.Join(words, " ")], Any: runs(words[0], words[1:])}
	r.program, err = find(r.Name)
	return r, err
}

// fits reports whether a command is one of the rule.
func (r *Rule) fits(words []string) bool {
	if r.Exact != nil {
		return r.Exact.matches(words)
	}
	if !r.program.named(r.Name, words[0]) || len(words) <= len(r.Words) || !slices.Equal(words[1:1+len(r.Words)], r.Words) {
		return false
	}
	return r.usual.allow(words[1+len(r.Words):]) == ""
}

// approved reports whether a person has allowed the command. The person saw its words and was not asked about its directory, which
// decides what relative paths name, and what programs such as make and pytest execute.
func (r *Rule) approved() bool { return r.Exact != nil && *r.Exact != (Pattern{}) }

// flags lists the flags that may follow the words of a rule. A flag that can take a value in the
// next word ends with a colon: otherwise a value of -- would hide flags behind it.
type flags struct {
	short    string   // letters, each perhaps with a colon
	long     []string // without their dashes; a value after = is allowed
	number   bool     // -5 is allowed, also behind letters
	operands bool     // words that are no flags are allowed
	plus     bool     // only operands that begin with + are allowed
}

// words returns the words of a command of the rule as they are executed.
func (r *Rule) words(command []string) []string {
	all := append([]string{r.Name}, command[1:]...)
	if r.usual == nil {
		return all
	}
	return slices.Insert(all, 1+len(r.Words), r.usual.with...)
}

// parse returns the words that are neither flags nor their values, and the first word that is not allowed, or "".
func (f *flags) parse(words []string) (operands []string, bad string) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--" && f.operands:
			return append(operands, words[i+1:]...), ""
		case strings.HasPrefix(w, "--"):
			name, _, given := strings.Cut(w[2:], "=")
			if slices.Contains(f.long, name+":") && !given {
				i++
			} else if !slices.Contains(f.long, name) && !slices.Contains(f.long, name+":") {
				return nil, w
			}
		case len(w) > 1 && w[0] == '-':
			takes, ok := f.bundle(w[1:])
			if !ok {
				return nil, w
			}
			if takes {
				i++
			}
		case f.plus && !strings.HasPrefix(w, "+"), !f.plus && !f.operands:
			return nil, w
		default:
			operands = append(operands, w)
		}
	}
	return operands, ""
}

// bundle reports whether every letter of a word such as -la is allowed, and whether the last
// one takes the next word as its value.
func (f *flags) bundle(letters string) (takes, ok bool) {
	for i := range len(letters) {
		if f.number && letters[i] >= '0' && letters[i] <= '9' {
			continue
		}
		at := strings.IndexByte(f.short, letters[i])
		if at < 0 || letters[i] == ':' {
			return false, false
		}
		if at+1 < len(f.short) && f.short[at+1] == ':' {
			return i+1 == len(letters), true // the rest of the word is its value
		}
	}
	return false, true
}

// list splits a list of names.
func list(names string) []string { return strings.Fields(names) }

// interpreters and runners are programs that execute other programs or code that they are
// given.
var runners = sync.OnceValue(func() []string {
	return list(`sh bash dash zsh ksh fish csh tcsh busybox toybox python python3 perl ruby node nodejs deno bun php lua luajit tclsh expect awk gawk mawk
	sed ed vi vim nvim emacs nano less more man git tar cpio rsync scp sftp ssh docker podman nerdctl kubectl helm find fd xargs parallel env nice nohup setsid
	timeout time stdbuf script watch strace ltrace gdb sudo su doas runuser chroot unshare nsenter make cmake ninja gcc cc go cargo rustc java mvn gradle
	pip pip3 pipx uv poetry npm npx pnpm yarn gem bundle composer apt apt-get dpkg yum dnf rpm brew snap systemctl systemd-run service crontab at batch
	rg ag curl wget nc ncat socat openssl sqlite3 psql mysql zip unzip flock ld.so start-stop-daemon ionice taskset choom prlimit setarch`)
})

// loaders are programs that execute code which they find in their directory, in their own process: tests, configurations, plug-ins.
// A rule for one lets it execute no other program.
var loaders = sync.OnceValue(func() []string {
	return list(`pytest py.test nose2 tox nox coverage pylint mypy flake8 sphinx-build mkdocs django-admin alembic flask celery gunicorn uvicorn scons invoke fab ansible ansible-playbook
		jest mocha vitest ava eslint prettier tsc ts-node tsx webpack vite rollup esbuild babel gulp grunt nx turbo rake rspec rubocop phpunit r rscript julia`)
})

// loads reports whether a program is one of loaders, perhaps with a version in its name, such as pytest-3.
func loads(path string) bool {
	name := programName(path)
	return slices.Contains(loaders(), name) || slices.Contains(loaders(), strings.TrimRight(name, "-0123456789."))
}

// runs reports whether a command may execute other programs.
func runs(program string, words []string) bool {
	name := programName(program)
	if !slices.Contains(runners(), name) && !strings.HasPrefix(name, "ld-") && !versioned(name) {
		return false
	}
	return len(words) == 0 || known()[name+" "+words[0]] == nil
}

// Warning says why a rule for a command is dangerous, or "".
func Warning(words []string) string {
	name := programName(words[0])
	switch {
	case runs(name, words[1:]):
		return name + " can execute other programs, so a rule for it allows more than its words say"
	case loads(name):
		return name + " executes code of the directory that it is started in, which a model may have written"
	}
	return ""
}

// versioned reports whether a name is that of an interpreter with a version, such as
// python3.11.
func versioned(name string) bool {
	base := strings.TrimRight(name, "0123456789.")
	return base != name && slices.Contains(runners(), base)
}

// programName returns the name of a program in lower case: a file system may ignore case, and then RM is rm.
func programName(word string) string { return strings.ToLower(filepath.Base(word)) }

// Blocked is a list of commands that are always refused.
type Blocked []blocked

type blocked struct {
	text  string
	words []string
}

func newBlocked(texts []string) (Blocked, error) {
	var b Blocked
	for _, t := range texts {
		words, err := Words(t)
		if err != nil {
			return nil, err
		}
		b = append(b, blocked{t, words})
	}
	return b, nil
}

// rule returns the text of the entry that refuses a command, or "". path is the file of its program, without links; empty: it is not known.
func (b Blocked) rule(words []string, path string) string {
	for _, x := range b {
		name := programName(x.words[0])
		if (name == programName(words[0]) || path != "" && (name == programName(path) || leadsTo(x.words[0], path))) && holds(words[1:], x.words[1:]) {
			return x.text
		}
	}
	return ""
}

// manyNamed are programs that do what the name by which they are started says. Links with such names lead to them.
var manyNamed = sync.OnceValue(func() []string { return list("busybox toybox coreutils systemctl pgrep killall5") })

// leadsTo reports whether the program of a name is a file, such as that of python3 python3.11. A file of several names, such as perl
// and perl5.36.0, counts if only a version or the like is added to the name.
func leadsTo(name, path string) bool {
	if slices.Contains(manyNamed(), programName(path)) {
		return false
	}
	prog, err := find(name)
	if err != nil || prog.path == "" || prog.path == path {
		return err == nil && prog.path == path
	}
	added, longer := strings.CutPrefix(programName(path), programName(name))
	if !longer || !strings.ContainsAny(added[:min(len(added), 1)], "0123456789.-") {
		return false
	}
	blocked, err := os.Stat(prog.path)
	asked, failed := os.Stat(path)
	return err == nil && failed == nil && os.SameFile(blocked, asked)
}

// holds reports whether a command has all words of a blocked one, in any order. A short flag
// also counts within others, as -R in -vR.
func holds(words, want []string) bool {
	for _, w := range want {
		flag := len(w) == 2 && w[0] == '-' && w[1] != '-'
		if !slices.ContainsFunc(words, func(have string) bool {
			return have == w || flag && len(have) > 1 && have[0] == '-' && have[1] != '-' && strings.Contains(have, w[1:])
		}) {
			return false
		}
	}
	return true
}

// denied is the error for a command without a rule.
func denied(words []string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeHostAccessDenied, "no rule allows %s", sandboxmcp.Quote(Line(words))).
		WithHint("ask a person: request_host_access with this command as pattern").With("success", false).With("denied", true)
}

func blockedError(words []string, rule string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeHostAccessBlocked, "%s is blocked by %s of host_blocked_commands", sandboxmcp.Quote(Line(words)), sandboxmcp.Quote(rule)).
		With("success", false).With("blocked", true)
}
