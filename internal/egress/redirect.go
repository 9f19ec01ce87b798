package egress

import (
	"errors"
	"net/http"
)

// MaxHost is the most bytes that the host of a URL may have before it is written in ASCII, which takes quadratic
// time: a name has 253 bytes then, and at most four times as many before.
const MaxHost = 4 * 253

// ErrHost is the reason for refusing a URL whose host is too long.
var ErrHost = errors.New("its host is neither a name nor an address")

// Redirecting returns a transport that fails with [ErrHost] if an answer leads to a URL whose host has more than
// [MaxHost] bytes. An [http.Client] writes such a host in ASCII before it calls CheckRedirect.
func Redirecting(t http.RoundTripper) http.RoundTripper { return redirecting{t} }

type redirecting struct{ http.RoundTripper }

func (t redirecting) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(r)
	if err != nil || len(res.Header.Get("Location")) <= MaxHost {
		return res, err
	}
	if to, failed := res.Location(); failed == nil && len(to.Host) > MaxHost {
		_ = res.Body.Close()
		return nil, ErrHost
	}
	return res, nil
}
