package store_test

import (
	"errors"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// TestRowMACs: a MAC fits only the same columns in the same places, and nothing without the key.
func TestRowMACs(t *testing.T) {
	m := store.NewRowMACs(func(purpose string) ([]byte, error) { return []byte("key for " + purpose), nil }, "rows 1")
	mac, err := m.Of("a", "bc", "")
	if err != nil || len(mac) != 64 {
		t.Fatalf("got %q, %v", mac, err)
	}
	if !m.Fit(mac, "a", "bc", "") {
		t.Error("the MAC does not fit its own row")
	}
	for _, other := range [][]string{{"ab", "c", ""}, {"a", "bc"}, {"a", "", "bc"}, {"", "a", "bc"}} {
		if m.Fit(mac, other...) {
			t.Errorf("the MAC fits %q", other)
		}
	}
	if store.NewRowMACs(func(string) ([]byte, error) { return []byte("another key"), nil }, "rows 1").Fit(mac, "a", "bc", "") {
		t.Error("the MAC fits with another key")
	}
	for name, derive := range map[string]func(string) ([]byte, error){
		"no signing key": nil, "a key that cannot be read": func(string) ([]byte, error) { return nil, errors.New("gone") },
	} {
		none := store.NewRowMACs(derive, "rows 1")
		if _, err := none.Of("a"); err == nil || none.Fit("", "a") {
			t.Errorf("%s: got %v, want an error, and no MAC that fits", name, err)
		}
	}
}
