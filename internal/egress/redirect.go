package egress

import (
	"errors"
	"net/http"
)

// MaxHost is the most bytes that the host of a URL may have. Longer hosts are refused before they are converted to ASCII,
// which takes quadratic time. In ASCII a name has at most 253 bytes, and in UTF-8 at most four times as many.
const MaxHost = 4 * 253

// ErrHost is the reason for refusing a URL whose host is too long.
var ErrHost = errors.New("its host is neither a name nor an address")

// Redirecting returns a transport that fails with [ErrHost] if an answer redirects to a URL whose host has more than
// [MaxHost] bytes. CheckRedirect of an [http.Client] would be too late: the client converts the host to ASCII before.
func Redirecting(t http.RoundTripper) http.RoundTripper { return redirecting{t} }

type redirecting struct{ http.RoundTripper }

func (t redirecting) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(r)
	if err != nil || len(res.Header.Get("Location")) <= MaxHost || !follows(res.StatusCode) {
		return res, err
	}
	if to, failed := res.Location(); failed == nil && len(to.Host) > MaxHost {
		_ = res.Body.Close()
		return nil, ErrHost
	}
	return res, nil
}

// follows reports whether an [http.Client] follows the Location of an answer with that status. It does not look at that of
// others, such as 201.
func follows(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
