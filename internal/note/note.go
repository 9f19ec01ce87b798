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
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Run is a run that has ended, and what the caller can change about the next one.
type Run struct {
	Audience

	Result      *sandboxmcp.Result
	Limits      sandboxmcp.Limits      // those in force
	Ceilings    sandboxmcp.Limits      // the most that a caller may ask for
	Session     bool                   // the run was in a session
	Keeps       bool                   // that session keeps variables
	Anonymous   bool                   // the caller named no session, so that a new one is what it asked for
	Others      []sandboxmcp.SessionID // the caller's other sessions
	Open        int                    // how many domains it could reach
	Gone        bool                   // its sandbox ended with it, and so did its files
	SecretFiles bool                   // files were kept back because they hold a secret
	Offline     bool                   // it had no network, not even to open domains
	NoAsking    bool                   // no person can open a domain
	Another     sandboxmcp.Language    // the session's first run in this language, beside others; empty: it is not
	Files       Files
	Withheld    []string // keys of the vault that the run did not get; read for a MissingKey only
	Installs    bool     // packages can be installed
	Unset       string   // the variable of Variable, if the vault has no key of that name
	Sealed      bool     // the user can add keys to the vault at a terminal; read for Unset only
	Packages    []string // what Python programs can import besides its own library; read for a MissingModule only
	Newer       []string // packages of sets that were installed after the session was made; likewise

	Indexes        []string // hosts of the package indexes that pip and npm use; read if a host was refused
	OfflineSession bool     // no run of the session has a network, not even to open domains
	Source         Source   // read if the program could not be parsed
}

// Audience is the reader of a note or hint, and what it can call.
type Audience struct {
	Reader    sandboxmcp.Reader
	Unoffered []string // tools that the reader cannot call
}

// For returns the audience of a request.
func For(r *sandboxmcp.Request) Audience { return Audience{r.Reader, r.Unoffered} }

// Has reports whether the reader can call a tool.
func (a Audience) Has(tool string) bool {
	return (a.Reader == sandboxmcp.ReaderTools || a.Reader == sandboxmcp.ReaderPython) && !slices.Contains(a.Unoffered, tool)
}

// Asks reports whether the reader can ask for a domain with the tool request_egress.
func (a Audience) Asks() bool { return a.Reader == sandboxmcp.ReaderTools && a.Has("request_egress") }

// Of returns the note of a run; empty: its end is plain.
func Of(r Run) string {
	sentences := []string{r.newSession(), r.another(), r.reachedTasks(), r.end(), r.added(), r.leftOut(), r.cutResults()}
	if r.SecretFiles {
		sentences = append(sentences, SecretFiles)
	}
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), " ")
}

// parameter returns the name of a limit for the reader; empty: the reader cannot set it.
func (r *Run) parameter(tool, flag string) string {
	switch r.Reader {
	case sandboxmcp.ReaderTerminal:
		return flag
	case sandboxmcp.ReaderPython:
		return ""
	default:
		return tool
	}
}

// maxNamed is how many sessions a note names.
const maxNamed = 10

func (r *Run) newSession() string {
	res := r.Result
	if !res.SessionCreated || res.SessionID == nil || r.Anonymous {
		return ""
	}
	s := fmt.Sprintf("Session %s is new and empty.", *res.SessionID)
	if stopped(res.Status) { // its files and variables are told after that
		s = fmt.Sprintf("Session %s was new and empty.", *res.SessionID)
	}
	if len(r.Others) == 0 {
		return s
	}
	names := make([]string, 0, maxNamed)
	for _, id := range r.Others[:min(maxNamed, len(r.Others))] {
		names = append(names, string(id))
	}
	return s + " Existing sessions: " + strings.Join(names, ", ") + "."
}

// another says that each language of a session has its own variables.
func (r *Run) another() string {
	if r.Another == "" {
		return ""
	}
	return fmt.Sprintf("First run in %s: its variables are its own, files are shared.", r.Another)
}

