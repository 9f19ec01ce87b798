// Package probe tries to get out of a sandbox, in the way of hostile programs. Its programs do
// no harm if they succeed: they read files, open sockets and signal processes that the caller
// made for them, ask for rights in a child that ends at once, and stop at a bound far below
// what a machine has. So they may also run without any wall, which shows that they notice one
// that is missing.
//
// A probe held only if it reports a refusal that a wall gives, or if its run was ended by the
// limit that it tries. No report, or another one, never counts as held. What the machine itself
// can see (a connection, a file, a process that is left) goes before the program's report.
package probe

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Finding is the outcome of a probe.
type Finding struct {
	Name     string `json:"name"`     // such as "host file"
	Tried    string `json:"tried"`    // what the program tried
	Held     bool   `json:"held"`     // it was refused, or ended
	Observed string `json:"observed"` // how, or what happened instead
}

// one is a probe of a program. Its name is that of its report, too.
type one struct {
	name, tries string
	refusals    []string // reports of a refusal
	ends        []sandboxmcp.Status
	seen        func(s *Site) string // what the machine saw of a success; may be nil
	well        string               // what is observed if it held; empty: the report
}

// Program is a program with probes.
type Program struct {
	Name   string
	code   string
	limits sandboxmcp.Limits
	probes []one
}

//go:embed walls.py
var walls string

//go:embed limits.py
var limits string

// Reports of refusals: of the kernel's checks of rights, and of what is not there.
var (
	denied = []string{"EPERM", "EACCES", "ENOSYS"}
	absent = []string{"ENOENT", "EACCES", "EPERM", "ENOTDIR", "ELOOP"}
	alone  = []string{"ESRCH", "EPERM", "another process"}
	offnet = []string{"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EAFNOSUPPORT", "EPERM", "EACCES", "ENOENT"}
)

// Programs returns the programs in the order in which they run. The first shows whether a file
// of the machine can be read.
func Programs() []Program {
	return append([]Program{wallProgram()}, limitPrograms()...)
}

// wallProgram has the probes of what a program may do and reach.
func wallProgram() Program {
	return Program{Name: "walls", code: walls, probes: []one{
		{name: "host file", tries: "to read a file of this machine, by several paths", refusals: absent},
		{name: "host write", tries: "to write into a directory of this machine that everybody may write to", refusals: append(slices.Clone(absent), "EROFS"), seen: (*Site).written},
		{name: "host modes", tries: "to let everybody write to a file of this machine, and to change its times and attributes", refusals: append(slices.Clone(absent), "EROFS", "EOPNOTSUPP", "unchanged"), seen: (*Site).changed},
		{name: "passwords", tries: "to open /etc/shadow", refusals: absent},
		{name: "home", tries: "to list your home directory", refusals: append(slices.Clone(absent), "empty")},
		{name: "disk", tries: "to open this machine's disks and memory", refusals: append(slices.Clone(absent), "ENXIO")},
		{name: "process", tries: "to find the process of this command", refusals: alone},
		{name: "process memory", tries: "to open the memory and files of process 1", refusals: append(slices.Clone(absent), "ESRCH")},
		{name: "trace", tries: "to be traced, which is the first step to take over processes", refusals: denied},
		{name: "namespaces", tries: "to make a user namespace, in which it would be root", refusals: append(slices.Clone(denied), "ENOSPC")},
		{name: "mounts", tries: "to prepare a mount", refusals: denied},
		{name: "chroot", tries: "to change its root directory", refusals: denied},
		{name: "root", tries: "to become root", refusals: append(slices.Clone(denied), "EINVAL")},
		{name: "set-uid", tries: "to gain rights by programs with the set-uid bit", refusals: []string{"never again"}, well: "no new rights are given"},
		{name: "devices", tries: "to make a device", refusals: denied},
		{name: "file handles", tries: "to open the root directory by its inode number", refusals: append(slices.Clone(denied), "EOPNOTSUPP")},
		{name: "kernel calls", tries: "calls that kernel bugs were found in: bpf, io_uring, userfaultfd, perf, keys", refusals: denied},
		{name: "kernel log", tries: "to read the kernel's log", refusals: denied},
		{name: "descriptors", tries: "to climb out of a descriptor that was left open", refusals: []string{"none"}, well: "there is none"},
		{name: "host port", tries: "to connect to a port of this machine", refusals: offnet, seen: func(s *Site) string { return s.reached("port") }},
		{name: "host socket", tries: "to connect to a unix socket of this machine", refusals: offnet, seen: func(s *Site) string { return s.reached("socket") }},
		{name: "abstract socket", tries: "to connect to an abstract socket of this machine", refusals: offnet, seen: func(s *Site) string { return s.reached("abstract") }},
	}}
}

