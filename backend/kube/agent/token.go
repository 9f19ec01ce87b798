// Package agent is the first program of a sandbox's pod. It waits for one server that proves by a signed
// statement that it may use the pod, and then becomes the relay of package relay with the server's
// connection as its stdin and stdout. Nothing in a pod is secret: it has only public keys.
//
// # Protocol
//
//	server → agent   POST /v1/relay, Upgrade: sandboxmcp-relay, and a statement
//	agent → server   101, with the architecture in Sandboxmcp-Arch
//
// The statement is in the header Authorization, or in Sandboxmcp-Authorization where a proxy such as
// the API server's keeps Authorization for itself, as "Bearer" and [Statement.Sign]'s text. After 101 the
// agent listens no more. A pod serves one connection, and ends with it.
package agent

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Port is where the agent listens in a pod.
const Port = 8931

// Program is where the relay's program is written in a pod.
const Program = "/run/relay"

// Path and Upgrade are those of the request.
const (
	Path    = "/v1/relay"
	Upgrade = "sandboxmcp-relay"
)

// Headers of the request and of its answer.
const (
	HeaderProof = "Sandboxmcp-Authorization"
	HeaderArch  = "Sandboxmcp-Arch"
)

// Environment variables of the agent.
const (
	EnvKeys = "SANDBOXMCP_AGENT_KEYS" // public keys in base64, separated by commas or spaces
	EnvPod  = "POD_UID"               // the pod's UID, by the downward API
	EnvWait = "SANDBOXMCP_AGENT_WAIT" // how long it waits for a server, such as 5m; empty: without end
)

// PurposeRelay is the purpose of a statement that lets a server use a pod.
const PurposeRelay = "relay"

// Bounds of a statement.
const (
	maxStatement = 2048
	maxAge       = 5 * time.Minute
	skew         = 30 * time.Second // between the clocks of the server and of the pod's machine
)

// domain separates statements from everything else that the key may sign.
const domain = "sandboxmcp agent statement 1\n"

// A Statement says what its bearer may do with a pod.
type Statement struct {
	Pod     string `json:"pod"` // UID
	Purpose string `json:"purpose"`
	Expires int64  `json:"exp"` // seconds since 1970
	Nonce   string `json:"nonce"`
}

// NewStatement returns a statement for a pod that expires a minute after now.
func NewStatement(pod, purpose string, now time.Time) Statement {
	return Statement{Pod: pod, Purpose: purpose, Expires: now.Add(time.Minute).Unix(), Nonce: rand.Text()}
}

// Sign returns the statement with its signature.
func (s Statement) Sign(key ed25519.PrivateKey) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(text) + "." + enc.EncodeToString(ed25519.Sign(key, append([]byte(domain), text...))), nil
}

// Check returns an error unless a token is a statement for the pod and the purpose, signed by one of the
// keys and valid now.
func Check(token string, keys []ed25519.PublicKey, pod, purpose string, now time.Time) error {
	if len(token) > maxStatement {
		return errors.New("the statement is too long")
	}
	left, right, ok := strings.Cut(token, ".")
	enc := base64.RawURLEncoding.Strict()
	text, err := enc.DecodeString(left)
	signature, err2 := enc.DecodeString(right)
	if !ok || err != nil || err2 != nil {
		return errors.New("this is no statement")
	}
	signed := false
	for _, k := range keys {
		signed = signed || ed25519.Verify(k, append([]byte(domain), text...), signature)
	}
	if !signed {
		return errors.New("no known key has signed the statement")
	}
	var s Statement
	if err = json.Unmarshal(text, &s); err != nil {
		return errors.New("this is no statement")
	}
	left2 := time.Unix(s.Expires, 0).Sub(now)
	switch {
	case pod == "" || s.Pod != pod:
		return errors.New("the statement is for another pod")
	case s.Purpose != purpose:
		return errors.New("the statement is for another purpose")
	case left2 < -skew:
		return errors.New("the statement has expired")
	case left2 > maxAge+skew || s.Nonce == "":
		return errors.New("the statement is not short-lived")
	}
	return nil
}

// ParseKeys reads public keys.
func ParseKeys(text string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		k, err := base64.StdEncoding.DecodeString(f)
		if err != nil || len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("%q is no Ed25519 public key in base64", f)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no public key")
	}
	return keys, nil
}

// FormatKey returns a public key as ParseKeys reads it.
func FormatKey(k ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(k) }
