package note

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// unaskable explains a refused destination if no person can be asked to open it. It returns "" if a person can be asked.
func (r *Run) unaskable(d sandboxmcp.DeniedRequest) string {
	if d.Denial == sandboxmcp.DenialPerson {
		return fmt.Sprintf("No connection to %s: a person denied it. Retries do not help; talk to the user first.", d.Host)
	}
	if _, err := netip.ParseAddr(d.Host); err == nil {
		return fmt.Sprintf("No connection to %s: only host names can be opened, not addresses. %s", d.Host, r.ask(""))
	}
	if _, err := sandboxmcp.ParseHost(d.Host); err != nil { // the program chose these characters
		return fmt.Sprintf("No connection to %s: that is no host name that can be opened.", sandboxmcp.Quote(d.Host))
	}
	switch {
	case d.Denial == sandboxmcp.DenialAddress:
		return fmt.Sprintf("No connection to %s: the domain is open, but %s. An operator can allow it with egress_private_hosts.", d.Host, d.Reason)
	case d.Denial == sandboxmcp.DenialClosed, d.Reason == "": // it may have been open before
		return ""
	case d.Denial == sandboxmcp.DenialOther && slices.Contains(r.Result.Network.Allowed, d.Host+":"+strconv.Itoa(d.Port)): // its protocol was refused
		return fmt.Sprintf("No connection to %s, which is open: %s.", d.Host, d.Reason)
	}
	return fmt.Sprintf("No connection to %s: %s.", d.Host, d.Reason) // whether it is open was not asked, or does not matter
}

type wall struct {
	pattern *regexp.Regexp
	text    string
}

// walls explains the last line that a failed program wrote, as far as a wall of its sandbox is a
// likely cause.
// The first is the one that more memory helps against.
var walls = sync.OnceValue(func() []wall {
	return []wall{
		{regexp.MustCompile(`No space left on device|ENOSPC|Disk quota exceeded|EDQUOT`), "Probably /mnt/data or /tmp is full: files there count as memory. Delete some"},
		{regexp.MustCompile(`Read-only file system|EROFS`), "Probably a path outside of /mnt/data and /tmp was written: only these two are writable"},
		{regexp.MustCompile(`Too many open files|EMFILE`), "Probably more files were open at once than the sandbox allows"},
		{regexp.MustCompile(`Operation not permitted|EPERM`), "Probably something was tried that no sandbox permits, such as mount, ptrace, raw sockets or another user"},
	}
})

var (
	refusedPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Permission denied|EACCES`) })
	anyPath     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|[\s'"(])(/[^\s'":]*)`) })
)

// outside reports whether one of the lines refuses a path that sandboxes do not let programs write.
func outside(lines string) bool {
	for line := range strings.Lines(lines) {
		if !refusedPath().MatchString(line) {
			continue
		}
		for _, m := range anyPath().FindAllStringSubmatch(line, -1) {
			if !slices.ContainsFunc([]string{"/mnt/data", "/tmp", "/dev", "/run/program/main"}, func(own string) bool { return strings.HasPrefix(m[1], own) }) {
				return true
			}
		}
	}
	return false
}

// wall says which wall probably made a program fail.
func (r *Run) wall() string {
	if r.Result.Status != sandboxmcp.StatusFailed {
		return ""
	}
	last := lastLines(r.Result.Stderr)
	if e := r.Result.Error; e != nil {
		last = e.Name + ": " + e.Value
	}
	for i, w := range walls() {
		if !w.pattern.MatchString(last) {
			continue
		}
		if name := r.parameter("max_ram_mb", "--ram"); i == 0 && name != "" && !r.Session {
			return w.text + ", or pass " + name + "."
		}
		return w.text + "."
	}
	if outside(last) {
		return "Probably a path outside of /mnt/data and /tmp was used: only these two are writable."
	}
	return ""
}

// lastLines returns the end of stderr that says why a program failed. Node.js prints the message
// before the stack, and names the error again after it.
func lastLines(stderr string) string {
	lines := strings.Split(strings.TrimSpace(tail(stderr)), "\n")
	const few = 12
	return strings.Join(lines[max(0, len(lines)-few):], "\n")
}
