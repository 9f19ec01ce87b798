package server

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// actor is the actor in audit entries of requests over MCP.
const actor = "mcp"

// executeCode is the row of execute_code.
func executeCode(f facts) tool {
	reach := "Programs reach open domains only"
	if f.has("request_egress") && !f.NoAsking {
		reach += "; see request_egress"
	}
	return tool{
		name:  "execute_code",
		title: "Run code in a sandbox",
		description: "Runs a program (python, node or shell) in a sandbox and returns status, exit_code, stdout, stderr and the files that it wrote to /mnt/data. " +
			"Without session_id the sandbox is new and nothing is kept; with one, files and variables are kept. For long runs pass background and poll get_artifacts. " + reach + ".",
		hints: hints{}, letsOut: true,
		in: input(
			need("code", typed("string")),
			opt("language", languageSchema("python, node or shell; in a session, its own")),
			opt("allowed_domains", &jsonschema.Schema{Type: "array", Items: typed("string"), Description: "Reach only these of the open domains"}),
			opt("timeout_seconds", timeoutSchema("Wall clock, up to "+digits(f.Ceilings.TimeoutSeconds), f)),
			opt("session_id", about("string", "Session to run in; made if it does not exist")),
			opt("packages", packagesSchema("Install these first")),
			opt("stdin", typed("string")),
			opt("env", valuesOf(typed("object"), "string")),
			opt("max_ram_mb", limitSchema(fmt.Sprintf("MiB, default %d, up to %d", f.Limits.MaxRAMMB, f.Ceilings.MaxRAMMB))),
			opt("max_cpu_cores", above(about("number", "Default "+digits(f.Limits.MaxCPUCores)), 0)),
			opt("max_processes", limitSchema("Default "+strconv.Itoa(f.Limits.MaxProcesses))),
			opt("max_output_bytes", limitSchema("Per stream, default "+strconv.FormatInt(f.Limits.MaxOutputBytes, 10))),
			opt("background", fallback(about("boolean", "Return at once with status running"), "false")),
			opt("backend", oneOf(about("string", "process or docker; default: the configured one"), "process", "docker")),
		),
		out: resultSchema(),
		run: (*Server).executeCode,
	}
}

// languageSchema is the argument language.
func languageSchema(words string) *jsonschema.Schema {
	return fallback(oneOf(about("string", words), "python", "node", "shell"), `"python"`)
}

// limitSchema is a limit with a whole number above 0.
func limitSchema(words string) *jsonschema.Schema { return atLeast(about("integer", words), 1) }

// timeoutSchema is the argument timeout_seconds with the default in force, unless that is a
// fraction.
func timeoutSchema(words string, f facts) *jsonschema.Schema {
	s := limitSchema(words)
	if n := f.Limits.TimeoutSeconds; n == math.Trunc(n) {
		return fallback(s, digits(n))
	}
	s.Description += ", default " + digits(f.Limits.TimeoutSeconds)
	return s
}

// resultSchema lists the fields that a model needs; a result has more.
func resultSchema() *jsonschema.Schema {
	return output(
		need("request_id", typed("string")),
		need("status", about("string", "completed, failed, timed_out, out_of_memory, output_limit, signalled, cancelled, rejected or running")),
		need("success", typed("boolean", "null")),
		need("exit_code", typed("integer", "null")),
		need("stdout", typed("string")),
		need("stderr", typed("string")),
		need("duration_ms", typed("number")),
		need("artifacts", typed("array")),
		need("results", typed("array")),
		need("resource_usage", typed("object")),
		need("metadata", typed("object")),
		opt("network", typed("object")),
		opt("error", typed("object", "null", "string")), // a string is an error code
		opt("isolation", typed("object", "string", "null")),
		opt("note", about("string", "What helps, after an end that is not plain")),
		opt("session_id", typed("string", "null")),
		opt("state_lost", about("boolean", "The session's variables are gone")),
		opt("stdout_uri", about("string", "Set when stdout is shortened")),
		opt("stderr_uri", typed("string")),
	)
}

