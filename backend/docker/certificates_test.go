package docker_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestCertificatesThatDoNotFit: the error names the variable that says where the certificates are.
func TestCertificatesThatDoNotFit(t *testing.T) {
	dir, config := testkit.Certificates(t)
	other, _ := testkit.Certificates(t)
	engine := httptest.NewUnstartedServer(http.NotFoundHandler())
	engine.TLS = config
	engine.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	engine.StartTLS()
	t.Cleanup(engine.Close)
	stranger := t.TempDir() // knows the engine, which does not know it
	for name, from := range map[string]string{"ca.pem": dir, "cert.pem": other, "key.pem": other} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(stranger, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for certs, part := range map[string]string{t.TempDir(): "cannot be used", other: "its certificate is not valid", stranger: "refuses the certificate of this client"} {
		b := docker.NewRelayed(docker.Config{Process: process.Config{MinTier: sandboxmcp.TierL1}, Host: "tcp://" + strings.TrimPrefix(engine.URL, "https://"), Certs: certs, Dir: t.TempDir()})
		_, err := b.Open(t.Context(), spec("tls"))
		if e := sandboxmcp.AsError(err); e.Code != sandboxmcp.CodeDockerUnavailable || !strings.Contains(e.Message, part) || !strings.Contains(e.Hint, "DOCKER_CERT_PATH") {
			t.Errorf("got %v, hint %q, want docker_unavailable with %q and DOCKER_CERT_PATH", err, e.Hint, part)
		}
		if err = b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
