// Package validate checks code without running it: whether it can be parsed, and whether it
// has patterns that are often dangerous.
//
// The patterns are hints to the author of the code. They stop no attack: the sandbox decides what a program
// can do.
//
// Node.js and shell code is parsed in this process. Their parsers are recursive, and a Go
// program cannot survive an overflow of its stack, so code that nests too deeply is refused
// before it is parsed. Python code is parsed by the interpreter that would run it: [Python]
// makes a program for a sandbox, which reads the code from its standard input.
package validate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Rules of issues that are no dangerous pattern.
const (
	ruleSyntax = "syntax"
	ruleDepth  = "too-deep"
)

// Options says how code is judged.
type Options struct {
	Fix             bool     // correct what can be corrected
	RejectDangerous bool     // a dangerous pattern is an error, not a warning
	Disabled        []string // rules that are not looked for, with or without "()" at the end
}

// findings are what a check has found.
type findings struct {
	issues []sandboxmcp.Issue
	fixes  []string // what was corrected
	fixed  string   // the corrected code, if anything was
}

// report makes the report of a check. The order of the issues is that of the code.
func report(code string, language sandboxmcp.Language, f findings, o Options) sandboxmcp.CodeReport {
	r := sandboxmcp.CodeReport{
		Valid: true, Verdict: sandboxmcp.VerdictPass, Issues: []sandboxmcp.Issue{}, FixesApplied: append([]string{}, f.fixes...),
		OriginalCode: code, FixedCode: code, Language: language,
	}
	if len(f.fixes) > 0 {
		r.Verdict, r.FixedCode = sandboxmcp.VerdictFixed, f.fixed
	}
	for _, i := range f.issues {
		if o.disabled(i.Rule) {
			continue
		}
		if i.Severity == sandboxmcp.SeverityWarning && o.RejectDangerous {
			i.Severity = sandboxmcp.SeverityError
		}
		if i.Severity == sandboxmcp.SeverityError {
			r.Valid, r.Verdict = false, sandboxmcp.VerdictReject
		}
		r.Issues = append(r.Issues, i)
	}
	slices.SortStableFunc(r.Issues, func(a, b sandboxmcp.Issue) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	if len(r.Issues) > maxIssues {
		r.Issues = r.Issues[:maxIssues]
	}
	return r
}

// maxIssues is how many issues a report has at most.
const maxIssues = 200

func (o Options) disabled(rule string) bool {
	same := func(name string) bool { return ruleName(name) == rule }
	return rule != ruleSyntax && rule != ruleDepth && slices.ContainsFunc(o.Disabled, same)
}

// ruleName returns the name of a rule without the "()" that it may end with.
func ruleName(name string) string { return strings.TrimSuffix(name, "()") }

// dangerous makes the issue of a dangerous pattern.
func dangerous(line, col int, rule, why string) sandboxmcp.Issue {
	return sandboxmcp.Issue{Line: line, Col: col, Message: why, Severity: sandboxmcp.SeverityWarning, Rule: rule}
}

func syntaxError(line, col int, message string) sandboxmcp.Issue {
	return sandboxmcp.Issue{Line: line, Col: col, Message: "SyntaxError: " + message, Severity: sandboxmcp.SeverityError, Rule: ruleSyntax}
}

func tooDeep(line, col int) sandboxmcp.Issue {
	return sandboxmcp.Issue{Line: line, Col: col, Message: "the code nests too deeply to be checked", Severity: sandboxmcp.SeverityError, Rule: ruleDepth}
}

// position returns the line and column of an offset in code, both from 1. The column counts
// characters.
func position(code string, offset int) (line, col int) {
	before := code[:min(max(offset, 0), len(code))]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, len([]rune(before[start:])) + 1
}