func (s *Server) executeCode(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	req := sandboxmcp.Request{
		Code:      c.args.text("code"),
		Language:  sandboxmcp.Language(c.args.text("language")),
		Env:       c.args.texts("env"),
		Backend:   c.args.text("backend"),
		Display:   sandboxmcp.DisplayStdout,
		Limits:    c.args.limits(),
		SessionID: id,
		Unoffered: s.rules().facts.lacking,
	}
	if id != "" {
		req.Display = sandboxmcp.DisplayResults
	}
	if list, ok := c.args["allowed_domains"].([]any); ok { // an empty list allows no domain
		req.AllowedDomains = words(list)
	}
	if list, ok := c.args["packages"].([]any); ok {
		req.Packages = words(list)
	}
	if in := c.args.text("stdin"); in != "" {
		req.Stdin = []byte(in)
	}
	progress, stop := s.reportProgress(ctx, c.request, nil)
	defer stop()
	run := s.engine.Start
	if !c.args.flag("background") {
		run = s.engine.Execute
		progress.follow(&req)
	}
	res, err := run(ctx, c.who, req)
	if err != nil {
		return answer{}, err
	}
	return s.show(ctx, c, res, view{content: true, receipt: true}), nil
}

// getArtifacts is the row of get_artifacts.
func getArtifacts() tool {
	return tool{
		name:  "get_artifacts",
		title: "Get a run's result and files",
		description: "Returns the result and files of an earlier execute_code by its request_id, also while it runs in the background (status running). " +
			"wait_seconds waits for its end; cancel ends it. Files above 8 KiB are returned as resource links.",
		alone: "Returns the result and files of an earlier run by its request_id, also while it runs in the background (status running). " +
			"wait_seconds waits for its end; cancel ends it. Files above 8 KiB are returned as resource links.",
		hints: hints{readOnly: true, idempotent: true},
		in: input(
			need("request_id", typed("string")),
			opt("include_content", fallback(about("boolean", "Return small files as base64 and show pictures"), "true")),
			opt("include_receipt", fallback(about("boolean", "Return the signed receipt and the walls"), "false")),
			opt("wait_seconds", atMost(atLeast(about("number", "0 to 45"), 0), 45)),
			opt("cancel", fallback(about("boolean", "End the background run"), "false")),
		),
		out: output(
			need("request_id", typed("string")),
			need("status", typed("string")),
			need("artifacts", typed("array")),
			need("manifest", about("object", "File name to SHA-256")),
			opt("receipt", typed("object", "null")),
		),
		run: (*Server).getArtifacts,
	}
}

func (s *Server) getArtifacts(ctx context.Context, c *call) (answer, error) {
	id, err := sandboxmcp.ParseRequestID(c.args.text("request_id"))
	if err != nil {
		return answer{}, err
	}
	content := c.args.flagOr("include_content", true)
	_, explicit := c.args["include_content"]
	_, stop := s.reportProgress(ctx, c.request, s.lookOf(c.who, id))
	defer stop()
	res, err := s.engine.Lookup(ctx, c.who, sandboxmcp.Lookup{
		RequestID: id,
		Wait:      time.Duration(c.args.number("wait_seconds") * float64(time.Second)),
		Cancel:    c.args.flag("cancel"),
		Content:   content,
	})
	if err != nil {
		return answer{}, err
	}
	return s.show(ctx, c, res, view{content: content, explicit: explicit && content, manifest: true, receipt: c.args.flag("include_receipt")}), nil
}

// lookOf returns a function that says what a background run has printed last, or its place in the
// queue.
func (s *Server) lookOf(who sandboxmcp.Caller, id sandboxmcp.RequestID) func(context.Context) string {
	return func(ctx context.Context) string {
		res, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: id})
		if err != nil || res.Status != sandboxmcp.StatusRunning {
			return ""
		}
		if place := count(res.Metadata["queue_place"]); place > 0 {
			return "place " + strconv.Itoa(place) + " in the queue"
		}
		out := strings.TrimRight(res.Stdout, " \r\n")
		return clipBytes(visible([]byte(out[strings.LastIndexAny(out, lineEnds)+1:])), maxTold)
	}
}
