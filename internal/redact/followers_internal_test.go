package redact

import (
	"math/rand/v2" //nolint:depguard // tests that can be run again as they were
	"strings"
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

// TestFollowersAreInOrder: new followers are merged with those that are there, each once. A search for each of
// them among all others would take a namespace's own secrets to make the server work for seconds on a megabyte.
func TestFollowersAreInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var secrets []string
	for i := range 20 {
		secrets = append(secrets, strings.Repeat("a", 30+10*i)+"b\"'%&<>"+strings.Repeat(string(letters[i]), 60), strings.Repeat("ab", 40+i))
	}
	s, most := New(secretsOf(secrets...), false).Stream(), 0
	for range 20_000 {
		s.Write(nil, []byte{"aaaaaaab\""[r.IntN(9)]})
		follow := s.secrets.follow
		for i := 1; i < len(follow); i++ {
			if !follow[i-1].before(follow[i]) {
				t.Fatalf("got %v before %v, want one order and none twice", follow[i-1], follow[i])
			}
		}
		most = max(most, len(follow))
	}
	s.Write(nil, []byte(strings.Repeat("a", 1000)))
	if most = max(most, len(s.secrets.follow)); most < 2 || most > maxFollowers {
		t.Errorf("got at most %d followers at a time, want 2 to %d", most, maxFollowers)
	}
}
