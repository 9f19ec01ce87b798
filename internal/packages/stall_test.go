package packages_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// slow answers every request with a body that sends one byte in each interval, forever.
type slow struct{ interval time.Duration }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: slowBody{r.Context(), s.interval}, Request: r}, nil
}

type slowBody struct {
	ctx      context.Context
	interval time.Duration
}

func (b slowBody) Read(p []byte) (int, error) {
	timer := time.NewTimer(b.interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		p[0] = ' '
		return 1, nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (slowBody) Close() error { return nil }

var _ io.ReadCloser = slowBody{}

// TestAnIndexThatNeverEnds: one that stalls, and one that sends a byte now and then, do not hold
// an installation.
func TestAnIndexThatNeverEnds(t *testing.T) {
	for name, c := range map[string]struct {
		interval, most time.Duration
		part           string
	}{
		"Stalled":  {time.Hour, 30 * time.Second, "no byte came"},
		"Dripping": {20 * time.Second, time.Minute, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				p := packages.New(packages.Config{Dir: dir, Env: []string{"PIP_CONFIG_FILE=/dev/null"}, Transport: slow{c.interval}})
				g := opened(t, p, parse(t, sandboxmcp.Python, "one"))
				began := time.Now()
				asks(t, g, "/simple/one/")
				wantCode(t, g.Failure(t.Context(), ""), sandboxmcp.CodeInstallFailed, c.part)
				if took := time.Since(began); took != c.most {
					t.Errorf("it took %s, want %s", took, c.most)
				}
			})
		})
	}
}
