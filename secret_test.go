package sandboxmcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestSecretDoesNotPrint(t *testing.T) {
	const text = "hunter2-hunter2"
	s := sandboxmcp.NewSecret(text)
	if s.Reveal() != text || (sandboxmcp.Secret{}).Reveal() != "" {
		t.Error("Reveal does not give the text")
	}
	type holder struct {
		Open   sandboxmcp.Secret
		hidden sandboxmcp.Secret
		List   []sandboxmcp.Secret
		Map    map[string]sandboxmcp.Secret
		Spec   *sandboxmcp.SecretSpec
	}
	h := holder{s, s, []sandboxmcp.Secret{s}, map[string]sandboxmcp.Secret{"k": s}, &sandboxmcp.SecretSpec{Key: "K", Value: s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		for _, v := range []any{s, &s, h, &h, h.hidden, h.List, h.Map, *h.Spec} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	for _, v := range []any{s, &s, h, h.List, h.Map} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("secret", "value", s, "pointer", &s, "holder", h, "list", h.List)
	}
	for _, form := range []string{text, "68756e746572", "68756E746572"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%q came out:\n%s", form, out.String())
		}
	}
	if got := fmt.Sprint(s); got != "***REDACTED***" {
		t.Errorf("got %q", got)
	}
}
