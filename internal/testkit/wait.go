package testkit

import (
	"testing"
	"time"
)

// patience bounds a wait for something that a test expects to happen. A machine that is
// busy may need seconds for what takes microseconds elsewhere.
const patience = time.Minute

// Until polls ok until it returns true. If that takes longer than a minute, the test fails and
// says what was waited for. It runs ok on the calling goroutine, which must be the test's
// own. In a bubble of testing/synctest it uses the bubble's clock.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Within(t, patience, ok) {
		t.Fatalf("got nothing within %v, want: %s", patience, what)
	}
}

// UntilEqual polls get until it returns want. If that takes longer than a minute, the test
// fails and says what it got last. See [Until].
func UntilEqual[V comparable](t testing.TB, what string, want V, get func() V) {
	t.Helper()
	var got V
	if !Within(t, patience, func() bool { got = get(); return got == want }) {
		t.Fatalf("%s: got %v after %v, want %v", what, got, patience, want)
	}
}

// Within polls ok until it returns true, and reports whether it did within limit. It calls
// ok at least once.
func Within(t testing.TB, limit time.Duration, ok func() bool) bool {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