// stopped reports whether a program was ended before its time.
func stopped(s sandboxmcp.Status) bool {
	switch s { //nolint:exhaustive // the others ended by themselves
	case sandboxmcp.StatusOutOfMemory, sandboxmcp.StatusTimedOut, sandboxmcp.StatusOutputLimit, sandboxmcp.StatusSignalled, sandboxmcp.StatusCancelled:
		return true
	}
	return false
}

// end says how the program ended.
func (r *Run) end() string {
	res := r.Result
	switch res.Status { //nolint:exhaustive // the others are told below, or by stderr
	case sandboxmcp.StatusOutOfMemory:
		return r.resources() + r.kept()
	case sandboxmcp.StatusTimedOut:
		return r.time() + r.kept()
	case sandboxmcp.StatusOutputLimit:
		return r.output() + r.kept()
	case sandboxmcp.StatusSignalled:
		return "The program was ended by the signal " + res.Signal + "." + r.kept()
	case sandboxmcp.StatusCancelled:
		return strings.TrimPrefix(r.kept(), " ")
	case sandboxmcp.StatusRejected:
		return r.syntax()
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
	name := r.parameter("max_ram_mb", "--ram")
	switch {
	case name == "":
		return what + " Read the data in parts."
	case r.Limits.MaxRAMMB >= r.Ceilings.MaxRAMMB:
		return what + " That is the most that a run may have: read the data in parts."
	case r.Session:
		if how := r.larger("max_ram_mb", "--ram"); how != "" {
			return fmt.Sprintf("%s Read the data in parts, or %s (up to %d).", what, how, r.Ceilings.MaxRAMMB)
		}
		return what + " Read the data in parts."
	default:
		return fmt.Sprintf("%s Pass %s (up to %d) or read the data in parts.", what, name, r.Ceilings.MaxRAMMB)
	}
}

// larger says how to make a session with a higher limit. The limits of a live session are fixed.
// Empty: the reader cannot make one.
func (r *Run) larger(tool, flag string) string {
	switch {
	case r.Reader == sandboxmcp.ReaderTerminal:
		return "make a session with a higher " + flag
	case r.Reader == sandboxmcp.ReaderREST:
		return "make a session with a higher limits." + tool + " by POST /sessions"
	case r.Has("create_session"):
		return "call create_session with a higher limits." + tool
	}
	return ""
}

// atMemory says where the program was stopped. Many processes share the limit, which their maker
// may not know.
func (r *Run) atMemory() string {
	if n := r.Result.Usage.PeakTasks; n > r.Limits.MaxProcesses {
		return fmt.Sprintf("Stopped at %d MiB, which up to %d processes and threads shared.", r.Limits.MaxRAMMB, n)
	}
	return fmt.Sprintf("Stopped at %d MiB.", r.Limits.MaxRAMMB)
}

// output says where too much output was stopped, and which limit that follows from.
func (r *Run) output() string {
	from := ""
	if name := r.parameter("max_output_bytes", "--max-output"); name != "" {
		from = fmt.Sprintf(", %d times %s", sandboxmcp.OutputKillFactor, name)
	}
	return fmt.Sprintf("Stopped at %s bytes of output%s. Write it to a file in /mnt/data and print a part.", grouped(r.Limits.MaxOutputBytes*sandboxmcp.OutputKillFactor), from)
}

// pollAbove is the time in seconds above which many clients give up a call.
const pollAbove = 45

func (r *Run) time() string {
	s := "Stopped after " + number(r.Limits.TimeoutSeconds) + " s."
	name := r.parameter("timeout_seconds", "--timeout")
	switch {
	case name == "":
		return s + " Do the work in parts."
	case r.Limits.TimeoutSeconds >= r.Ceilings.TimeoutSeconds:
		return s + " That is the most that a run may take: do the work in parts."
	}
	s += fmt.Sprintf(" Pass %s (up to %s)", name, number(r.Ceilings.TimeoutSeconds))
	if r.Has("get_artifacts") { // which fetches the result later
		s += fmt.Sprintf(", above %d s with background", pollAbove)
	}
	return s + "."
}

// kept says what of a session is left, after a run that was stopped.
func (r *Run) kept() string {
	switch {
	case r.Gone && r.Session:
		return " The session has ended, and its variables and files are gone."
	case r.Gone:
		return " The files that it made are gone."
	case !r.Session:
		return ""
	case len(r.Result.StateLostIn) > 0:
		names := make([]string, 0, len(r.Result.StateLostIn))
		for _, l := range r.Result.StateLostIn {
			names = append(names, string(l))
		}
		return " The session's variables of " + strings.Join(names, " and ") + " are gone, those of its other languages and its files are not."
	case r.Result.StateLost:
		return " The session's variables are gone, its files are not."
	case r.Keeps:
		return " Variables and files are kept."
	}
	return " Files are kept."
}

// cause explains an exception that says less than it could.
func (r *Run) cause() string {
	if s := r.foreign(); s != "" {
		return s
	}
	e := r.Result.Error
	if e == nil {
		return cmp.Or(r.network(), r.failedTasks(), r.node(), r.unset(), r.wall())
	}
	switch e.Name {
	case "MemoryError":
		return r.memory(fmt.Sprintf("Python got no more memory: the limit is %d MiB.", r.Limits.MaxRAMMB))
	case MissingModule:
		return r.missing(e.Value)
	case "EOFError":
		if e.Value == "EOF when reading a line" { // of input()
			return r.input()
		}
	case "NameError":
		if s := r.forgotten(); s != "" {
			return s
		}
	case MissingKey:
		if s := r.withheld(e.Value); s != "" {
			return s
		}
	}
	return cmp.Or(r.network(), r.tasks(), r.node(), r.unset(), r.wall())
}

// input says how a program gets its input.
func (r *Run) input() string {
	const said = "The program reads more input than it got: "
	switch {
	case r.Reader == sandboxmcp.ReaderTerminal:
		return said + "pass --stdin FILE."
	case r.Reader != sandboxmcp.ReaderPython:
		return said + "pass stdin."
	case r.Has("execute_code"):
		return said + "call execute_code with stdin, or write the values into the code."
	}
	return said + "write the values into the code."
}

// missingPackage finds the name of a package, or of a part of it. A program can write any name, and
// the note is the server's own words, so it quotes only single words.
var missingPackage = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(?:Error(?: \[\w+\])?: )?Cannot find (?:module|package) '((?:@[a-z0-9][\w.~-]{0,60}/)?[a-z][\w.~-]{0,60}(?:/[\w./~-]{0,60})?)'`)
})

// node explains a package that a Node.js program cannot load.
func (r *Run) node() string {
	if r.Result.Language != sandboxmcp.Node || r.Result.Status != sandboxmcp.StatusFailed {
		return ""
	}
	text := tail(r.Result.Stderr)
	if r.Result.Error != nil {
		text = r.Result.Error.Value
	}
	if m := missingPackage().FindStringSubmatch(text); m != nil {
		if how := r.install(m[1]); how != "" {
			return m[1] + " is not installed, only the modules of Node.js are." + how
		}
		return m[1] + " is not installed. Node programs have Node's own modules only; do without it."
	}
	return ""
}

// Python exceptions for which Of reads Run.Packages and Run.Withheld.
const (
	MissingModule = "ModuleNotFoundError"
	MissingKey    = "KeyError"
)

var missingModule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^No module named '([A-Za-z0-9_]{1,100})\b`) })

