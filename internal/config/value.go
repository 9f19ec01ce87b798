package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// value is a field of a [Config] with functions to parse and show it.
type value struct {
	// set parses one text, or any number of them for a list. It returns false and
	// changes nothing if one is not legal.
	set    func(items []string) bool
	show   func() any
	legal  func() string
	form   form // in the JSON Schema of a file
	isList bool
	field  any // pointer to the field

	revealed func() any // the value with its secrets; nil: show has none
}

// whole returns the value for a comparison, with its secrets. It must not be shown.
func (v value) whole() any {
	if v.revealed != nil {
		return v.revealed()
	}
	return v.show()
}

// assign sets a row from the text of a variable, a flag or a default. Empty text means an
// empty list, and leaves a single value unchanged.
func (r row) assign(s string) bool {
	if !r.into.isList {
		return s == "" || r.into.set([]string{s})
	}
	items := []string{}
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return r.into.set(items)
}

func scalar[T any](to *T, legal string, parse func(string) (T, bool)) value {
	return value{
		set: func(items []string) bool {
			v, ok := parse(strings.TrimSpace(items[0]))
			if ok {
				*to = v
			}
			return ok
		},
		show:  func() any { return *to },
		legal: func() string { return legal },
		form:  anyForm(),
		field: to,
	}
}

func text[T ~string](to *T, check func(string) bool, legal string) value {
	return scalar(to, legal, func(s string) (T, bool) { return T(s), check(s) })
}

func choice[T ~string](to *T, words ...string) value {
	v := scalar(to, "one of "+strings.Join(words, ", "), func(s string) (T, bool) {
		for _, w := range words {
			if strings.EqualFold(s, w) {
				return T(w), true
			}
		}
		return "", false
	})
	v.form = wordForm(words)
	return v
}

func boolean(to *bool) value {
	v := scalar(to, "true or false, 1 or 0, yes or no, on or off", func(s string) (bool, bool) {
		switch strings.ToLower(s) {
		case "true", "1", "yes", "on":
			return true, true
		case "false", "0", "no", "off":
			return false, true
		}
		return false, false
	})
	v.form = booleanForm()
	return v
}

// onlyTrue is a bool that cannot be turned off.
func onlyTrue(to *bool) value {
	var given bool
	b := boolean(&given)
	v := scalar(to, "true: every sandbox is hardened", func(s string) (bool, bool) {
		ok := b.set([]string{s})
		return given, ok && given
	})
	v.form = form{"enum": []any{true, 1, "yes", "on"}}
	return v
}

func integer[T ~int | ~int64](to *T, low, high T) value {
	legal := "a whole number from " + strconv.FormatInt(int64(low), 10) + " to " + strconv.FormatInt(int64(high), 10)
	v := scalar(to, legal, func(s string) (T, bool) {
		n, err := strconv.ParseInt(s, 10, 64)
		return T(n), err == nil && n >= int64(low) && n <= int64(high)
	})
	v.form = integerForm(int64(low), int64(high))
	return v
}

// number accepts numbers above low and up to high. A low of -1 means that 0 is legal.
func number(to *float64, low, high float64) value {
	legal := "a number above 0 and at most " + strconv.FormatFloat(high, 'f', -1, 64)
	if low < 0 {
		legal = "a number from 0 to " + strconv.FormatFloat(high, 'f', -1, 64)
	}
	v := scalar(to, legal, func(s string) (float64, bool) {
		f, err := strconv.ParseFloat(s, 64)
		ok := err == nil && !math.IsNaN(f) && f <= high && (f > low && f >= 0)
		return f, ok
	})
	v.form = numberForm(low, high)
	return v
}

// cores takes a number of CPU cores, at most high. It refuses a share that is too small to be enforced.
func cores(to *float64, high float64) value {
	legal := "a number from 0.01 to " + strconv.FormatFloat(high, 'f', -1, 64)
	v := scalar(to, legal, func(s string) (float64, bool) {
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil && f > 0 && f <= high && sandboxmcp.Limits{MaxCPUCores: f}.Check() == nil
	})
	v.form = form{"type": "number", "minimum": 0.01, "maximum": high}
	return v
}

func list(to *[]string, check func(string) bool, legal string) value {
	return value{
		set: func(items []string) bool {
			for _, s := range items {
				if !check(s) {
					return false
				}
			}
			*to = items
			return true
		},
		show:   func() any { return append([]string{}, *to...) },
		legal:  func() string { return "a list of " + legal },
		form:   listForm(),
		isList: true,
		field:  to,
	}
}

// items is a list whose entries are parsed.
func items[T fmt.Stringer](to *[]T, legal string, parse func(string) (T, bool)) value {
	return value{
		set: func(texts []string) bool {
			all := make([]T, 0, len(texts))
			for _, s := range texts {
				v, ok := parse(s)
				if !ok {
					return false
				}
				all = append(all, v)
			}
			*to = all
			return true
		},
		show: func() any {
			texts := make([]string, 0, len(*to))
			for _, v := range *to {
				texts = append(texts, v.String())
			}
			return texts
		},
		legal:  func() string { return "a list of " + legal },
		form:   listForm(),
		isList: true,
		field:  to,
	}
}

