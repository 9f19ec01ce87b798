package server

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxmcp/sandboxmcp"
)

// hostTable lists the tools of host access.
func hostTable() []tool {
	return []tool{hostExec(), requestHostAccess(), listHostAccess(), hostFileRead(), hostFileWrite(), hostFileList(), hostFileCopy()}
}

// absolutePath is the schema of a path of the host.
func absolutePath() field { return need("path", typed("string")) }

func hostExec() tool {
	return tool{
		name: "host_exec", title: "Execute a host command",
		description: "Executes a command on the user's machine, outside of the sandbox, if a rule allows it. No shell, pipes, globs. If denied, call request_host_access.",
		hints:       hints{destructive: true, openWorld: true},
		in: input(
			need("command", typed("string")),
			opt("argv", &jsonschema.Schema{Type: "array", Items: typed("string"), Description: "Its words; command is a label"}),
			opt("timeout", fallback(atLeast(about("integer", "Seconds"), 1), "120")),
			opt("cwd", typed("string")),
		),
		out: output(need("success", typed("boolean")), need("stdout", typed("string")), need("stderr", typed("string")), need("exit_code", typed("integer"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			given, _ := c.args["argv"].([]any)
			argv := words(given)
			wait := c.args.number("timeout")
			if _, there := c.args["timeout"]; !there {
				wait = 120
			}
			_, stop := s.reportProgress(ctx, c.request, nil)
			defer stop()
			out, err := s.engine.ExecHost(ctx, c.who, sandboxmcp.HostCommand{
				Command: c.args.text("command"), Argv: argv, Timeout: time.Duration(wait * float64(time.Second)), Dir: c.args.text("cwd"),
			})
			return answer{body: out}, err
		},
	}
}

func requestHostAccess() tool {
	return tool{
		name: "request_host_access", title: "Ask for a command",
		description: "Asks a person to allow a host command. If pending, tell the user how_to_approve and call again. denied is final.",
		in: input(
			need("pattern", about("string", "The whole command; * stands for one word")),
			opt("reason", typed("string")),
			opt("wait_seconds", fallback(atMost(atLeast(typed("number"), 0), maxWaitSeconds), strconv.Itoa(maxWaitSeconds))),
		),
		out: output(
			need("pattern", typed("string")), need("approved", typed("boolean")), need("status", typed("string")), opt("approval_id", typed("string")), need("how_to_approve", typed("string")),
		),
		asks: true,
		run:  (*Server).requestHostAccess,
	}
}

func (s *Server) requestHostAccess(ctx context.Context, c *call) (answer, error) {
	return s.askPerson(ctx, c, question{
		ask: func(ctx context.Context, wait time.Duration) (sandboxmcp.AccessAnswer, error) {
			return s.engine.RequestHostAccess(ctx, c.who, sandboxmcp.HostAsk{Pattern: c.args.text("pattern"), Reason: c.args.text("reason"), Wait: wait})
		},
		find: func(ctx context.Context, id string) (sandboxmcp.Approval, string, error) {
			l, err := s.engine.HostAccess(ctx, c.who)
			if err != nil {
				return sandboxmcp.Approval{}, "", err
			}
			i := slices.IndexFunc(l.Pending, func(a sandboxmcp.HostApproval) bool { return a.ID == id })
			if i < 0 {
				return sandboxmcp.Approval{}, "", sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "the question was answered meanwhile").WithHint("call request_host_access again")
			}
			return l.Pending[i].Approval, hostText(l.Pending[i]), nil
		},
		decide: s.engine.DecideHostAccess, denied: sandboxmcp.CodeHostAccessDenied,
	})
}

func listHostAccess() tool {
	return tool{
		name: "list_host_access", title: "List host rules",
		description: "Lists host commands by state.",
		hints:       hints{readOnly: true},
		in:          input(),
		out:         output(need("allowed", typed("array")), need("approved", typed("array")), need("blocked", typed("array")), need("pending", typed("array"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			l, err := s.engine.HostAccess(ctx, c.who)
			return answer{body: hostLists{l.Allowed, l.Approved, l.Blocked, l.Pending, l.AutoApprove}}, err
		},
	}
}

// hostLists is the answer of list_host_access. It has the lists of the Python project.
type hostLists struct {
	Allowed     []string                  `json:"allowed"`
	Approved    []sandboxmcp.AccessGrant  `json:"approved"`
	Blocked     []string                  `json:"blocked"`
	Pending     []sandboxmcp.HostApproval `json:"pending"`
	AutoApprove bool                      `json:"auto_approve,omitempty"` // left out unless the operator has set host_auto_approve
}

func hostFileRead() tool {
	return tool{
		name: "host_file_read", title: "Read a host file",
		description: "Reads a file on the user's machine, in directories that the operator opened.",
		hints:       hints{readOnly: true},
		large:       true,
		in: input(
			absolutePath(),
			opt("max_bytes", fallback(atMost(atLeast(typed("integer"), 1), 10<<20), "50000")),
			opt("offset", fallback(atLeast(typed("integer"), 0), "0")),
		),
		out: output(need("content", typed("string")), need("truncated", typed("boolean")), need("size", typed("integer")), need("encoding", typed("string"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			out, err := s.engine.ReadHostFile(ctx, c.who, sandboxmcp.HostRead{Path: c.args.text("path"), MaxBytes: c.args.whole("max_bytes"), Offset: int64(c.args.whole("offset"))})
			return answer{body: out}, err
		},
	}
}

func hostFileWrite() tool {
	return tool{
		name: "host_file_write", title: "Write a host file",
		description: "Writes a file on the user's machine, as host_file_read.",
		alone:       "Writes a file on the user's machine, in directories that the operator opened.",
		hints:       hints{destructive: true, idempotent: true},
		in:          input(absolutePath(), need("content", typed("string")), opt("overwrite", fallback(typed("boolean"), "true"))),
		out:         output(need("path", typed("string")), need("bytes_written", typed("integer"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			out, err := s.engine.WriteHostFile(ctx, c.who, sandboxmcp.HostWrite{Path: c.args.text("path"), Content: c.args.text("content"), Overwrite: c.args.flagOr("overwrite", true)})
			return answer{body: out}, err
		},
	}
}

func hostFileList() tool {
	return tool{
		name: "host_file_list", title: "List a host directory",
		description: "Lists a directory, as host_file_read.",
		alone:       "Lists a directory on the user's machine, of those that the operator opened.",
		hints:       hints{readOnly: true},
		in:          input(absolutePath()),
		out:         output(need("listing", typed("string")), need("entries", typed("array"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			l, err := s.engine.ListHostFiles(ctx, c.who, c.args.text("path"))
			return answer{body: l}, err
		},
	}
}

func hostFileCopy() tool {
	return tool{
		name: "host_file_copy", title: "Copy a host file",
		description: "Copies a host file into a session or, without session_id, into the workspace.",
		in: input(
			need("source", typed("string")),
			opt("destination", fallback(about("string", "Name there"), `""`)),
			opt("session_id", typed("string")),
		),
		out: output(need("path", typed("string")), need("size", typed("integer")), need("sha256", typed("string"))),
		run: func(s *Server, ctx context.Context, c *call) (answer, error) {
			id, err := c.args.session("session_id")
			if err != nil {
				return answer{}, err
			}
			out, err := s.engine.CopyHostFile(ctx, c.who, sandboxmcp.HostCopy{Source: c.args.text("source"), Destination: c.args.text("destination"), SessionID: id})
			return answer{body: out}, err
		},
	}
}
