package redact

import (
	"math/rand/v2" //nolint:depguard // tests that can be run again as they were
	"testing"
)

// Each fingerprint of a long secret that goes by would be followed to its end: sixteen times
// the work for the same answer.
func TestALongSecretIsFollowedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 64<<10)
	for i := range value {
		value[i] = letters[r.IntN(len(letters))]
	}
	s := New(secretsOf(string(value)), false).Stream()
	for rest := value; len(rest) > 0; rest = rest[1024:] {
		s.Write(nil, rest[:1024])
		if got := len(s.secrets.follow); got > 1 {
			t.Fatalf("%d followers with %d bytes left, want 1 at most", got, len(rest)-1024)
		}
	}
}
