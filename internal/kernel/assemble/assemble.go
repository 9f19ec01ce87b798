// Package assemble makes the whole texts of the Python drivers out of their parts. The tool that
// writes the texts of package kernel uses it. A server only has the results.
package assemble

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

// Texts returns the whole texts by file name. dir is the directory of the parts.
func Texts(dir string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.py"))
	if err != nil {
		return nil, err
	}
	p := parts{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		p[filepath.Base(name)] = part(filepath.Base(name), string(text))
	}
	driver, session := p.whole("boot.py"), p.session("session_boot.py")
	return map[string][]byte{
		"driver.py":             []byte(driver),
		"imports.py":            []byte(p.whole("imports.py")),
		"forkserver.py":         p.forkServer(p["preload.py"], driver),
		"session.py":            []byte(session),
		"session_forkserver.py": p.forkServer(p.session("session_preload.py"), session),
	}, nil
}

// parts are the texts of the parts by file name.
type parts map[string]string

// part returns the text of one part without its comment lines, and with what it takes from pynames.
func part(name, text string) string {
	var kept []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept = append(kept, line)
		}
	}
	text = strings.Replace(strings.Join(kept, "\n"), `"@known@"`, pynames.Set(), 1)
	if name == "fix.py" {
		text = pynames.Rule() + "\n" + text
	}
	return text
}

// inEachProgram are parts of the driver that run in each program, or in its zygote.
var inEachProgram = []string{"paths.py", "places.py", "lacks.py"}

// whole returns a part with the other parts embedded: those that run in each program as code, the
// others as strings that are compiled when they are needed. As a single file that is read at the
// start, it works even when the program has used up its descriptors.
func (p parts) whole(name string) string {
	text := p.within(p[name], inEachProgram...)
	for _, name := range []string{"later.py", "adapt.py", "fix.py", "slow.py"} {
		text = strings.Replace(text, `"@`+name+`@"`, strconv.QuoteToASCII(p[name]), 1)
	}
	return text
}

// session is whole for the driver of sessions.
func (p parts) session(name string) string {
	var texts []string
	for _, part := range []string{"later.py", "adapt.py", "notebook.py", "magics.py", "sandbox.py", "fix.py"} {
		texts = append(texts, strconv.Quote(part)+": "+strconv.QuoteToASCII(p[part]))
	}
	driver := p.within(p["session.py"], inEachProgram...) + "\n" + p["surroundings.py"]
	return strings.NewReplacer(`"@texts@"`, "{"+strings.Join(texts, ", ")+"}", `"@session.py@"`, strconv.QuoteToASCII(driver)).
		Replace(p.within(p[name], "session_names.py"))
}

// within returns text with the placeholders for parts replaced by their code.
func (p parts) within(text string, names ...string) string {
	for _, name := range names {
		place := `"@` + name + `@"`
		before, _, found := strings.Cut(text, place)
		if !found {
			continue
		}
		indent := before[strings.LastIndexByte(before, '\n')+1:]
		text = strings.Replace(text, place, strings.ReplaceAll(strings.TrimSpace(p[name]), "\n", "\n"+indent), 1)
	}
	return text
}

// forkServer returns the text of an interpreter that waits to be forked. It has three
// parts: before runs once and imports standard modules only, forkserver.py makes the function
// "wait", which returns in each fork, and the script. All share one set of names. The script's
// last line calls a function without arguments. If the script does not call "wait", it is called
// before the script.
//
// The parts are comments of the text. A child process compiles them and sends the code to the interpreter.
// So the interpreter has no syntax tree of them. It would keep part of the tree's memory, and each fork would
// copy and release the page tables of that memory. An interpreter keeps the tree of its main file until it ends.
// The script's function is called by the main file itself, so it has the callers that it has
// where the script is the main file.
//
// The first line begins with a space, so it is no comment of the parts.
func (p parts) forkServer(before, script string) []byte {
	text := bytes.TrimRight([]byte(script), "\n")
	last := bytes.LastIndexByte(text, '\n') + 1
	call, ok := bytes.CutSuffix(text[last:], []byte("()"))
	if !ok {
		panic("assemble: the last line of a driver is not a call") //nolint:forbidigo // a build tool
	}
	wait := []byte("\n")
	if !bytes.Contains(text, []byte(`"wait"`)) {
		wait = []byte("\nglobals().pop(\"wait\")()\n")
	}
	whole := slices.Concat([]byte(before), []byte("\n"), []byte(p["forkserver.py"]), wait, text[:last], []byte("begin = "), call, []byte("\n"))
	commented := append([]byte("#"), bytes.ReplaceAll(bytes.TrimRight(whole, "\n"), []byte("\n"), []byte("\n#"))...)
	return slices.Concat([]byte(generated), []byte(p["load.py"]), []byte("\nexec(globals().pop(\"load\")())\nglobals().pop(\"begin\")()\n"), commented, []byte("\n"))
}

const generated = " # Code generated by tools/drivers. DO NOT EDIT.\n"