// limitPrograms has a program for each limit, which each can end.
func limitPrograms() []Program {
	begin := func(name string) string { return "TRY = " + fmt.Sprintf("%q", name) + "\n" + limits }
	return []Program{
		{Name: "memory", code: begin("memory"), limits: sandboxmcp.Limits{MaxRAMMB: 64, TimeoutSeconds: 20}, probes: []one{
			{name: "memory", tries: "to take 192 MiB with a limit of 64", refusals: []string{"ENOMEM"}, ends: []sandboxmcp.Status{sandboxmcp.StatusOutOfMemory}},
		}},
		{Name: "disk", code: begin("disk space"), limits: sandboxmcp.Limits{MaxRAMMB: 64, TimeoutSeconds: 20}, probes: []one{
			{name: "disk space", tries: "to fill the disk: 96 MiB with a limit of 64", refusals: []string{"ENOSPC", "EDQUOT"}, ends: []sandboxmcp.Status{sandboxmcp.StatusOutOfMemory}},
		}},
		{Name: "tasks", code: begin("processes"), limits: sandboxmcp.Limits{MaxProcesses: 1, TimeoutSeconds: 20}, probes: []one{
			{name: "processes", tries: "to start 48 processes with a limit of 16 tasks", refusals: []string{"EAGAIN"}, ends: []sandboxmcp.Status{sandboxmcp.StatusSignalled}},
		}},
		{Name: "time", code: begin("time"), limits: sandboxmcp.Limits{TimeoutSeconds: 1}, probes: []one{
			{name: "time", tries: "to run on for 4 s with a limit of 1, and to ignore signals", ends: []sandboxmcp.Status{sandboxmcp.StatusTimedOut}},
		}},
		{Name: "output", code: begin("output"), limits: sandboxmcp.Limits{MaxOutputBytes: 1000, TimeoutSeconds: 20}, probes: []one{
			{name: "output", tries: "to write 1 MiB of output with a limit of 1000 bytes", ends: []sandboxmcp.Status{sandboxmcp.StatusOutputLimit}},
		}},
		{Name: "daemon", code: begin("daemon"), limits: sandboxmcp.Limits{TimeoutSeconds: 20}, probes: []one{
			{name: "daemon", tries: "to leave a process behind that ignores signals", refusals: []string{"started"}, seen: (*Site).left, well: "it was started, and ended with its sandbox"},
		}},
	}
}

// Request returns the run of the program at a site.
func (p Program) Request(s *Site) sandboxmcp.Request {
	return sandboxmcp.Request{
		Code: p.code, Language: sandboxmcp.Python, FileName: "probe.py", Stdin: s.facts(), Limits: p.limits,
		NoSecrets: true, Display: sandboxmcp.DisplayNone, Reader: sandboxmcp.ReaderTerminal,
	}
}

// Judge returns the findings of a run of the program. Nothing of the run may be alive any
// more, but what it has left behind.
func (p Program) Judge(s *Site, res sandboxmcp.Result) []Finding {
	reports := map[string]string{}
	for line := range strings.Lines(res.Stdout) {
		var r struct{ Probe, Report string }
		if json.Unmarshal([]byte(line), &r) == nil && r.Probe != "" {
			if _, twice := reports[r.Probe]; twice {
				r.Report = "two reports"
			}
			reports[r.Probe] = r.Report
		}
	}
	findings := make([]Finding, 0, len(p.probes))
	for _, o := range p.probes {
		f := Finding{Name: o.name, Tried: o.tries}
		f.Held, f.Observed = o.judge(s, reports[o.name], res)
		findings = append(findings, f)
	}
	return findings
}

// judge decides whether a probe held, and says why.
func (o one) judge(s *Site, report string, res sandboxmcp.Result) (held bool, observed string) {
	if o.seen != nil {
		if what := o.seen(s); what != "" {
			return false, what
		}
	}
	switch {
	case report == "" && slices.Contains(o.ends, res.Status):
		return true, "its run was ended: " + string(res.Status)
	case report == "":
		return false, "no report: its run ended as " + string(res.Status) + lastLine(res.Stderr)
	case !slices.Contains(o.refusals, report) && !all(strings.Split(report, " "), o.refusals):
		return false, report
	case o.well != "":
		return true, o.well
	}
	return true, "refused: " + report
}

// all reports whether each part is in the list. A probe with several attempts reports an
// error of each.
func all(parts, list []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !slices.Contains(list, p) })
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}

// after is how long a process that was left behind may take to end with its sandbox.
const after = 2 * time.Second

// Run runs all programs by execute, one after the other. If a file of the machine can be read,
// there is no sandbox worth the name, and Run tries no more. note gets the number of programs
// that have run, before each.
func Run(ctx context.Context, execute func(context.Context, sandboxmcp.Request) (sandboxmcp.Result, error), note func(done, of int)) ([]Finding, *sandboxmcp.Isolation, error) {
	if runtime.GOOS != "linux" {
		return nil, nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the probes are for Linux").WithHint("run them on a Linux machine")
	}
	site, err := NewSite(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer site.Close()
	var findings []Finding
	var isolation *sandboxmcp.Isolation
	programs := Programs()
	for i, p := range programs {
		note(i, len(programs))
		res, err := execute(ctx, p.Request(site))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return findings, isolation, err
		}
		if isolation == nil {
			isolation = res.Isolation
		}
		site.wait(ctx, after)
		findings = append(findings, p.Judge(site, res)...)
		if !findings[0].Held {
			break
		}
	}
	return findings, isolation, nil
}

// facts is what the programs are told of the site, as JSON.
func (s *Site) facts() []byte {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(map[string]any{ // texts and numbers alone
		"canary": s.canary, "drop": s.drop, "socket": s.socket, "abstract": s.abstract, "port": s.port,
		"pid": s.pid, "start": s.start, "home": s.home, "token": s.daemon,
	})
	return b.Bytes()
}
