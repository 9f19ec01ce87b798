package egress_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRedirectsToLongHosts: a redirect to a very long host is refused before net/http follows it, which would take 23 s of
// CPU time for 20,000 letters.
func TestRedirectsToLongHosts(t *testing.T) {
	long := strings.Repeat("漢", egress.MaxHost/3+1)
	for to, refused := range map[string]bool{"": false, "/path": false, "https://a.kit.test/" + long: false, "https://" + long + ".kit.test/": true, "//" + long: true} {
		rt := egress.Redirecting(roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {to}}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.kit.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		if errors.Is(err, egress.ErrHost) != refused || !refused && err != nil {
			t.Errorf("%.40s: got %v, want refused %v", to, err, refused)
		}
	}
}

// TestOtherAnswersMayHaveLongHosts: net/http follows no Location of an answer that is no redirect.
func TestOtherAnswersMayHaveLongHosts(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusNotModified, http.StatusNotFound} {
		rt := egress.Redirecting(roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://" + strings.Repeat("x", egress.MaxHost+1)}}, Body: http.NoBody, Request: r}, nil
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.kit.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(r)
		if err != nil {
			t.Errorf("%d: got %v, want the answer", status, err)
			continue
		}
		_ = res.Body.Close()
	}
}

// TestForwarderReadsHostsOnce: the forwarder refuses an invalid host before net/http gets it. net/http would remove the
// soft hyphens from this one, and then take it for an address that is open.
func TestForwarderReadsHostsOnce(t *testing.T) {
	open := newSite(t, false)
	f, dial := forward(t, egress.NewDialer(5*time.Second, []string{open.addr()}))
	address, port, _ := net.SplitHostPort(open.addr())
	r := ask(t, dial(), "GET http://"+address+strings.Repeat("\u00ad", 600)+":"+port+"/ HTTP/1.1\r\nHost: x")
	if r.StatusCode != http.StatusBadGateway || !f.Refused(r.Header.Get) {
		t.Errorf("got %s, want a refusal", r.Status)
	}
}
