package kernel

import (
	_ "embed" // the drivers
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

//go:embed drivers/session_shell.sh
var shellSession []byte

//go:embed drivers/session_sh.sh
var shSession []byte

const shellSessionName = ".session.sh"

// shellCellName is a file that the shell sources for each cell. Error messages begin with
// its name, as those of a single run do.
const (
	shellCellName = "main.sh"
	shellCellText = "eval \"$__text\"\n"
)

// planShellInterpreter plans a bash that keeps its state: working directory, variables,
// functions, aliases and options. If there is only another sh, each cell runs in a new
// shell, and only files are kept.
func planShellInterpreter(p Program) (backend.Process, error) {
	driver := shellSession
	if !strings.HasPrefix(path.Base(p.Interpreter), "bash") {
		driver = shSession
	}
	return backend.Process{
		Argv: []string{p.Interpreter, inProgramDir(shellSessionName), inProgramDir(shellCellName)},
		Env:  environment(p, nil),
		Program: append([]backend.ProgramFile{
			{Name: shellCellName, Data: []byte(shellCellText)},
			{Name: shellSessionName, Data: driver},
		}, pythonNames(p)...),
		Channels: 2,
	}, nil
}

// shellCell encodes a cell for a shell, which cannot read frames. It writes a line each
// for id, code, standard input and number of variables, and then a name and a value for
// each variable. An id with an exclamation mark stands for Cell.Interrupted. Values are escaped for printf's %b. NUL bytes of the code are left out,
// as bash leaves them out of a file.
func shellCell(id uint64, c Cell) ([]byte, error) {
	var b strings.Builder
	b.WriteString(strconv.FormatUint(id, 10))
	if c.Interrupted {
		b.WriteByte('!')
	}
	b.WriteByte('\n')
	shellField(&b, strings.ReplaceAll(c.Code, "\x00", ""))
	shellField(&b, string(c.Stdin))
	b.WriteString(strconv.Itoa(len(c.Env)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		b.WriteString(name + "\n")
		shellField(&b, c.Env[name])
	}
	return []byte(b.String()), nil
}

// shellField writes a line that printf's %b turns back into s. It escapes as few bytes
// as possible, because a shell reads its channel byte by byte.
func shellField(b *strings.Builder, s string) {
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\':
			b.WriteString(`\\`)
		case '\n':
			b.WriteString(`\n`)
		case 0:
			b.WriteString(`\0000`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\n')
}
