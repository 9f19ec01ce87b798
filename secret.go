package sandboxmcp

import (
	"fmt"
	"log/slog"
	"time"
)

// redacted is what a [Secret] prints.
const redacted = "***REDACTED***"

// Secret is text that does not print: every way of formatting, encoding or
// logging it shows the same placeholder. [Secret.Reveal] gives the text. The zero
// value is empty. Two of the same text need not be equal by ==.
type Secret struct {
	text *string // a pointer, so that not even a struct that holds one in a field of its own shows it
}

// NewSecret makes a secret of a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the secret's text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder.
func (s Secret) GoString() string { return redacted }

// Format writes a placeholder, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns a placeholder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// SecretInfo is what may be told of a secret in a vault: everything but its value.
type SecretInfo struct {
	Key       string     `json:"key"` // the name of the variable that programs have it in
	Namespace Namespace  `json:"namespace"`
	CreatedAt time.Time  `json:"created_at"` // when its value was set; zero in a vault that does not know
	ExpiresAt *time.Time `json:"expires_at"` // nil: never
}

// VaultList is what the vault of a server has of a namespace.
type VaultList struct {
	Kind    string       `json:"kind"` // where secrets are kept: sealed, memory or env
	Secrets []SecretInfo `json:"secrets"`
}

// SecretSpec asks for a secret to be put into a vault, in place of one of the same
// key.
type SecretSpec struct {
	Key   string        // [A-Za-z_][A-Za-z0-9_]{0,127}, and no name that steers programs
	Value Secret        // 8 bytes to 64 KiB, without a NUL
	TTL   time.Duration // how long it is there; 0: until it is deleted
}

// SecretRef is how an environment variable of a request names a secret of its
// namespace in place of a value: the prefix and the secret's key.
const SecretRef = "secret://"
