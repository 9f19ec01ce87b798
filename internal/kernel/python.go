package kernel

import (
	"embed"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

//go:embed drivers/*.py
var pythonFiles embed.FS

// pythonDriver is the driver's file name; boot.py says why it is so long.
const pythonDriver = ".importlib_bootstrap.py"

// pythonText is boot.py with the other parts in it as strings: one file that is
// always there, even when the program has used up its descriptors.
var pythonText = sync.OnceValue(func() []byte {
	part := func(name string) string {
		data, err := pythonFiles.ReadFile("drivers/" + name)
		if err != nil {
			panic(err) //nolint:forbidigo // it is embedded
		}
		var kept []string
		for line := range strings.SplitSeq(string(data), "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "\n")
	}
	text := part("boot.py")
	for _, name := range []string{"later.py", "slow.py"} {
		text = strings.Replace(text, `"@`+name+`@"`, strconv.QuoteToASCII(part(name)), 1)
	}
	return []byte(text)
})

func planPython(p Program) backend.Process {
	display := "none"
	if p.Display != sandboxmcp.DisplayNone {
		display = string(p.Display)
	}
	return backend.Process{
		Argv: []string{p.Interpreter, inProgramDir(pythonDriver), display, inProgramDir(p.FileName)},
		Env:  environment(p, map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}),
		Program: []backend.ProgramFile{
			{Name: p.FileName, Data: []byte(p.Code)},
			{Name: pythonDriver, Data: pythonText()},
		},
		Channel: true,
	}
}
