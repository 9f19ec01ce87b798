package egress

import (
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Entry is a destination in a [Report]. Port is 0 where only its name was asked
// for. Host is the canonical name, or else, quoted where it has to be, what the
// program wrote.
type Entry struct {
	Host   string
	Port   int
	Times  int
	Via    Via    // of the last time
	Rule   string // of the last time
	Reason string // why it was denied; of the last time
}

// Report is what a link let through and what it refused, each destination
// once, in the order of the first time.
type Report struct {
	Allowed []Entry
	Denied  []Entry

	// Times of destinations that found no place in the lists.
	OtherAllowed int
	OtherDenied  int

	Bytes int64 // both ways together
}

// Network returns the report as a result tells it.
func (r Report) Network() sandboxmcp.Network {
	n := sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}}
	for _, e := range r.Allowed {
		n.Allowed = append(n.Allowed, e.Host+":"+strconv.Itoa(e.Port))
	}
	if r.OtherAllowed > 0 {
		n.Allowed = append(n.Allowed, "others, "+strconv.Itoa(r.OtherAllowed)+" times: too many to list")
	}
	for _, e := range r.Denied {
		n.Denied = append(n.Denied, sandboxmcp.DeniedRequest{Host: e.Host, Port: e.Port, Times: e.Times, Reason: e.Reason})
	}
	if r.OtherDenied > 0 {
		n.Denied = append(n.Denied, sandboxmcp.DeniedRequest{Host: "others", Times: r.OtherDenied, Reason: "too many to list"})
	}
	return n
}

// ledger counts for a Report.
type ledger struct {
	max int

	mu      sync.Mutex
	allowed book
	denied  book
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

// count counts a time of an entry, or its Times. A twin is a time only where there is no entry.
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
	b.entries[i].Times += e.Times
	b.entries[i].Via, b.entries[i].Rule, b.entries[i].Reason = e.Via, e.Rule, e.Reason
}

func (l *ledger) allow(a Ask, rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed.count(Entry{Host: string(a.Host), Port: a.Port, Via: a.Via, Rule: rule}, false, l.max)
}

func (l *ledger) deny(e Entry) { l.denyOnce(e, false) }

// denyOnce counts a denial that is the twin of another, as the question for AAAA
// is of that for A, only where the other was not made.
func (l *ledger) denyOnce(e Entry, twin bool) {
	e.Host = shown(e.Host)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denied.count(e, twin, l.max)
}

// denyOthers counts denials of which nothing is known.
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
		Allowed: append([]Entry{}, l.allowed.entries...), Denied: append([]Entry{}, l.denied.entries...),
		OtherAllowed: l.allowed.other, OtherDenied: l.denied.other, Bytes: l.bytes,
	}
	if reset {
		l.allowed, l.denied, l.bytes = book{}, book{}, 0
	}
	return r
}

// shown makes what a program wrote as a host fit for a report.
func shown(s string) string {
	const limit = 253
	if len(s) > limit { // no host; and half of what stands in it could not be known for what it is
		return "a name of " + strconv.Itoa(len(s)) + " bytes"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}
