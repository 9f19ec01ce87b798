package runtimes

import (
	"slices"
	"testing"
)

func TestShimsGetNoSecrets(t *testing.T) {
	got := foreign([]string{"PATH=/bin", "SANDBOXMCP_SECRET_DEFAULT_A=hunter2", "SANDBOXMCP_API_KEYS=k", "HOME=/h"})
	if want := []string{"PATH=/bin", "HOME=/h"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if foreign(nil) == nil {
		t.Error("foreign(nil): got nil, want an empty environment: nil means the server's own")
	}
}

// TestInterpretersGetNoVariablesThatLoadCode: an interpreter that is asked for its version runs outside of sandboxes. A model may be able to write the file that
// such a variable names.
func TestInterpretersGetNoVariablesThatLoadCode(t *testing.T) {
	got := foreign([]string{
		"LD_LIBRARY_PATH=/project/lib", "LD_PRELOAD=/project/a.so", "NODE_OPTIONS=--require=/project/a.js", "OPENSSL_CONF=/project/a.cnf", "BASH_ENV=/project/a.sh", "ENV=/project/a.sh",
		"PYTHONPATH=/project", "LANG=C", "PYENV_ROOT=/p", "NODE_VERSION=1",
	})
	if want := []string{"LANG=C", "PYENV_ROOT=/p", "NODE_VERSION=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
