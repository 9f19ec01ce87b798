// Package note says in a sentence what a run's end means for its caller, and which parameter or
// tool helps. What was observed is said as a fact; what is only likely begins with "Probably".
package note

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Run is a run that has ended, and what the caller can change about the next one.
type Run struct {
	Result   *sandboxmcp.Result
	Limits   sandboxmcp.Limits      // those in force
	Ceilings sandboxmcp.Limits      // the most that a caller may ask for
	Session  bool                   // the run was in a session
	Keeps    bool                   // that session keeps variables
	Others   []sandboxmcp.SessionID // the caller's other sessions
	Open     int                    // how many domains it could reach
	Packages []string               // what Python programs can import besides its own library; read for a MissingModule only
}

// Of returns the note of a run; empty: its end is plain.
func Of(r Run) string {
	sentences := []string{r.newSession(), r.end()}
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), " ")
}

// maxNamed is how many sessions a note names.
const maxNamed = 10

func (r *Run) newSession() string {
	res := r.Result
	if !res.SessionCreated || res.SessionID == nil {
		return ""
	}
	s := fmt.Sprintf("Session %s is new and empty.", *res.SessionID)
	if len(r.Others) == 0 {
		return s
	}
	names := make([]string, 0, maxNamed)
	for _, id := range r.Others[:min(maxNamed, len(r.Others))] {
		names = append(names, string(id))
	}
	return s + " Existing sessions: " + strings.Join(names, ", ") + "."
}

// end says how the program ended.
func (r *Run) end() string {
	res := r.Result
	switch res.Status { //nolint:exhaustive // the others are told below, or by stderr
	case sandboxmcp.StatusOutOfMemory:
		return r.memory(fmt.Sprintf("Stopped at %d MiB.", r.Limits.MaxRAMMB)) + r.kept()
	case sandboxmcp.StatusTimedOut:
		return r.time() + r.kept()
	case sandboxmcp.StatusOutputLimit:
		return fmt.Sprintf("Stopped at %s bytes of output. Write it to a file in /mnt/data and print a part.", grouped(r.Limits.MaxOutputBytes*sandboxmcp.OutputKillFactor)) + r.kept()
	case sandboxmcp.StatusSignalled:
		return "The program was ended by the signal " + res.Signal + "." + r.kept()
	case sandboxmcp.StatusRejected, sandboxmcp.StatusCancelled:
		return ""
	}
	if s := r.cause(); s != "" {
		return s
	}
	if s := r.cut(); s != "" {
		return s
	}
	if res.StateLost {
		return strings.TrimPrefix(r.kept(), " ")
	}
	return ""
}

// memory adds to what happened how a caller gets more memory.
func (r *Run) memory(what string) string {
	switch {
	case r.Limits.MaxRAMMB >= r.Ceilings.MaxRAMMB:
		return what + " That is the most that a run may have: read the data in parts."
	case r.Session:
		return fmt.Sprintf("%s Read the data in parts, or make a session with a higher max_ram_mb (up to %d).", what, r.Ceilings.MaxRAMMB)
	default:
		return fmt.Sprintf("%s Pass max_ram_mb (up to %d) or read the data in parts.", what, r.Ceilings.MaxRAMMB)
	}
}

// pollAbove is the time in seconds above which many clients give up a call.
const pollAbove = 45

func (r *Run) time() string {
	s := "Stopped after " + number(r.Limits.TimeoutSeconds) + " s."
	if r.Limits.TimeoutSeconds >= r.Ceilings.TimeoutSeconds {
		return s + " That is the most that a run may take: do the work in parts."
	}
	return fmt.Sprintf("%s Pass timeout_seconds (up to %s), above %d s with background.", s, number(r.Ceilings.TimeoutSeconds), pollAbove)
}

// kept says what of a session is left, after a run that was stopped.
func (r *Run) kept() string {
	switch {
	case !r.Session:
		return ""
	case r.Result.StateLost:
		return " The session's variables are gone, its files are not."
	case r.Keeps:
		return " Variables and files are kept."
	}
	return " Files are kept."
}

// cause explains an exception that says less than it could.
func (r *Run) cause() string {
	e := r.Result.Error
	if e == nil {
		return r.network()
	}
	switch e.Name {
	case "MemoryError":
		return r.memory(fmt.Sprintf("Python got no more memory: the limit is %d MiB.", r.Limits.MaxRAMMB))
	case MissingModule:
		return r.missing(e.Value)
	}
	return cmp.Or(r.network(), r.tasks())
}

// MissingModule is the Python exception for which Of reads Run.Packages.
const MissingModule = "ModuleNotFoundError"

var missingModule = regexp.MustCompile(`^No module named '([A-Za-z0-9_]+)`)

// maxPackages is how many characters of packages a note names.
const maxPackages = 300

// missing explains a Python module that cannot be imported.
func (r *Run) missing(text string) string {
	m := missingModule.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	if len(r.Packages) == 0 {
		return m[1] + " is not installed, only Python's own library is. The user can run `sandboxmcp setup science` for numpy, pandas, matplotlib and more."
	}
	names := strings.Join(r.Packages, ", ")
	if len(names) > maxPackages {
		names = names[:strings.LastIndex(names[:maxPackages], ",")] + " and more"
	}
	return m[1] + " is not installed. Installed: " + names + "."
}

// offline matches what Python, Node.js, curl, pip and npm print if nothing can be reached.
var offline = regexp.MustCompile(`name resolution|Network is unreachable|Name or service not known|EAI_AGAIN|ENETUNREACH|ENOTFOUND|Could not resolve host|getaddrinfo`)

// network explains attempts to reach a host that is not open.
func (r *Run) network() string {
	if denied := r.Result.Network.Denied; len(denied) > 0 {
		return fmt.Sprintf("No connection to %s: the domain is not open. Call request_egress with it; retries do not help.", denied[0].Host)
	}
	if r.Open == 0 && r.Result.Status == sandboxmcp.StatusFailed && offline.MatchString(tail(r.Result.Stderr)) {
		return "Probably a connection was tried: no domain is open. Call request_egress with the host name; retries do not help."
	}
	return ""
}

// tailBytes is how much of stderr is looked at.
const tailBytes = 16 << 10

func tail(s string) string { return s[max(0, len(s)-tailBytes):] }

// tasks explains that no further process or thread could be made.
func (r *Run) tasks() string {
	if r.Result.Usage.PeakTasks < r.Result.Usage.MaxTasks || r.Result.Usage.MaxTasks == 0 {
		return ""
	}
	return fmt.Sprintf("Probably more than %d processes were tried: pass max_processes.", r.Limits.MaxProcesses)
}

// cut says that a stream was longer than what is kept of it.
func (r *Run) cut() string {
	name := "stdout"
	switch {
	case r.Result.StdoutTruncated:
	case r.Result.StderrTruncated:
		name = "stderr"
	default:
		return ""
	}
	return fmt.Sprintf("The first %s bytes of %s are kept: write the rest to a file in /mnt/data, or pass max_output_bytes.", grouped(r.Limits.MaxOutputBytes), name)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// grouped writes a number with a comma after each three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
