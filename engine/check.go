package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/validate"
)

// Validate checks code without running it. Python code is parsed by the interpreter that
// would run it, in a sandbox. The audit log gets an entry without the code.
func (e *Engine) Validate(ctx context.Context, c sandboxmcp.Caller, check sandboxmcp.CodeCheck) (sandboxmcp.CodeReport, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.CodeReport{}, err
	}
	r, err := e.check(ctx, c, check)
	if err != nil {
		return r, err
	}
	action := map[sandboxmcp.Verdict]string{
		sandboxmcp.VerdictPass: "validation_passed", sandboxmcp.VerdictFixed: "validation_fixed", sandboxmcp.VerdictReject: "validation_failed",
	}[r.Verdict]
	_, err = e.audit.Append(ctx, sandboxmcp.AuditEntry{
		Action: action, Phase: sandboxmcp.PhaseOutcome, Language: r.Language, Namespace: c.Namespace, Actor: c.Actor,
		Detail:   fmt.Sprintf("%s: %s, issues=%d fixes=%d", r.Language, r.Verdict, len(r.Issues), len(r.FixesApplied)),
		Metadata: map[string]any{"code_bytes": len(check.Code), "code_sha256": digest([]byte(check.Code))},
	})
	return r, err
}

// check is Validate without the record.
func (e *Engine) check(ctx context.Context, c sandboxmcp.Caller, check sandboxmcp.CodeCheck) (sandboxmcp.CodeReport, error) {
	language, err := sandboxmcp.ParseLanguage(string(check.Language))
	if err == nil {
		err = e.checkCode(check.Code)
	}
	if err != nil {
		return sandboxmcp.CodeReport{}, err
	}
	o := e.checkOptions(!check.NoFix)
	if language != sandboxmcp.Python {
		done, busy := inTurn(ctx, e.parses, c)
		if busy != nil {
			return sandboxmcp.CodeReport{}, busy
		}
		defer done()
	}
	switch language {
	case sandboxmcp.Node:
		return validate.Node(check.Code, o), nil
	case sandboxmcp.Shell:
		return validate.Shell(check.Code, o), nil
	case sandboxmcp.Python:
	}
	return e.checkPython(ctx, c, check.Code, o, false)
}

// checkPython checks Python code in a sandbox. beside says that a run waits for it.
func (e *Engine) checkPython(ctx context.Context, c sandboxmcp.Caller, code string, o validate.Options, beside bool) (sandboxmcp.CodeReport, error) {
	p := validate.Python(code, o)
	res, err := e.help(ctx, c, helper{language: sandboxmcp.Python, beside: beside, program: p.Program, stdin: p.Stdin, compiles: "check.py", limits: sandboxmcp.Limits{TimeoutSeconds: checkSeconds, MaxOutputBytes: checkOutput}})
	if err != nil {
		return sandboxmcp.CodeReport{}, err
	}
	switch res.Status { //nolint:exhaustive // the others are the sandbox's limits, below
	case sandboxmcp.StatusCancelled:
		return sandboxmcp.CodeReport{}, cancelledError(ctx)
	case sandboxmcp.StatusCompleted, sandboxmcp.StatusFailed, sandboxmcp.StatusSignalled:
		if !res.StdoutTruncated {
			return p.Report(res.Stdout, !res.Success)
		}
	}
	return sandboxmcp.CodeReport{}, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the check of the code met a limit: %s", res.Status).
		WithHint("send less code, or raise the limits of the namespace")
}

const (
	checkSeconds = 5
	checkOutput  = 16 << 20 // the corrected code, with an escape for every character
)

// isUncompiled reports whether the code of a run cannot be compiled, as its interpreter has said. If that had imported
// packages before, they may have forged it.
func (e *Engine) isUncompiled(x *execution) bool {
	r, err := e.checkPython(x.ctx, x.who, x.req.Code, e.checkOptions(false), true)
	return err == nil && slices.ContainsFunc(r.Issues, func(i sandboxmcp.Issue) bool { return i.Rule == "syntax" })
}

// checkCode refuses code that is empty or too long.
func (e *Engine) checkCode(code string) error {
	if strings.TrimSpace(code) == "" {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "code is empty").WithHint("send the program's text as code")
	}
	if n := int64(len(code)); n > e.settings().MaxCodeBytes {
		return sandboxmcp.Errorf(sandboxmcp.CodeCodeTooLarge, "code is %d bytes; at most %d are allowed", n, e.settings().MaxCodeBytes).With("size_bytes", n).With("limit_bytes", e.settings().MaxCodeBytes)
	}
	return nil
}

func (e *Engine) checkOptions(fix bool) validate.Options {
	c := e.settings()
	return validate.Options{Fix: fix, RejectDangerous: c.RejectDangerous, Disabled: c.UncheckedRules}
}

// refuseDangerous refuses a program with a dangerous pattern if the settings say so. The driver
// of a Python program does that itself, by guardOf.
func (e *Engine) refuseDangerous(ctx context.Context, x *execution) error {
	if !e.settings().RejectDangerous || x.helps {
		return nil
	}
	r, err := e.check(ctx, x.who, sandboxmcp.CodeCheck{Code: x.req.Code, Language: x.req.Language, NoFix: true})
	if err != nil || r.Valid {
		return err
	}
	return refusal(r)
}

// permit is mayReach for a request that has claimed its session. A Python cell is checked before, apart from
// its interpreter: earlier cells may have changed that.
func (e *Engine) permit(x *execution) (*gateway.Run, error) {
	if x.req.Language == sandboxmcp.Python && x.isCell() {
		if err := e.refuseDangerous(x.ctx, x); err != nil {
			return nil, err
		}
	}
	return e.mayReach(x)
}

// guardOf returns the check that the interpreter of a Python program makes before it opens the
// program; empty: none.
func (e *Engine) guardOf(x *execution) string {
	if !e.settings().RejectDangerous || x.helps || x.req.Language != sandboxmcp.Python {
		return ""
	}
	return validate.Guard(e.checkOptions(false))
}

// refusedBy is the error of a program that its guard has refused.
func (e *Engine) refusedBy(x *execution, issues []byte) error {
	r, err := validate.Refusal(x.req.Code, issues, e.checkOptions(false))
	if err != nil {
		return err
	}
	return refusal(r)
}

func refusal(r sandboxmcp.CodeReport) error {
	found := slices.DeleteFunc(r.Issues, func(i sandboxmcp.Issue) bool { return i.Severity != sandboxmcp.SeverityError })
	if len(found) == 0 { // there were more issues than a report names
		return sandboxmcp.Errorf(sandboxmcp.CodeValidationFailed, "the code was not run: it has dangerous patterns").With("issues", found)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeValidationFailed, "the code was not run: line %d: %s", found[0].Line, found[0].Message).With("issues", found)
}
