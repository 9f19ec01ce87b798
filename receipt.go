package sandboxmcp

import "time"

// ReceiptPredicateType names version 1 of the receipt. Its fields are frozen.
const ReceiptPredicateType = "https://github.com/sandboxmcp/sandboxmcp/receipt/v1"

// Receipt is a signed statement of a run, its walls and its results: a DSSE envelope whose
// payload is an in-toto statement with a [ReceiptPredicate]. It can be checked offline with
// the public key.
type Receipt struct {
	PayloadType string             `json:"payloadType"` // application/vnd.in-toto+json
	Payload     string             `json:"payload"`     // base64 of the statement
	Signatures  []ReceiptSignature `json:"signatures"`
}

// ReceiptSignature is one signature of a [Receipt].
type ReceiptSignature struct {
	KeyID string `json:"keyid"` // SHA-256 of the public key, hex
	Sig   string `json:"sig"`   // ed25519 over the DSSE pre-authentication encoding, base64
}

// ReceiptPredicate is the content of a receipt. A part that is not implemented yet is null.
type ReceiptPredicate struct {
	Version         int               `json:"version"` // 1
	Product         string            `json:"product"` // version of the product
	RequestID       RequestID         `json:"request_id"`
	SessionID       *SessionID        `json:"session_id"`
	Namespace       Namespace         `json:"namespace"`
	Language        Language          `json:"language"`
	CodeSHA256      string            `json:"code_sha256"`
	Status          Status            `json:"status"`
	ExitCode        int               `json:"exit_code"`
	StartedAt       time.Time         `json:"started_at"`
	EndedAt         time.Time         `json:"ended_at"`
	StdoutSHA256    string            `json:"stdout_sha256"` // hash of stdout as it was returned
	StderrSHA256    string            `json:"stderr_sha256"`
	StdoutTruncated bool              `json:"stdout_truncated"`
	StderrTruncated bool              `json:"stderr_truncated"`
	Artifacts       []ReceiptArtifact `json:"artifacts"`
	Limits          Limits            `json:"limits"`
	Isolation       *Isolation        `json:"isolation"`
	Network         *Network          `json:"network"`
	Secrets         []string          `json:"secrets"`    // names of the secrets that the run got; null: no vault
	Checkpoint      *string           `json:"checkpoint"` // audit checkpoint; null: not implemented
}

// FileSignature is a signature of a file that a caller of the library has signed.
type FileSignature struct {
	Name      string    `json:"name"`
	SizeBytes int64     `json:"size_bytes"`
	SHA256    string    `json:"sha256"`
	SignedAt  time.Time `json:"signed_at"`
	KeyID     string    `json:"keyid"`     // SHA-256 of the public key, hex
	Signature string    `json:"signature"` // ed25519 over the DSSE pre-authentication encoding of the statement, base64
}

// ReceiptArtifact is a file in a receipt.
type ReceiptArtifact struct {
	Path      string `json:"path"` // absolute, below /mnt/data
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256"`
}
