package sandboxmcp

import (
	"fmt"
	"log/slog"
	"time"
)

// redacted is printed in place of a [Secret].
const redacted = "***REDACTED***"

// Secret is text that is never printed: formatting, encoding and logging show a
// placeholder. [Secret.Reveal] returns the text. The zero value is empty. Do not compare
// secrets by ==, which compares pointers.
type Secret struct {
	text *string // a pointer, so that printing a struct with an unexported Secret field does not show the text
}

// NewSecret returns a secret with a text.
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

// SecretInfo describes a secret in a vault, without its value.
type SecretInfo struct {
	Key       string     `json:"key"` // name of the environment variable of programs
	Namespace Namespace  `json:"namespace"`
	CreatedAt time.Time  `json:"created_at"` // when the value was set; zero if the vault does not record it
	ExpiresAt *time.Time `json:"expires_at"` // nil: never
}

// VaultList lists the secrets of a namespace.
type VaultList struct {
	Kind    string       `json:"kind"` // where secrets are stored: sealed, memory or env
	Secrets []SecretInfo `json:"secrets"`
}

// SecretSpec is a secret to store in a vault. It replaces one with the same key.
type SecretSpec struct {
	Key   string        // [A-Za-z_][A-Za-z0-9_]{0,127}, except names such as PATH that change how programs work
	Value Secret        // 8 bytes to 64 KiB, without a NUL
	TTL   time.Duration // lifetime; 0: until it is deleted
}

// SecretRef is the prefix by which a variable in Request.Env refers to a secret of the
// namespace: the prefix and the secret's key.
const SecretRef = "secret://"
