package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestPasswordsOfDatabasesAreHidden: neither the list of settings nor an error shows a password, wherever the
// URL has it.
func TestPasswordsOfDatabasesAreHidden(t *testing.T) {
	for _, url := range []string{
		"postgres://app:hunter22@db:5432/x", "postgres://db:5432/x?user=app&password=hunter22", "postgres://db:5432/x?sslpassword=hunter22&user=app",
	} {
		c, err := config.Load(config.Sources{Env: []string{home}, Flags: map[string]string{"database_url": url}})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.DatabaseURL.Reveal(); got != url {
			t.Errorf("got %q in force, want %q", got, url)
		}
		for _, v := range c.Values() {
			if text := fmt.Sprint(v); strings.Contains(text, "hunter22") {
				t.Errorf("%s: got it shown as %s", url, text)
			}
		}
		_, err = config.Load(config.Sources{Env: []string{home}, Flags: map[string]string{"database_url": "x" + url}})
		if err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("misspelt %s: got %v, want an error without the password", url, err)
		}
	}
}
