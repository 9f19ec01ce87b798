package egress

import (
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Entry is a destination in a [Report]. Port is 0 for a DNS question. Host is the
// canonical name. If what the program wrote is not a host name, Host is that text,
// quoted if necessary.
type Entry struct {
	Host   string
	Port   int
	Times  int
	Via    Via    // of the latest attempt
	Rule   string // of the latest attempt
	Reason string // why the latest attempt was denied
	Denial sandboxmcp.Denial
}

// Report lists the destinations that a link allowed and denied, each once, in the
// order of their first attempt.
type Report struct {
	Allowed []Entry
	Denied  []Entry
	Failed  []Entry // allowed ones that could not be reached

	// Attempts that are not in the lists, because these were full.
	OtherAllowed int
	OtherDenied  int

	Bytes int64 // bytes in both directions
}

// Network returns the report in the form of a result.
func (r Report) Network() sandboxmcp.Network {
	n := sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}}
	for _, e := range r.Allowed {
		n.Allowed = append(n.Allowed, e.Host+":"+strconv.Itoa(e.Port))
	}
	if r.OtherAllowed > 0 {
		n.Allowed = append(n.Allowed, "others, "+strconv.Itoa(r.OtherAllowed)+" times: too many to list")
	}
	for _, e := range r.Denied {
		n.Denied = append(n.Denied, sandboxmcp.DeniedRequest{Host: e.Host, Port: e.Port, Times: e.Times, Reason: e.Reason, Denial: e.Denial})
	}
	for _, e := range r.Failed {
		n.Failed = append(n.Failed, sandboxmcp.DeniedRequest{Host: e.Host, Port: e.Port, Times: e.Times, Reason: e.Reason})
	}
	if r.OtherDenied > 0 {
		n.Denied = append(n.Denied, sandboxmcp.DeniedRequest{Host: "others", Times: r.OtherDenied, Reason: "too many to list"})
	}
	return n
}

// ledger collects the data of a Report.
type ledger struct {
	max int

	mu      sync.Mutex
	allowed book
	denied  book
	failed  book
	bytes   int64
}

type book struct {
	entries []Entry
	at      map[key]int
	other   int
}

type key struct {
	host string
	port int
}

// count adds e.Times attempts, or one if that is 0. A twin is added only if the
// destination has no entry yet.
func (b *book) count(e Entry, twin bool, limit int) {
	e.Times = max(e.Times, 1)
	k := key{e.Host, e.Port}
	i, ok := b.at[k]
	if !ok {
		if len(b.entries) >= limit {
			b.other += e.Times
			return
		}
		if b.at == nil {
			b.at = map[key]int{}
		}
		b.at[k] = len(b.entries)
		b.entries = append(b.entries, e)
		return
	}
	if twin {
		return
	}
	e.Times += b.entries[i].Times
	b.entries[i] = e
}

func (l *ledger) allow(a Ask, rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed.count(Entry{Host: string(a.Host), Port: a.Port, Via: a.Via, Rule: rule}, false, l.max)
}

// fail counts an allowed destination that was not reached.
func (l *ledger) fail(a Ask, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed.count(Entry{Host: string(a.Host), Port: a.Port, Via: a.Via, Reason: reason}, false, l.max)
}

func (l *ledger) deny(e Entry) { l.denyOnce(e, false) }

// denyOnce counts a denial. A twin, such as the AAAA question that follows an A
// question, is counted only if the destination has no entry yet.
func (l *ledger) denyOnce(e Entry, twin bool) {
	e.Host = shown(e.Host)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denied.count(e, twin, l.max)
}

// denyOthers counts n denials whose destination is unknown.
func (l *ledger) denyOthers(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denied.other += n
}

func (l *ledger) add(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += n
}

// left returns how many of limit bytes may still pass.
func (l *ledger) left(limit int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(limit-l.bytes, 0)
}

func (l *ledger) report(reset bool) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{
		Allowed: append([]Entry{}, l.allowed.entries...), Denied: append([]Entry{}, l.denied.entries...), Failed: append([]Entry{}, l.failed.entries...),
		OtherAllowed: l.allowed.other, OtherDenied: l.denied.other, Bytes: l.bytes,
	}
	if reset {
		l.allowed, l.denied, l.failed, l.bytes = book{}, book{}, book{}, 0
	}
	return r
}

// shown makes text that a program sent as a host safe to print in a report.
func shown(s string) string {
	const limit = 253
	if len(s) > limit { // longer than any host name; a truncated secret in it could not be masked
		return "a name of " + strconv.Itoa(len(s)) + " bytes"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}