// maxPackages is how many characters of packages a note names.
const maxPackages = 300

// missing explains a Python module that cannot be imported.
func (r *Run) missing(text string) string {
	m := missingModule().FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	switch {
	case len(r.Newer) > 0:
		said := m[1] + " is not installed in this session."
		if len(r.Packages) > 0 {
			said += " Installed: " + listed(r.Packages) + "."
		}
		return said + " This session is older than the package set with " + listed(r.Newer) + ": make a new session to use it."
	case len(r.Packages) == 0:
		return m[1] + " is not installed, only Python's own library is." + r.installing(m[1]) + " The user can run `sandboxmcp setup science` for numpy, pandas, matplotlib and more."
	case slices.Contains(r.Packages, m[1]) && strings.HasPrefix(text, m[0]+"."): // a part of it is missing
		return ""
	}
	return m[1] + " is not installed. Installed: " + listed(r.Packages) + "." + r.installing(m[1])
}

// listed joins names of packages, up to maxPackages characters.
func listed(packages []string) string {
	names := strings.Join(packages, ", ")
	if len(names) > maxPackages {
		names = names[:strings.LastIndex(names[:maxPackages], ",")] + " and more"
	}
	return names
}

// install says how a package can be installed; empty: it cannot.
func (r *Run) install(name string) string {
	switch {
	case !r.Installs, r.Reader == sandboxmcp.ReaderPython:
		return ""
	case r.Reader == sandboxmcp.ReaderTerminal:
		return " Install it with `sandboxmcp install " + string(r.Result.Language) + " " + sandboxmcp.ShellQuote(name) + "`."
	case r.Reader == sandboxmcp.ReaderREST:
		return " Install it by POST /install, or pass it in packages."
	case !r.Has("install_package"):
		return " Pass it in packages."
	}
	return " Call install_package with language " + string(r.Result.Language) + ", or pass it in packages."
}

