package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxTTLMinutes is the longest ttl_minutes: a week.
const maxTTLMinutes = 7 * 24 * 60

// createSession is the row of create_session.
func createSession(f facts) tool {
	limits := input(
		opt("max_ram_mb", limitSchema("")),
		opt("max_cpu_cores", above(typed("number"), 0)),
		opt("timeout_seconds", limitSchema("")),
		opt("max_processes", limitSchema("")),
		opt("max_output_bytes", limitSchema("")),
	)
	limits.Description = "For each run"
	return tool{
		name:        "create_session",
		title:       "Create a session",
		description: "Makes a sandbox that keeps files and variables from call to call. Pass its id to execute_code. It ends with terminate_session, or after ttl_minutes without use.",
		in: input(
			opt("language", languageSchema("python, node or shell")),
			opt("timeout_seconds", timeoutSchema("Wall clock of each run", f)),
			opt("session_id", about("string", "1 to 64 characters of A-Z a-z 0-9 _ -; default: a new id")),
			opt("ttl_minutes", atMost(above(about("number", "Minutes without use after which it ends, default "+digits(f.five.TTL.Minutes())), 0), maxTTLMinutes)),
			opt("limits", limits),
		),
		out: output(
			need("id", typed("string")),
			need("session_id", typed("string")),
			need("status", typed("string")),
			need("expires_at", typed("string")),
			need("resource_limits", typed("object")),
			need("isolation", typed("object", "string", "null")),
		),
		run: (*Server).createSession,
	}
}

func (s *Server) createSession(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	spec := sandboxmcp.SessionSpec{
		ID:       id,
		Language: sandboxmcp.Language(c.args.text("language")),
		TTL:      minutes(c.args.number("ttl_minutes")),
	}
	if m, ok := c.args["limits"].(map[string]any); ok {
		spec.Limits = arguments(m).limits()
	}
	if n := c.args.number("timeout_seconds"); n != 0 {
		if in := spec.Limits.TimeoutSeconds; in != 0 && in != n {
			return answer{}, invalid("timeout_seconds is %s and limits.timeout_seconds is %s; give one", digits(n), digits(in))
		}
		spec.Limits.TimeoutSeconds = n
	}
	session, err := s.engine.CreateSession(ctx, c.who, spec)
	if err != nil {
		return answer{}, err
	}
	if s.small {
		return answer{body: smallCreated(session)}, nil
	}
	session.Isolation = wholeIsolation(session.Isolation)
	return answer{body: session}, nil
}

// minutes returns n minutes. It rounds a positive number up to at least 1 ms, because 0
// means the default.
func minutes(n float64) time.Duration {
	if n <= 0 {
		return 0
	}
	return max(time.Duration(n*float64(time.Minute)), time.Millisecond)
}

// terminateSession is the row of terminate_session.
func terminateSession() tool {
	return tool{
		name:        "terminate_session",
		title:       "Terminate a session",
		description: "Ends a session, its processes, files and variables. get_artifacts still returns artifacts of its runs.",
		hints:       hints{destructive: true},
		in:          input(need("session_id", typed("string"))),
		out:         output(need("killed", typed("string")), need("wiped", typed("boolean"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			id, err := c.args.session("session_id")
			if err != nil {
				return answer{}, err
			}
			if err := s.engine.TerminateSession(ctx, c.who, id); err != nil {
				return answer{}, err
			}
			return answer{body: struct {
				Killed sandboxmcp.SessionID `json:"killed"`
				Wiped  bool                 `json:"wiped"`
			}{id, true}}, nil
		},
	}
}

// bridgeData is the row of bridge_data.
func bridgeData() tool {
	return tool{
		name:  "bridge_data",
		title: "Pass values between sessions",
		description: "Passes JSON values to a session: those in data, or those that from_session has assigned to its bridge. " +
			"Programs read /run/bridge/KEY.json and put out /mnt/data/.bridge/KEY.json. Without to_session the namespace keeps them.",
		in: input(
			opt("data", about("object", "Values by key")),
			opt("from_session", typed("string")),
			opt("to_session", typed("string")),
			opt("keys", &jsonschema.Schema{Type: "array", Items: typed("string"), Description: "Keys to take from from_session; default: all"}),
		),
		out: output(
			need("bridged", typed("boolean")),
			need("data", typed("object")),
			need("keys", typed("array")),
			need("bytes", typed("integer")),
		),
		run: (*Server).bridgeData,
	}
}

func (s *Server) bridgeData(ctx context.Context, c *call) (answer, error) {
	b := sandboxmcp.Bridge{}
	var err error
	if b.From, err = c.args.session("from_session"); err != nil {
		return answer{}, err
	}
	if b.To, err = c.args.session("to_session"); err != nil {
		return answer{}, err
	}
	if b.Data, err = rawObject(c.request.Params.Arguments, "data"); err != nil {
		return answer{}, err
	}
	keys, _ := c.args["keys"].([]any)
	for _, k := range keys {
		key, _ := k.(string)
		b.Keys = append(b.Keys, key)
	}
	done, err := s.engine.Bridge(ctx, c.who, b)
	if err != nil {
		return answer{}, err
	}
	done.Keys = some(done.Keys)
	if done.Data == nil {
		done.Data = map[string]json.RawMessage{}
	}
	return answer{body: done}, nil
}

// rawObject returns the values of an argument that is an object, undecoded, so that numbers
// keep all digits. It returns nil if the argument is absent.
func rawObject(args json.RawMessage, name string) (map[string]json.RawMessage, error) {
	var sent, values map[string]json.RawMessage
	if err := json.Unmarshal(args, &sent); err != nil || sent[name] == nil {
		return nil, err
	}
	return values, json.Unmarshal(sent[name], &values)
}

// inspectState is the row of inspect_state.
func inspectState() tool {
	list := func() *jsonschema.Schema { return typed("array") }
	return tool{
		name:        "inspect_state",
		title:       "Inspect sessions and settings",
		description: "Lists sessions, limits, open domains and names of secrets; with session_id also the files in its /mnt/data.",
		hints:       hints{readOnly: true, idempotent: true},
		in: input(
			opt("namespace", fallback(typed("string"), `"default"`)),
			opt("session_id", typed("string")),
		),
		out: output(
			need("vault_keys", list()),
			need("sessions", list()),
			need("env", typed("object")),
			need("limits", typed("object")),
			need("egress", about("object", "allowed and pending")),
			need("files", list()),
		),
		run: (*Server).inspectState,
	}
}

func (s *Server) inspectState(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	state, err := s.engine.Inspect(ctx, c.who, id)
	if err != nil {
		return answer{}, err
	}
	if id != "" {
		state.Files = each(state.Files)
		for i := range state.Files {
			s.addLink(c.who.Namespace, id, &state.Files[i])
		}
	}
	if s.small {
		return answer{body: shownState(state, id != "")}, nil
	}
	state.VaultKeys = some(state.VaultKeys)
	state.Sessions = each(state.Sessions)
	for i := range state.Sessions {
		state.Sessions[i].Isolation = wholeIsolation(state.Sessions[i].Isolation)
	}
	if state.Env == nil {
		state.Env = map[string]any{}
	}
	state.Egress.Allowed, state.Egress.Pending = some(state.Egress.Allowed), each(state.Egress.Pending)
	state.Files = some(state.Files)
	return answer{body: state}, nil
}
