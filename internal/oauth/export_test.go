package oauth

import "time"

// Later advances the clock of a verifier.
func Later(v *Verifier, d time.Duration) {
	v.now = func() time.Time { return time.Now().Add(d) }
}
