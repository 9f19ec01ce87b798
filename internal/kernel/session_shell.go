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

// shellCellName is sourced for each cell; its name is what messages begin with, as
// those of a program that is run once.
const (
	shellCellName = "main.sh"
	shellCellText = "eval \"$__text\"\n"
)

// planShellInterpreter keeps a bash: working directory, variables, functions,
// aliases and options stay. Any other sh, which is taken only where there is no
// bash, has a new shell for each cell: files stay, and nothing else does.
func planShellInterpreter(p Program) (backend.Process, error) {
	driver := shellSession
	if !strings.HasPrefix(path.Base(p.Interpreter), "bash") {
		driver = shSession
	}
	return backend.Process{
		Argv: []string{p.Interpreter, inProgramDir(shellSessionName), inProgramDir(shellCellName)},
		Env:  environment(p, nil),
		Program: []backend.ProgramFile{
			{Name: shellCellName, Data: []byte(shellCellText)},
			{Name: shellSessionName, Data: driver},
		},
		Channel:  true,
		Commands: true,
	}, nil
}

// shellCell is a cell for a shell, which cannot read frames: a line for each
// of id, code, standard input, the number of variables, and then a name and a
// value for each, all in the form of printf's %b. A shell's text has no NUL, so
// those of the code are left out, as bash does with a file that has some.
func shellCell(id uint64, c Cell) ([]byte, error) {
	var b strings.Builder
	b.WriteString(strconv.FormatUint(id, 10) + "\n")
	shellField(&b, strings.ReplaceAll(c.Code, "\x00", ""))
	shellField(&b, string(c.Stdin))
	b.WriteString(strconv.Itoa(len(c.Env)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		b.WriteString(name + "\n")
		shellField(&b, c.Env[name])
	}
	return []byte(b.String()), nil
}

// shellField writes one line that printf's %b makes s of. Bytes are written as
// they are where a line can hold them: a shell reads its channel byte by byte.
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
