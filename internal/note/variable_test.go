package note_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
)

func TestVariable(t *testing.T) {
	const frame = "  File \"<frozen os>\", line 679, in __getitem__"
	for _, c := range []struct {
		name     string
		language sandboxmcp.Language
		stderr   string
		err      *sandboxmcp.ProgramError
		want     string
	}{
		{"Python", sandboxmcp.Python, frame + "\nKeyError: 'API_TOKEN'\n", &sandboxmcp.ProgramError{Name: "KeyError", Value: "'API_TOKEN'"}, "API_TOKEN"},
		{"Python in a session", sandboxmcp.Python, "", &sandboxmcp.ProgramError{Name: "KeyError", Value: "'API_TOKEN'", Traceback: []string{`  File "/usr/lib/python3.9/os.py", line 1, in __getitem__`}}, "API_TOKEN"},
		{"another dictionary of Python", sandboxmcp.Python, "KeyError: 'API_TOKEN'\n", &sandboxmcp.ProgramError{Name: "KeyError", Value: "'API_TOKEN'"}, ""},
		{"another name in Python", sandboxmcp.Python, frame, &sandboxmcp.ProgramError{Name: "KeyError", Value: "'token'"}, ""},
		{"shell", sandboxmcp.Shell, "/run/program/main.sh: line 2: API_TOKEN: unbound variable\n", nil, "API_TOKEN"},
		{"shell with :?", sandboxmcp.Shell, "main.sh: 1: API_TOKEN: parameter null or not set\n", nil, "API_TOKEN"},
		{"another name in shell", sandboxmcp.Shell, "main.sh: line 2: x: unbound variable\n", nil, ""},
		{"Node", sandboxmcp.Node, "console.log(process.env.API_TOKEN.length)\n     ^\n", &sandboxmcp.ProgramError{Name: "TypeError", Value: "Cannot read properties of undefined (reading 'length')"}, "API_TOKEN"},
		{"two names in Node", sandboxmcp.Node, "f(process.env.A_B.length, process.env['C_D'].length)\n", &sandboxmcp.ProgramError{Name: "TypeError", Value: "Cannot read properties of undefined (reading 'length')"}, ""},
		{"another error in Node", sandboxmcp.Node, "process.env.API_TOKEN.call()\n", &sandboxmcp.ProgramError{Name: "TypeError", Value: "x is not a function"}, ""},
	} {
		res := sandboxmcp.Result{Status: sandboxmcp.StatusFailed, Language: c.language, Stderr: c.stderr, Error: c.err}
		if got := note.Variable(&res); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		res.Status = sandboxmcp.StatusCompleted
		if got := note.Variable(&res); got != "" {
			t.Errorf("%s that succeeded: got %q, want none", c.name, got)
		}
	}
}
