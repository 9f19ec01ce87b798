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
