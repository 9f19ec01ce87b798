package server

import (
	"github.com/google/jsonschema-go/jsonschema"
)

// fiveTable lists the tools of mcp-code-sandbox. Their names, types, defaults, annotations
// and results are those of that program.
func fiveTable(f facts) []tool {
	return []tool{uploadFile(f), runPython(f), readArtifact(f), listArtifacts(), closeSession()}
}

// anySession is the argument session_id of a tool that makes a session if it is null or unknown.
func anySession() *jsonschema.Schema {
	s := typed("string", "null")
	s.Description = "null or a new name makes a session"
	return fallback(s, "null")
}

// uploadFile is the row of sandbox_upload_file.
func uploadFile(f facts) tool {
	return tool{
		name:        "sandbox_upload_file",
		title:       "Upload File to Sandbox",
		description: "Puts a file of at most " + size(f.five.MaxUploadBytes) + " into /mnt/data of a session. Pass the returned session_id to sandbox_run_python.",
		in: input(
			need("filename", about("string", "Name without directories, of A-Z a-z 0-9 . _ -")),
			opt("content_base64", about("string", "Standard base64")),
			opt("content", about("string", "Text, in place of content_base64")),
			opt("session_id", anySession()),
			opt("overwrite", fallback(about("boolean", "Replace a file of that name"), "false")),
		),
		out: output(need("session_id", typed("string")), need("path", typed("string"))),
		run: (*Server).uploadFile,
	}
}

// runPython is the row of sandbox_run_python.
func runPython(f facts) tool {
	network, keeps := "without network", "Files in /mnt/data are kept from run to run; every run is a new interpreter. "
	if f.five.Network {
		network = "that reaches open domains only"
	}
	if f.five.Stateful {
		keeps = "Files in /mnt/data and variables are kept from run to run. "
	}
	return tool{
		name:  "sandbox_run_python",
		title: "Run Python in Sandbox",
		description: "Runs Python in a session " + network + ". " + keeps +
			"Print values to see them, at most about 30,000 characters. artifacts are the files that a run with exit_code 0 has made or changed.",
		in: input(need("code", about("string", "At most "+size(int64(f.five.MaxCodeBytes)))), opt("session_id", anySession())),
		out: output(
			need("session_id", typed("string")),
			need("run_id", typed("string")),
			need("exit_code", typed("integer")),
			need("stdout", typed("string")),
			need("stderr", typed("string")),
			need("stdout_truncated", typed("boolean")),
			need("stderr_truncated", typed("boolean")),
			need("artifacts", typed("array")),
			need("duration_ms", typed("integer")),
			need("status", typed("string")),
			need("isolation", typed("object", "string", "null")),
		),
		run: (*Server).runPython,
	}
}

// readArtifact is the row of sandbox_read_artifact.
func readArtifact(f facts) tool {
	return tool{
		name:        "sandbox_read_artifact",
		large:       true,
		title:       "Read Artifact from Sandbox",
		description: "Returns a file of a session, or a part, at most " + size(f.five.MaxReadBytes) + " at once; pictures are also shown. Hosts cut long answers: read large files in parts or with code.",
		hints:       hints{readOnly: true, idempotent: true},
		in: input(
			need("session_id", typed("string")),
			need("path", about("string", "Absolute, below /mnt/data")),
			opt("as", fallback(oneOf(about("string", "base64, text, or image: the picture alone"), "base64", "text", "image"), `"base64"`)),
			opt("offset", atLeast(about("integer", "First byte"), 0)),
			opt("max_bytes", atLeast(typed("integer"), 1)),
		),
		out: output(
			need("path", typed("string")),
			need("filename", typed("string")),
			need("mime_type", typed("string")),
			need("size_bytes", typed("integer")),
			opt("content_base64", typed("string")),
			opt("text", typed("string")),
			opt("next_offset", about("integer", "Set if the file goes on")),
		),
		run: (*Server).readArtifact,
	}
}

// listArtifacts is the row of sandbox_list_artifacts.
func listArtifacts() tool {
	return tool{
		name:        "sandbox_list_artifacts",
		title:       "List Sandbox Artifacts",
		description: "Lists the files directly in /mnt/data of a session, including uploads, with size, type and download_url.",
		hints:       hints{readOnly: true, idempotent: true},
		in:          input(need("session_id", typed("string"))),
		out:         output(need("artifacts", typed("array"))),
		run:         (*Server).listArtifacts,
	}
}

// closeSession is the row of sandbox_close_session.
func closeSession() tool {
	return tool{
		name:        "sandbox_close_session",
		title:       "Close Sandbox Session",
		description: "Ends a session and deletes its files. Read the files that you need first.",
		hints:       hints{destructive: true},
		in:          input(need("session_id", typed("string"))),
		out:         output(need("status", oneOf(typed("string"), "closed"))),
		run:         (*Server).closeSession,
	}
}