// webURL parses an http or https URL.
func webURL(s string) (u *url.URL, ok bool) {
	u, err := url.Parse(s)
	return u, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// site is a URL without a password.
func site(to *string) value {
	return text(to, func(s string) bool {
		u, ok := webURL(s)
		return ok && u.User == nil
	}, "an http or https URL without a user name")
}

// address is a URL; a password in it is not shown.
func address(to *sandboxmcp.Secret) value {
	v := scalar(to, "an http or https URL", func(s string) (sandboxmcp.Secret, bool) {
		_, ok := webURL(s)
		return sandboxmcp.NewSecret(s), ok
	})
	v.revealed = func() any { return to.Reveal() }
	v.show = func() any {
		if u, err := url.Parse(to.Reveal()); err == nil {
			return hidden(u).Redacted()
		}
		return redacted
	}
	return v
}

// hidden returns a URL whose parameters that have a password are replaced.
func hidden(u *url.URL) *url.URL {
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Set(name, redacted)
			u.RawQuery = query.Encode()
		}
	}
	return u
}

// database is the URL of a PostgreSQL database. It may have a password.
func database(to *sandboxmcp.Secret) value {
	v := address(to)
	inner := scalar(to, "a URL such as postgres://user:password@host:5432/database", func(s string) (sandboxmcp.Secret, bool) {
		u, err := url.Parse(s)
		return sandboxmcp.NewSecret(s), err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql")
	})
	inner.revealed, inner.show = v.revealed, v.show
	return inner
}

// bucketOK reports whether a text is the URL of a bucket. Package objects checks its parameters.
func bucketOK(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "s3" && u.Host != "" && u.User == nil
}

func resolver(to *netip.AddrPort) value {
	v := scalar(to, "an address of the form ip:port", parseAddrPort)
	v.show = func() any {
		if !to.IsValid() {
			return ""
		}
		return to.String()
	}
	return v
}

// Size is a number of bytes with its original text.
type Size struct {
	Text  string // such as 512m
	Bytes int64
}

func size(to *Size) value {
	v := scalar(to, "a size of at least 1m, such as 512m: a whole number with b, k, m or g", parseSize)
	v.show = func() any { return to.Text }
	return v
}

// leastSize is the smallest memory that a run can be given (max_ram_mb).
const leastSize = 1 << 20

func parseSize(s string) (Size, bool) {
	digits, shift := strings.ToLower(s), 0
	if n := len(digits); n > 0 {
		if i := strings.IndexByte("bkmg", digits[n-1]); i >= 0 {
			digits, shift = digits[:n-1], 10*i
		}
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return Size{Text: s, Bytes: int64(n) << shift}, err == nil && n<<shift >= leastSize
}

// UIDRange is a range of host user ids, both ends included.
type UIDRange struct {
	First, Last uint32
}

// uidBlock is how many user ids a server leases at once.
const uidBlock = 65536

func uids(to *UIDRange) value {
	v := scalar(to, "a range first-last of at least 65536 user ids, from 65536 on", func(s string) (UIDRange, bool) {
		a, b, ok := strings.Cut(s, "-")
		first, err1 := strconv.ParseUint(a, 10, 32)
		last, err2 := strconv.ParseUint(b, 10, 32)
		// The kernel reads the highest id as "do not change".
		ok = ok && err1 == nil && err2 == nil && first >= uidBlock && last < math.MaxUint32 && last >= first+uidBlock-1
		return UIDRange{First: uint32(first), Last: uint32(last)}, ok
	})
	v.show = func() any {
		return strconv.FormatUint(uint64(to.First), 10) + "-" + strconv.FormatUint(uint64(to.Last), 10)
	}
	return v
}

func anyText(s string) bool { return !strings.ContainsRune(s, 0) }

func wordOK(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// networkOK reports whether a word is a network of Docker that does not lead past the egress proxy.
func networkOK(s string) bool {
	kind, _, shared := strings.Cut(strings.ToLower(s), ":")
	return wordOK(s) && !shared && kind != "host"
}

func namespaceOK(s string) bool {
	_, err := sandboxmcp.ParseNamespace(s)
	return err == nil
}

func absoluteOK(s string) bool { return strings.HasPrefix(s, "/") && anyText(s) }

func patternOK(s string) bool { return s != "*" && anyText(s) && !strings.ContainsAny(s, "\n\r") }

func portOK(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func hostPortOK(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && wordOK(host) && portOK(port)
}

// Mapping redirects connections to a host to an address. For tests.
type Mapping struct {
	Host sandboxmcp.Host
	Port int // port of the host; 0: every port
	To   netip.AddrPort
}

// String returns the mapping in the form name[:port]=ip:port.
func (m Mapping) String() string {
	return sandboxmcp.Domain{Host: m.Host, Port: m.Port}.String() + "=" + m.To.String()
}

func parseMapping(s string) (Mapping, bool) {
	name, to, ok := strings.Cut(s, "=")
	d, err1 := sandboxmcp.ParseDomain(name)
	addr, err2 := parseAddrPort(to)
	return Mapping{Host: d.Host, Port: d.Port, To: addr}, ok && err1 == nil && err2 && !d.Wild
}

func parseAddrPort(s string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(s)
	return a, err == nil && a.Port() != 0
}

func parseDomain(s string) (sandboxmcp.Domain, bool) {
	d, err := sandboxmcp.ParseDomain(s)
	return d, err == nil
}

// parseName is parseDomain without wildcards.
func parseName(s string) (sandboxmcp.Domain, bool) {
	d, ok := parseDomain(s)
	return d, ok && !d.Wild
}