// offline matches what Python, Node.js, curl, pip and npm print if nothing can be reached.
var offline = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`name resolution|Network is unreachable|Name or service not known|EAI_AGAIN|ENETUNREACH|ENOTFOUND|Could not resolve host|getaddrinfo`)
})

// network explains attempts to reach a host that is not open.
func (r *Run) network() string {
	if s := cmp.Or(r.index(), r.noNetwork()); s != "" {
		return s
	}
	if denied := r.Result.Network.Denied; len(denied) > 0 {
		if s := r.unaskable(denied[0]); s != "" {
			return s
		}
		d := sandboxmcp.Domain{Host: sandboxmcp.Host(denied[0].Host)}
		if port := denied[0].Port; port != 0 && !d.MatchPort(port) {
			d.Port = port
		}
		return fmt.Sprintf("No connection to %s: the domain is not open. %s", denied[0].Host, r.ask(d.String()))
	}
	if failed := r.Result.Network.Failed; len(failed) > 0 && r.Result.Status != sandboxmcp.StatusCompleted {
		return fmt.Sprintf("No connection to %s, which is open: %s.", failed[0].Host, failed[0].Reason)
	}
	if r.Open == 0 && r.Result.Status == sandboxmcp.StatusFailed && offline().MatchString(tail(r.Result.Stderr)) {
		return "Probably a connection was tried: no domain is open. " + r.ask("")
	}
	return ""
}

// ask says how a host is opened; empty: which one was tried is not known.
func (r *Run) ask(host string) string {
	switch {
	case r.Offline:
		return "Runs of this tool have no network; retries do not help."
	case r.NoAsking:
		return "Only the operator's settings open domains; retries do not help."
	case r.Reader == sandboxmcp.ReaderTerminal:
		return "Open it with `sandboxmcp egress " + cmp.Or(host, "HOST") + "`, or pass --allow-domain."
	case r.Reader == sandboxmcp.ReaderREST:
		return "Ask for it by POST /approvals; an operator answers by POST /approvals/{id}. Retries do not help."
	case !r.Asks():
		return "The user can open it with `sandboxmcp egress " + cmp.Or(host, "HOST") + "`; retries do not help."
	case host == "":
		return "Call request_egress with the host name; retries do not help."
	}
	return "Call request_egress with it; retries do not help."
}

// tailBytes is how much of stderr is looked at.
const tailBytes = 16 << 10

func tail(s string) string { return s[max(0, len(s)-tailBytes):] }

