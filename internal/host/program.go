package host

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// searchDirs are the directories in which a program is looked for. The PATH of the server and
// of callers is not used.
var searchDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// program is the file of a rule's program, as it was when the rule was made.
type program struct {
	asked  string      // path before links were followed; empty: the program is not there
	path   string      // path without links
	pinned os.FileInfo // the file must still be this one; nil: only root can change it
	execs  []string    // files that are executed for it: itself, its interpreters, their loaders
	ways   []string    // paths that lead to execs, as they were asked for
	after  []string    // what env would execute for the script: the path of a binary, and words for it; nil: the program is no such script
	again  bool        // the program that the kernel begins with has to execute another one
	moving bool        // it names its interpreter or loader by a relative path, so that the directory of each command decides
}

// changedSince reports whether a file that is executed for the program, or a link that leads to one, was changed after a
// person has allowed the program. Files of the system do not count: their administrator changes them.
func (p *program) changedSince(allowed time.Time, system func(path string) bool) bool {
	all := slices.Clone(p.execs)
	for _, way := range p.ways {
		all = append(all, plainfile.Links(way)...)
	}
	return slices.ContainsFunc(all, func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && changedAt(info) > allowed.UnixNano() && !system(path)
	})
}

// Reached returns paths whose files decide what is executed for a command: that of its program, and those of the interpreters.
func Reached(command string) []string {
	words, err := Words(command)
	if err != nil {
		return nil
	}
	p, err := find(words[0])
	if err == nil && p.path == "" && filepath.IsAbs(words[0]) {
		return words[:1]
	}
	if err != nil {
		return nil
	}
	return p.ways
}

// errNotThere is the error for a rule whose program is not on this machine.
var errNotThere = errors.New("the program is not on this machine")

// errReplaced is the error for a program file that was replaced.
var errReplaced = errors.New("the program file was replaced after its rule was made")

// find returns the program of a name, or of an absolute path. It is not an error if the
// program is not there, because the default rules name programs that few machines have.
func find(name string) (*program, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) || filepath.Clean(name) != name {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is no program: name it without a directory, or by its absolute path", sandboxmcp.Quote(name))
		}
		var p *program
		err := untraced(func() error { p = newProgram(name); return nil }) // callers name files before anything is allowed, and others may have made the links
		return p, err
	}
	for _, dir := range searchDirs {
		if p := newProgram(filepath.Join(dir, name)); p.path != "" {
			return p, nil
		}
	}
	return &program{}, nil
}

func newProgram(asked string) *program {
	look := newBudget(anyTime, maxProgram)
	path, err := look.follow(asked)
	if err != nil {
		return &program{}
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return &program{}
	}
	p := &program{asked: asked, path: path}
	if p.executes(look, asked, 0); p.moving || look.over() != nil {
		return &program{}
	}
	if _, _, after := interpreterOf(path); after != nil {
		if binaryFile(after[0]) {
			p.after, p.again = after, false
		}
	}
	if !inSearchDirs(asked) || !onlyRoot(path) {
		p.pinned = info
	}
	return p
}

func inSearchDirs(path string) bool {
	for _, dir := range searchDirs {
		if filepath.Dir(path) == dir {
			return true
		}
	}
	return false
}

// named reports whether a word of a command names the program: by the name of its rule, or by
// the path at which it was found.
func (p *program) named(name, word string) bool {
	return word == name || word != "" && (word == p.asked || word == p.path)
}

// open opens the program file and checks that it is still the one of the rule. The caller
// closes it.
func (p *program) open() (*os.File, error) {
	if p.path == "" {
		return nil, errNotThere
	}
	f, err := plainfile.Open(p.path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && p.pinned != nil && !same(p.pinned, info) {
		err = errReplaced
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pins remembers the program files of rules that are not in the settings.
type pins struct {
	mu   sync.Mutex
	seen map[string]os.FileInfo
}

// changed reports whether a program file is another one than at the first call for it.
func (p *pins) changed(prog *program) bool {
	if prog.pinned == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]os.FileInfo{}
	}
	first, ok := p.seen[prog.path]
	if !ok {
		p.seen[prog.path] = prog.pinned
		return false
	}
	return !same(first, prog.pinned)
}

// renew remembers the program file of a name as it is now.
func (p *pins) renew(name string) {
	prog, err := find(name)
	if err != nil || prog.pinned == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]os.FileInfo{}
	}
	p.seen[prog.path] = prog.pinned
}

// errForeign is the error for a program that the server cannot keep apart from itself.
var errForeign = errors.New("it is a program of another architecture, such as one of 32 bits, and cannot be kept apart from the server")

// errUnwalled is the error for a program that could not be put behind its walls.
var errUnwalled = errors.New("it cannot be kept apart from the server")

// errLarge is the error for a program whose file asks for more data than a command may have.
var errLarge = errors.New("it has more data at its begin than a command may have")

// same reports whether a file is unchanged.
func same(before, now os.FileInfo) bool {
	return os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime()) && before.Mode() == now.Mode() && changedAt(before) == changedAt(now)
}

// maxDepth is how many scripts the kernel begins before a binary, whose loader it executes as well.
const maxDepth = 5

// executes adds the files that the kernel executes for a program: itself, the loader of an ELF file, the interpreter of a
// script. again is set if one of the interpreters is env, which executes another one. A file may name two loaders, and links that take long to follow lead
// to them, so the names are taken from the budget.
func (p *program) executes(look *budget, path string, depth int) {
	p.ways = append(p.ways, path) // also if nothing is there yet
	real, err := look.follow(path)
	if err != nil {
		return
	}
	p.execs = append(p.execs, real)
	if depth > maxDepth {
		return
	}
	interpreters, env, _ := interpreterOf(real)
	p.again = p.again || env
	for _, next := range append(interpreters, loadersOf(real)...) {
		p.moving = p.moving || !filepath.IsAbs(next)
		p.executes(look, next, depth+1)
	}
}

// interpreterOf returns the programs of a script's first line. For env that is also the program that env looks for; after
// is then what env executes, but for the path of the script and its words. It is nil if the line has more for env than
// that, or splits its words by other rules than blanks.
func interpreterOf(path string) (all []string, env bool, after []string) {
	f, err := openPlain(path)
	if err != nil {
		return nil, false, nil
	}
	defer func() { _ = f.Close() }()
	line, cut := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	line, ok := strings.CutPrefix(line, "#!")
	line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "\x00") // as the kernel does, which takes no other character for a blank either
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if !ok || len(words) == 0 {
		return nil, false, nil
	}
	all, env = words[:1:1], filepath.Base(words[0]) == "env"
	if !env || cut != nil {
		return all, env, nil
	}
	words = words[1:]
	if len(words) > 1 && words[0] == "-S" && !strings.ContainsAny(line, "\\'\"$#\v\f\r") {
		words = words[1:]
	} else if len(words) != 1 {
		return all, env, nil
	}
	if strings.ContainsAny(words[0], "=/") || words[0][0] == '-' {
		return all, env, nil
	}
	for _, dir := range searchDirs {
		next := filepath.Join(dir, words[0])
		if info, err := os.Stat(next); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return append(all, next), env, append([]string{next}, words[1:]...)
		}
	}
	return all, env, nil
}
