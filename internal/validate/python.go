package validate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

//go:embed checker.py
var checkerText string

//go:embed guard.py
var guardText string

// checker is the check with the rule about missing imports.
var checker = sync.OnceValue(func() string { return pynames.Rule() + "\n" + checkerText })

// checkerMain checks the program on standard input. The first line of the input is "fix" or
// "check"; the rest is the program.
const checkerMain = `
order, _, code = sys.stdin.buffer.read().partition(b"\n")
sys.stdout.write(encode(found(code, order == b"fix")))
`

// Guard returns the Python text of a check for the interpreter that runs a program. Its function
// refused takes the bytes of the program. It returns None if the program may run, else the issues
// that [Refusal] reads.
func Guard(o Options) string {
	rules := make([]string, 0, len(o.Disabled))
	for _, rule := range o.Disabled {
		if rule = ruleName(rule); rule != ruleSyntax && rule != ruleDepth {
			rules = append(rules, strconv.QuoteToASCII(rule))
		}
	}
	return checker() + "\n" + guardText + "\nDISABLED = [" + strings.Join(rules, ", ") + "]\n"
}

// Refusal makes the report of a program that its [Guard] has refused.
func Refusal(code string, issues []byte, o Options) (sandboxmcp.CodeReport, error) {
	var rows [][]any
	if err := json.Unmarshal(issues, &rows); err != nil {
		return sandboxmcp.CodeReport{}, fmt.Errorf("read why a Python program was refused: %w", err)
	}
	f, err := findingsOf(rows)
	return report(code, sandboxmcp.Python, f, o), err
}

// PythonCheck is a check of Python code: a program that a sandbox has to run.
type PythonCheck struct {
	Program string
	Stdin   []byte

	code string
	o    Options
}

// Python makes the check of Python code.
func Python(code string, o Options) PythonCheck {
	order := "check\n"
	if o.Fix {
		order = "fix\n"
	}
	return PythonCheck{Program: checker() + checkerMain, Stdin: []byte(order + code), code: code, o: o}
}

// Report makes the report from what the program wrote. crashed says that it ended without
// success: deeply nested code does that to an interpreter.
func (p PythonCheck) Report(stdout string, crashed bool) (sandboxmcp.CodeReport, error) {
	if crashed {
		return report(p.code, sandboxmcp.Python, findings{issues: []sandboxmcp.Issue{tooDeep(0, 0)}}, p.o), nil
	}
	var rows [][]any
	var fixes []string
	var fixed string
	err := json.Unmarshal([]byte(stdout), &[]any{&rows, &fixes, &fixed})
	if err != nil {
		return sandboxmcp.CodeReport{}, fmt.Errorf("read what the check of Python code has found: %w", err)
	}
	f, err := findingsOf(rows)
	if err != nil {
		return sandboxmcp.CodeReport{}, err
	}
	f.fixes, f.fixed = fixes, fixed
	return report(p.code, sandboxmcp.Python, f, p.o), nil
}

func findingsOf(rows [][]any) (f findings, err error) {
	for _, r := range rows {
		i, err := issueOf(r)
		if err != nil {
			return f, err
		}
		f.issues = append(f.issues, i)
	}
	return f, nil
}

// issueOf reads an issue: line, column, severity, rule, message.
func issueOf(row []any) (sandboxmcp.Issue, error) {
	if len(row) == 5 {
		line, ok1 := row[0].(float64)
		col, ok2 := row[1].(float64)
		severity, ok3 := row[2].(string)
		rule, ok4 := row[3].(string)
		message, ok5 := row[4].(string)
		if ok1 && ok2 && ok3 && ok4 && ok5 {
			return sandboxmcp.Issue{Line: int(line), Col: int(col), Message: message, Severity: sandboxmcp.Severity(severity), Rule: rule}, nil
		}
	}
	return sandboxmcp.Issue{}, fmt.Errorf("the check of Python code wrote %v, which is no issue", row)
}
