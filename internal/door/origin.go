package door

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Direct reports whether a request comes directly from a program on this machine, not
// through a proxy. A proxy that adds no header is not recognized.
func Direct(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	if onUnix(r) {
		return true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && listenAddr(r).IsLoopback()
}

// onUnix reports whether a request arrived on a unix socket. Web pages cannot reach those.
func onUnix(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// listenAddr returns the address on which a request arrived, or the zero value.
func listenAddr(r *http.Request) netip.Addr {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}
	}
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap().WithZone("")
}

// CheckOrigin refuses a request for another host name (DNS rebinding), and one from a web
// page of another origin. names are the host names of the server beside its addresses, and
// origins are the web pages that may call it.
func CheckOrigin(r *http.Request, names, origins []string) error {
	if !ownHost(r, names) {
		return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "host %s is not this server", sandboxmcp.Quote(r.Host)).
			WithHint("use the address that the server listens on")
	}
	for _, origin := range r.Header.Values("Origin") {
		if !strings.EqualFold(origin, "http://"+r.Host) && !allowed(origin, origins) {
			return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "requests from the origin %s are not allowed", sandboxmcp.Quote(origin)).
				WithHint("open the address itself")
		}
	}
	return nil
}

// allowed reports whether origin is one of origins. "null" never is: every sandboxed page
// has it.
func allowed(origin string, origins []string) bool {
	return origin != "null" && slices.ContainsFunc(origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) })
}

// ownHost reports whether the Host header names this listener. It accepts the address on
// which the request arrived, the names in names, and for a loopback listener "localhost"
// and any loopback address. The port may differ, as it does behind a tunnel. A unix socket
// has no name.
func ownHost(r *http.Request, names []string) bool {
	if onUnix(r) {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if host == "" {
		return false
	}
	if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) }) {
		return true
	}
	at := listenAddr(r)
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap().WithZone("")
		return ip == at || ip.IsLoopback() && at.IsLoopback()
	}
	return strings.EqualFold(host, "localhost") && at.IsLoopback()
}