// reachedTasks says that as many processes and threads ran at once as may.
func (r *Run) reachedTasks() string {
	if r.Session || !r.full() { // the peak of a session may be that of an earlier run
		return ""
	}
	return fmt.Sprintf("The limit of %s was reached: %s", r.taskLimit(), r.moreTasks())
}

// full reports whether the task limit was reached.
func (r *Run) full() bool {
	return r.Result.Usage.MaxTasks > 0 && r.Result.Usage.PeakTasks >= r.Result.Usage.MaxTasks
}

// tasks explains the failure of a run in a session that has reached the task limit.
func (r *Run) tasks() string {
	if !r.Session || !r.full() {
		return ""
	}
	return fmt.Sprintf("Probably the limit of %s was reached: %s", r.taskLimit(), r.moreTasks())
}

// taskLimit names the limit that the kernel holds, and the one that the caller sets.
func (r *Run) taskLimit() string {
	return fmt.Sprintf("%d processes and threads (%d for each of %s %d)", r.Result.Usage.MaxTasks, sandboxmcp.TasksPerProcess,
		cmp.Or(r.parameter("max_processes", "--processes"), "the"), r.Limits.MaxProcesses)
}

// moreTasks says what helps if a program needs more of them.
func (r *Run) moreTasks() string {
	name := r.parameter("max_processes", "--processes")
	switch {
	case name == "":
		return "start fewer at once."
	case r.Session:
		if how := r.larger("max_processes", "--processes"); how != "" {
			return "start fewer at once, or " + how + "."
		}
		return "start fewer at once."
	}
	return "pass " + name + "."
}

// failedTasks is tasks for a program that failed without an exception that is known.
func (r *Run) failedTasks() string {
	if r.Result.Status != sandboxmcp.StatusFailed {
		return ""
	}
	return r.tasks()
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
	s := fmt.Sprintf("The first %s bytes of %s are kept: write the rest to a file in /mnt/data", grouped(r.Limits.MaxOutputBytes), name)
	if more := r.parameter("max_output_bytes", "--max-output"); more != "" {
		s += ", or pass " + more
	}
	return s + "."
}

// cutResults says that values that the program showed are missing.
func (r *Run) cutResults() string {
	if r.Result.Metadata["results_truncated"] != true {
		return ""
	}
	return fmt.Sprintf("Only the first %d values that the program showed are in results: show fewer, or write them to files in /mnt/data.", len(r.Result.Results))
}

// Busy says what helps if a session is busy with the request id; empty: with one that has no id.
// background: its caller did not wait for it.
func Busy(a Audience, id sandboxmcp.RequestID, background bool) string {
	switch {
	case id == "", a.Reader == sandboxmcp.ReaderPython:
		return "Wait until its run has ended."
	case a.Reader == sandboxmcp.ReaderTerminal:
		return fmt.Sprintf("Request %s is running in it: wait, or end it with `sandboxmcp cancel %s`.", id, id)
	case a.Reader == sandboxmcp.ReaderREST:
		return fmt.Sprintf("Request %s is running in it: wait for it by GET /execute/%s/status?wait_seconds=45, or end it by DELETE /jobs/%s.", id, id, id)
	case !a.Has("get_artifacts"):
		return fmt.Sprintf("Request %s is running in it: wait until it has ended.", id)
	case background:
		return fmt.Sprintf("Request %s is running in it: call get_artifacts with it and wait_seconds, or with cancel to end it.", id)
	}
	return fmt.Sprintf("Request %s is running in it: call get_artifacts with it and wait_seconds.", id)
}

// Bridge says how a session puts out the value of a key.
func Bridge(key string) string {
	return fmt.Sprintf(`In that session: import sandbox; sandbox.bridge[%[1]q] = value (JSON; a DataFrame as df.to_dict("records")). Node: require("sandbox").bridge[%[1]q] = value.`, key)
}

// SecretFiles is said if files were kept back because they hold a secret.
const SecretFiles = "Files that hold a secret are kept back. That is not a failure."

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// grouped writes a number with a comma after each three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
