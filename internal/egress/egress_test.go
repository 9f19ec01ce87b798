package egress_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/egress"
)

func TestTransparentHTTP(t *testing.T) {
	w := newWorld(t)
	code, body := get(t, w.toName("api.kit.test", 80), "API.Kit.Test.", "/a?b=1&c=%2f")
	if code != 200 || body != "hello from api.kit.test" {
		t.Errorf("got %d %q, want the site", code, body)
	}
	if got, want := strings.Join(w.api.asked(), ","), "GET api.kit.test /a?b=1&c=%2f"; got != want {
		t.Errorf("at the site: got %s, want %s", got, want)
	}
	w.wantAllowed("api.kit.test:80")
}

func TestTransparentTLS(t *testing.T) {
	w := newWorld(t)
	c, err := shake(w.toName("api.kit.test", 443), "api.kit.test")
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, c, "api.kit.test", "/s"); code != 200 || body != "hello from api.kit.test" {
		t.Errorf("got %d %q, want the site", code, body)
	}
	w.wantAllowed("api.kit.test:443")
}

func TestProxyGet(t *testing.T) {
	w := newWorld(t)
	c := w.proxy()
	code, body := get(t, c, "api.kit.test", "http://api.kit.test?q=1")
	if code != 200 || body != "hello from api.kit.test" {
		t.Errorf("got %d %q, want the site", code, body)
	}
	if got, want := strings.Join(w.api.asked(), ","), "GET api.kit.test /?q=1"; got != want {
		t.Errorf("at the site: got %s, want %s", got, want)
	}
}

func TestProxyConnect(t *testing.T) {
	w := newWorld(t)
	c := w.proxy()
	if _, err := io.WriteString(c, "CONNECT api.kit.test:443 HTTP/1.1\r\nHost: api.kit.test:443\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("CONNECT: got %v, %v", res, err)
	}
	defer res.Body.Close()
	tc, err := shake(c, "api.kit.test")
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, tc, "api.kit.test", "/s"); code != 200 || body != "hello from api.kit.test" {
		t.Errorf("got %d %q, want the site", code, body)
	}
}

func TestClosedSaysHow(t *testing.T) {
	for _, c := range []struct {
		how         egress.Recourse
		words, body string
	}{
		{egress.ByTool, "; ask with request_egress", "Ask for it with the tool request_egress and the domain other.kit.test. Retries do not help."},
		{egress.ByPerson, "; a person can open it", "A person can open the domain other.kit.test. Retries do not help."},
		{egress.BySettings, "", "Only the operator's settings open domains. Retries do not help."},
	} {
		w := newWorld(t)
		w.rules.recourse = c.how
		for _, head := range []string{
			"GET http://other.kit.test/ HTTP/1.1\r\nHost: other.kit.test\r\n\r\n",
			"CONNECT other.kit.test:80 HTTP/1.1\r\nHost: other.kit.test:80\r\n\r\n",
		} {
			got, err := say(w.proxy(), head)
			if err != nil || !strings.HasPrefix(got, "HTTP/1.1 403 other.kit.test:80 is not open"+c.words+"\r\n") ||
				!strings.HasSuffix(got, "\r\n\r\nother.kit.test:80 is not open to this sandbox: it is not open.\n"+c.body+"\n") {
				t.Errorf("%s: got %q, %v; want %q and %q", head, got, err, c.words, c.body)
			}
			if strings.Contains(got, "sandboxmcp ") { // a command would have to name the state directory
				t.Errorf("%s: got %q, want no command", head, got)
			}
		}
		w.wantDenied("other.kit.test", 80, "it is not open")
		w.quiet()
	}
}
