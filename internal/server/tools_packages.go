package server

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// installPackage is the row of install_package.
func installPackage() tool {
	return tool{
		name:        "install_package",
		title:       "Install packages",
		description: "Installs packages and dependencies into a session, or for all later runs. Wheels only; no install scripts run.",
		hints:       hints{idempotent: true, openWorld: true},
		in: input(
			need("language", oneOf(about("string", "python or node"), "python", "node")),
			need("packages", packagesSchema("As requests>=2, express@^4")),
			opt("session_id", typed("string")),
		),
		out: output(
			need("success", typed("boolean")), need("output", typed("string")),
			need("installed", typed("array")), need("rejected", typed("array")),
		),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			id, err := c.args.session("session_id")
			if err != nil {
				return answer{}, err
			}
			ask := sandboxmcp.InstallAsk{Language: sandboxmcp.Language(c.args.text("language")), SessionID: id}
			if list, ok := c.args["packages"].([]any); ok {
				ask.Packages = words(list)
			}
			progress, stop := s.reportProgress(ctx, c.request, nil)
			defer stop()
			ask.Note = progress.note
			r, err := s.engine.Install(ctx, c.who, ask)
			return answer{body: r}, err
		},
	}
}

// packagesSchema is the argument packages.
func packagesSchema(words string) *jsonschema.Schema {
	most := 50
	return &jsonschema.Schema{Type: "array", Items: typed("string"), MaxItems: &most, Description: words}
}
