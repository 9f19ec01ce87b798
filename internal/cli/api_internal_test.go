package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// until collects what is written, and calls done once it has a text.
type until struct {
	bytes.Buffer
	text string
	done func()
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.done()
	}
	return n, err
}

// TestServersWarnOfOpenSettings: a server says that every user can change its settings.
func TestServersWarnOfOpenSettings(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o664: false, 0o646: true} {
		ctx, cancel := context.WithCancel(t.Context())
		errs := &until{text: "MCP is at ", done: cancel}
		file := filepath.Join(t.TempDir(), "settings.yaml")
		if err := errors.Join(os.WriteFile(file, []byte("max_queued: 9\n"), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		a := (&fake{}).call([]string{"HOME=" + t.TempDir()}, io.Discard, errs)
		if got := a.main(ctx, []string{"sandboxmcp", "serve", "--transport", "http", "--port", "0", "--config", file}); got != 0 {
			t.Errorf("%o: got %d and %q, want 0", mode, got, errs.String())
		}
		if text := errs.String(); strings.Contains(text, "can change the settings file") != warns {
			t.Errorf("%o: got %q, want a warning: %v", mode, text, warns)
		}
		cancel()
	}
}

// TestSandboxmcpAPI: by that name the program serves REST on port 8000 or the next free one. It
// asks for a key only if there are any, and warns otherwise.
func TestSandboxmcpAPI(t *testing.T) {
	const warning = "callers need no key"
	for name, c := range map[string]struct {
		env  []string
		args []string
		warn bool
		at   string
	}{
		"Alone": {nil, nil, true, `REST is at http://127\.0\.0\.1:80\d\d\n`},
		"Keys":  {[]string{"SANDBOXMCP_API_KEYS=a-key"}, nil, false, `REST is at http://127\.0\.0\.1:80\d\d\n`},
		"Port":  {nil, []string{"--port", "0"}, true, `REST is at http://127\.0\.0\.1:\d+\n`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			errs := &until{text: "MCP is at ", done: cancel}
			f := &fake{}
			a := f.call(append(c.env, "HOME="+t.TempDir()), io.Discard, errs)
			if got := a.main(ctx, append([]string{"/x/sandboxmcp-api"}, c.args...)); got != 0 {
				t.Errorf("got %d and %q, want 0", got, errs.String())
			}
			if text := errs.String(); !regexp.MustCompile(c.at).MatchString(text) || strings.Contains(text, warning) != c.warn {
				t.Errorf("got %q, want %s and a warning: %v", text, c.at, c.warn)
			}
		})
	}
	for _, c := range []struct {
		words, stdout string
		status        int
	}{
		{"--help", apiName, 0},
		{"--version", app.Version(), 0},
		{"--frobnicate", "", exitUsage},
		{"--port 80800", "", exitUsage},
		{"run", "", exitUsage},
	} {
		var out bytes.Buffer
		a := (&fake{}).call([]string{"HOME=" + t.TempDir()}, &out, io.Discard)
		got := a.main(t.Context(), append([]string{apiName}, strings.Fields(c.words)...))
		if got != c.status || !strings.Contains(out.String(), c.stdout) || c.stdout == "" && out.Len() > 0 {
			t.Errorf("%s: got %d and %q, want %d and %q", c.words, got, out.String(), c.status, c.stdout)
		}
	}
}
