package server

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// validateCode is the row of validate_code.
func validateCode() tool {
	return tool{
		name:        "validate_code",
		title:       "Check code without running it",
		description: "Parses a program without running it; names syntax errors and dangerous calls. verdict: pass, fixed (run fixed_code) or reject. execute_code checks the syntax itself.",
		hints:       hints{readOnly: true, idempotent: true},
		in: input(
			need("code", typed("string")),
			opt("language", languageSchema("python, node or shell")),
			opt("auto_fix", fallback(about("boolean", "Add missing imports, repair quotes, tabs, fences"), "true")),
		),
		out: output(
			need("valid", typed("boolean")),
			need("verdict", typed("string")),
			need("issues", about("array", "line, col, message, severity, rule")),
			need("fixes_applied", typed("array")),
			need("original_code", typed("string")),
			need("fixed_code", typed("string")),
			need("language", typed("string")),
		),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			r, err := s.engine.Validate(ctx, c.who, sandboxmcp.CodeCheck{
				Code: c.args.text("code"), Language: sandboxmcp.Language(c.args.text("language")), NoFix: !c.args.flagOr("auto_fix", true),
			})
			return answer{body: r}, err
		},
	}
}
