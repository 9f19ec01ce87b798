package docker

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"
)

// glanceTime bounds a glance.
const glanceTime = 200 * time.Millisecond

// glance reports whether an engine answers, without using it: it connects, sends only _ping and
// discards the answer.
func (e *Engine) glance(ctx context.Context) string {
	path := strings.TrimPrefix(e.cfg.Host, "unix://")
	ctx, cancel := context.WithTimeout(ctx, glanceTime)
	defer cancel()
	var d net.Dialer
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err == nil {
		var res *http.Response
		if res, err = c.Do(r); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return "an engine answers at " + e.cfg.Host + "; no request has used it yet"
			}
		}
	}
	return "no engine answers at " + e.cfg.Host
}
