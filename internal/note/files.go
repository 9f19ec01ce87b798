package note

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Files says what was kept of the files that a run has left.
type Files struct {
	Kept    int
	Beyond  int  // files that were not kept because they are too many, or too large together
	Partial bool // there are more, which were not counted
	Large   bool // a file was not kept because of its own size
}

// leftOut says that not all files were kept, and what helps.
func (r *Run) leftOut() string {
	f := r.Files
	var said []string
	if f.Beyond > 0 || f.Partial {
		least := ""
		if f.Partial {
			least = "at least "
		}
		said = append(said, fmt.Sprintf("Kept %s of %s%s files: put them into one archive in /mnt/data.", grouped(int64(f.Kept)), least, grouped(int64(f.Kept+f.Beyond))))
	}
	if f.Large && r.Reader != sandboxmcp.ReaderPython { // its answer lists them
		said = append(said, r.large())
	}
	return strings.Join(said, " ")
}

// large says where a file is that is too large to be kept with the result.
func (r *Run) large() string {
	switch {
	case r.Session && r.Reader == sandboxmcp.ReaderTerminal:
		return "Files above 32 MiB are in the session only: `sandboxmcp files read` gives them."
	case r.Session && r.Reader == sandboxmcp.ReaderREST:
		return "Files above 32 MiB are in the session only: GET /files/" + r.session() + "/NAME returns them."
	case r.Session && r.Has("sandbox_list_artifacts"):
		return "Files above 32 MiB are in the session only: sandbox_list_artifacts has their download_url."
	case r.Session:
		return "Files above 32 MiB are in the session only."
	}
	return "Files above 32 MiB are not kept: make them in a session, where they stay."
}

// session returns the id of the run's session.
func (r *Run) session() string {
	if r.Result.SessionID == nil {
		return "SESSION"
	}
	return string(*r.Result.SessionID)
}

// forgotten explains a name that an earlier run of a session has defined, in a session that keeps
// only files.
func (r *Run) forgotten() string {
	switch {
	case !r.Session || r.Keeps || r.Result.SessionCreated:
		return ""
	case r.Reader == sandboxmcp.ReaderTools && r.Has("sandbox_upload_file") && r.Has("sandbox_run_python") && r.Has("execute_code"):
		return "Sessions of sandbox_upload_file and sandbox_run_python keep files, not variables: define it again, or use a session that execute_code has made."
	}
	return "This session keeps files, not variables: define it again."
}

// withheld explains a variable that the program expected from the vault.
func (r *Run) withheld(value string) string {
	key := strings.Trim(value, "'\"")
	if !slices.Contains(r.Withheld, key) {
		return ""
	}
	if r.Reader == sandboxmcp.ReaderPython && r.Has("execute_code") {
		return "Programs of sandbox_run_python get no secrets: run it by execute_code with this session_id, which has " + key + "."
	}
	return "This run gets no secrets, so that " + key + " is not set."
}
