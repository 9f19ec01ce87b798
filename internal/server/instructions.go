package server

import (
	"fmt"
	"strings"
)

// Bounds of lists in the instructions, which have at most 1,900 characters in all.
const (
	packagesTold = 160
	hostsTold    = 80
)

// listed joins names up to room characters.
func listed(names []string, room int) string {
	var b strings.Builder
	for i, n := range names {
		if b.Len()+len(n)+2 > room {
			return b.String() + " and more"
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(n)
	}
	return b.String()
}

// packages says what Python programs can import, and how others are installed. known is false if
// that was not found out in time.
func (f facts) packages(names []string, known bool) string {
	switch {
	case len(names) > 0:
		return "Python packages: " + listed(names, packagesTold) + "." + f.installs("others") + "\n"
	case known:
		return "Python has its own library only. The user can run `sandboxmcp setup science` for numpy, pandas, matplotlib and more." + f.installs("others") + "\n"
	case !f.only5 && f.has("list_runtimes"):
		return "list_runtimes names the Python packages." + f.installs("others") + "\n"
	case f.installs("packages") != "":
		return strings.TrimPrefix(f.installs("packages"), " ") + "\n"
	}
	return ""
}

// installs names the tool that installs packages; empty: the server has no such tool. what is the
// subject: "others" after a sentence on installed packages, or "packages".
func (f facts) installs(what string) string {
	who := ""
	switch {
	case f.only5:
		return ""
	case f.NoInstall:
		return " No " + what + " can be installed."
	case f.AskPkg:
		who = " if a person approves"
	}
	switch {
	case f.has("install_package"):
		return " install_package gets " + what + who + "."
	case f.has("execute_code"):
		return " execute_code gets " + what + " by its argument packages" + who + "."
	}
	return ""
}

// instructions describes the workflow to a model. packages is the sentence on packages.
func (f facts) instructions(packages string) string {
	if f.only5 {
		return f.how.Paste(f.instructionsFive(packages))
	}
	return f.how.Paste(f.instructionsAll(packages))
}

// instructionsAll is instructions for the tools that are offered, of all tools.
func (f facts) instructionsAll(packages string) string {
	runs := f.has("execute_code") || f.has("sandbox_run_python")
	lines := []string{f.purpose() + "\n", f.execution(), f.files()}
	if runs {
		lines = append(lines, strings.TrimSuffix(packages, "\n"), f.data())
	}
	lines = append(lines, f.network())
	if f.has("execute_code") {
		lines = append(lines, f.secrets())
	}
	lines = append(lines, f.background(), f.limits(), f.failures())
	var b strings.Builder
	for _, l := range lines {
		if l != "" {
			b.WriteString(l + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// purpose names the purpose of the tools.
func (f facts) purpose() string {
	switch {
	case f.has("execute_code"):
		return "Runs Python, Node.js and shell programs in a sandbox."
	case f.has("sandbox_run_python"):
		return "Runs Python programs in a sandbox."
	}
	var said []string
	if f.any("web") {
		said = append(said, "Reads the public web.")
	}
	if f.any("host") {
		said = append(said, "Works on the machine of the server, as far as a person allows it.")
	}
	if f.any("execution", "sessions", "monitoring", "security", "files") {
		said = append(said, "Shows and manages sandboxes, sessions and runs.")
	}
	return strings.Join(append(said, "No tool here runs a program in a sandbox."), " ")
}

// execution says how to run programs and what sessions keep.
func (f facts) execution() string {
	if !f.has("execute_code") {
		if f.has("sandbox_run_python") {
			return "Read note: it says what helps."
		}
		return ""
	}
	from, until := "any id that you choose", ""
	if f.has("create_session") {
		from = "from create_session, or " + from
	}
	if f.has("terminate_session") {
		until = "terminate_session or "
	}
	return "execute_code runs a program. With session_id (" + from + ") variables, files and background processes are kept for the next call, also after an error, timeout or cancel, until " + until + f.life() + " without use. " +
		"Without session_id every run is new. Read note: it says what helps."
}

// files describes the tools for files and values.
func (f facts) files() string {
	var said []string
	switch {
	case f.has("sandbox_run_python") && f.has("sandbox_upload_file"):
		said = append(said, "sandbox_run_python is for Python on files of sandbox_upload_file"+f.keeps()+".")
	case f.has("sandbox_run_python"):
		said = append(said, "sandbox_run_python runs Python"+f.keeps()+".")
	case f.has("sandbox_upload_file") && f.has("execute_code"):
		said = append(said, "sandbox_upload_file puts a file into a session"+f.keeps()+".")
	}
	if f.has("sandbox_read_artifact") {
		said = append(said, "sandbox_read_artifact reads a file, also in parts.")
	}
	if f.has("bridge_data") {
		said = append(said, "bridge_data passes values between sessions.")
	}
	return strings.Join(said, " ")
}

// keeps says which state the sessions of the five tools keep.
func (f facts) keeps() string {
	switch {
	case f.five.Stateful:
		return ": its sessions keep files and variables"
	case f.has("execute_code"):
		return ": its sessions keep files, not variables, also for execute_code"
	}
	return ": its sessions keep files, not variables"
}

// data says where files are, and how the user gets them.
func (f facts) data() string {
	var give []string
	if f.links {
		give = append(give, "download_url")
	}
	if f.has("execute_code") {
		give = append(give, "how_to_get")
	}
	text := "/mnt/data, the working directory, is what the user gets; /tmp is scratch."
	disk := "You cannot write to the user's disk"
	if f.Host && (f.has("host_file_write") || f.has("host_file_copy")) {
		disk = ""
	}
	switch pass := strings.Join(give, " or "); {
	case pass != "" && disk != "":
		text += " " + disk + ": pass on " + pass + "."
	case pass != "":
		text += " Pass on " + pass + "."
	case disk != "":
		text += " " + disk + "."
	}
	return text + " Pictures come back by themselves. The rest of long output is at run://<request_id>/stdout."
}

// network says which hosts programs reach.
func (f facts) network() string {
	switch {
	case f.has("execute_code"):
	case f.has("sandbox_run_python") && !f.five.Network:
		return "Programs have no network."
	case f.has("sandbox_run_python"):
	case f.has("request_egress") && f.NoAsking:
		return "No domain can be opened."
	case f.has("request_egress"):
		return "request_egress asks a person to open a domain to programs. " + pending
	default:
		return ""
	}
	open := ""
	if len(f.Hosts) > 0 {
		open = "Open domains: " + listed(f.Hosts, hostsTold) + ". "
	}
	switch {
	case f.NoAsking && open != "":
		return open + "No others can be opened."
	case f.NoAsking:
		return "There is no network, and none can be opened."
	case !f.has("request_egress"):
		return open + "No other network until the user opens a domain with `sandboxmcp egress DOMAIN`; retries do not help."
	}
	return open + "No other network until a person opens a domain: call request_egress with it; retries do not help. " + pending
}

// pending tells a model how to pass on a question that a person has not answered.
const pending = "If pending, pass on how_to_approve word for word."

// secrets says how programs get secrets, and how output shows them.
func (f facts) secrets() string {
	if f.NoSecrets {
		return ""
	}
	return "Keys of the vault are environment variables of execute_code alone (os.environ[\"API_KEY\"]). Values show as ***REDACTED***, and files that hold one are kept back. That is not a failure."
}

// background says how to start long runs.
func (f facts) background() string {
	if !f.has("execute_code") || !f.has("get_artifacts") {
		return ""
	}
	return "Above 45 s pass background: true, then call get_artifacts with wait_seconds until it ends."
}

// limits lists the limits of runs.
func (f facts) limits() string {
	switch {
	case f.has("execute_code"), f.has("create_session"):
		return "Defaults: " + limitsText(f.Limits) + ". At most: " + limitsText(f.Ceilings) + "."
	case f.has("sandbox_run_python"):
		return "A run may take " + limitsOfFive(f) + "."
	}
	return ""
}

// failures distinguishes failed calls from failed programs.
func (f facts) failures() string {
	call := "A failed call has error, message and hint."
	switch {
	case f.has("execute_code"):
		return "failed: the program ended with an error, see stderr. rejected: it did not run. " + call
	case f.has("sandbox_run_python"):
		return "A program that failed is a normal result: read exit_code and stderr. " + call
	}
	return call
}

// instructionsFive is instructions for the five tools of mcp-code-sandbox.
func (f facts) instructionsFive(packages string) string {
	network := "has no network"
	if f.five.Network {
		network = "reaches open domains only"
	}
	keeps := "Files are kept from run to run, variables are not."
	if f.five.Stateful {
		keeps = "Files and variables are kept from run to run."
	}
	return `Runs Python in a sandbox that ` + network + `.

sandbox_upload_file puts a file into /mnt/data, the working directory, and returns a session_id. sandbox_run_python runs code in that session, or in a new one. ` + keeps + ` After exit_code 0, artifacts lists the new or changed files directly in /mnt/data. Pictures come back by themselves. Read note: it says what helps.
` + packages + `sandbox_list_artifacts lists files, sandbox_read_artifact returns one, also in parts. download_url is for the user's browser.
sandbox_close_session deletes the session. It also ends after ` + f.life() + ` without use.
A run may take ` + limitsOfFive(f) + `.
A program that failed is a normal result: read exit_code and stderr. A failed call has error, message and hint.`
}

// limitsOfFive lists the limits of a run of the five tools.
func limitsOfFive(f facts) string {
	l := f.five.Limits.Over(f.Limits)
	return fmt.Sprintf("%s s and %d MiB", digits(l.TimeoutSeconds), l.MaxRAMMB)
}
