package environment

import (
	"errors"
	"strings"
	"testing"
)

// TestErrorsOfPipHaveNoLogin: pip quotes the whole URL of a proxy that it cannot parse.
func TestErrorsOfPipHaveNoLogin(t *testing.T) {
	for _, text := range []string{
		"Traceback:\n  File x\nurllib3.exceptions.LocationParseError: Failed to parse: http://someone:pa ss/w@rd@proxy.example:3128\n",
		"ERROR: cannot use proxy 'http://someone:pass@proxy.example:3128'\n",
	} {
		got := (&saidError{text: text, err: errors.New("exit status 1")}).Error()
		if strings.Contains(got, "someone") || strings.Contains(got, "w@rd") || !strings.Contains(got, "://***@proxy.example:3128") {
			t.Errorf("got %q, want it without the login, and with the host", got)
		}
	}
}
