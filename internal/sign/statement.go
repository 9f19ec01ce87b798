package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	// artifactPredicateType identifies version 1 of an artifact's statement.
	artifactPredicateType = "https://github.com/sandboxmcp/sandboxmcp/artifact/v1"
	// filePredicateType identifies version 1 of the statement of a file that a caller signs.
	filePredicateType = "https://github.com/sandboxmcp/sandboxmcp/file/v1"
	receiptVersion    = 1
	// codeSubject is the subject of a receipt without artifacts.
	codeSubject = "code"
)

// Statement is the content of a receipt. Its subjects follow from the predicate: the
// artifacts by their paths or, without artifacts, the code under the name "code".
type Statement struct {
	Predicate sandboxmcp.ReceiptPredicate
}

// ArtifactStatement is the content that an artifact's signature covers: this file, at this
// path, was left by this run of this code.
type ArtifactStatement struct {
	Namespace  sandboxmcp.Namespace
	RequestID  sandboxmcp.RequestID
	SessionID  *sandboxmcp.SessionID // nil: the run had no session
	Path       string                // absolute, below /mnt/data; valid UTF-8
	SizeBytes  int64
	SHA256     string // of the content, hex
	CodeSHA256 string // of the code that ran, hex
	CreatedAt  time.Time
}

// The statement in its signed form. The order of the fields is the order of the JSON
// members. It must not change, because an artifact's statement is built again when its
// signature is checked.
type (
	statement[P any] struct {
		Type          string    `json:"_type"`
		Subject       []subject `json:"subject"`
		PredicateType string    `json:"predicateType"`
		Predicate     P         `json:"predicate"`
	}
	subject struct {
		Name   string `json:"name"`
		Digest digest `json:"digest"`
	}
	digest struct {
		SHA256 string `json:"sha256"`
	}
	artifactPredicate struct {
		Version    int                   `json:"version"`
		Namespace  sandboxmcp.Namespace  `json:"namespace"`
		RequestID  sandboxmcp.RequestID  `json:"request_id"`
		SessionID  *sandboxmcp.SessionID `json:"session_id"`
		SizeBytes  int64                 `json:"size_bytes"`
		CodeSHA256 string                `json:"code_sha256"`
		CreatedAt  time.Time             `json:"created_at"` // RFC 3339, UTC, up to nine digits
	}
	filePredicate struct {
		Version   int       `json:"version"`
		SizeBytes int64     `json:"size_bytes"`
		SignedAt  time.Time `json:"signed_at"`
	}
)

// Receipt signs stmt. If its version is 0, Receipt sets the current one. It fails on an
// invalid hash and on text that is not UTF-8.
func (k *Key) Receipt(stmt Statement) (sandboxmcp.Receipt, error) {
	p := stmt.Predicate
	if p.Version == 0 {
		p.Version = receiptVersion
	}
	if p.Version != receiptVersion {
		return sandboxmcp.Receipt{}, fmt.Errorf("sign a receipt: version %d is not known", p.Version)
	}
	if p.Artifacts == nil {
		p.Artifacts = []sandboxmcp.ReceiptArtifact{}
	}
	subjects, err := subjectsOf(p)
	if err != nil {
		return sandboxmcp.Receipt{}, fmt.Errorf("sign a receipt: %w", err)
	}
	payload, err := encode(statement[sandboxmcp.ReceiptPredicate]{
		Type: statementType, Subject: subjects, PredicateType: sandboxmcp.ReceiptPredicateType, Predicate: p,
	})
	if err != nil {
		return sandboxmcp.Receipt{}, fmt.Errorf("sign a receipt: %w", err)
	}
	return sandboxmcp.Receipt{
		PayloadType: payloadType,
		Payload:     base64.StdEncoding.EncodeToString(payload),
		Signatures:  []sandboxmcp.ReceiptSignature{{KeyID: k.id, Sig: k.sign(payload)}},
	}, nil
}

// Verify checks that r is a receipt signed by public, and returns its content. Do not use
// the content of a receipt before that. The error says which check failed.
func Verify(r sandboxmcp.Receipt, public ed25519.PublicKey) (sandboxmcp.ReceiptPredicate, error) {
	p, err := verify(r, public)
	if err != nil {
		return sandboxmcp.ReceiptPredicate{}, fmt.Errorf("verify the receipt: %w", err)
	}
	return p, nil
}

func verify(r sandboxmcp.Receipt, public ed25519.PublicKey) (p sandboxmcp.ReceiptPredicate, err error) {
	if r.PayloadType != payloadType {
		return p, fmt.Errorf("the payload is of type %s", sandboxmcp.Quote(r.PayloadType))
	}
	if len(r.Signatures) != 1 {
		return p, fmt.Errorf("it has %d signatures, not one", len(r.Signatures))
	}
	if id := KeyID(public); r.Signatures[0].KeyID != id {
		return p, fmt.Errorf("it was signed with the key %s, not with %s", sandboxmcp.Quote(r.Signatures[0].KeyID), id)
	}
	payload, err := decode(r.Payload)
	if err != nil {
		return p, fmt.Errorf("the payload is not base64: %w", err)
	}
	if err = check(public, payload, r.Signatures[0].Sig); err != nil {
		return p, err
	}
	// The key also signs artifacts, so a valid signature alone does not make a receipt.
	var s statement[sandboxmcp.ReceiptPredicate]
	if err = json.Unmarshal(payload, &s); err != nil {
		return p, fmt.Errorf("the statement: %w", err)
	}
	if s.Type != statementType || s.PredicateType != sandboxmcp.ReceiptPredicateType || s.Predicate.Version != receiptVersion {
		return p, fmt.Errorf("it states %s, which is no receipt of version %d", sandboxmcp.Quote(s.PredicateType), receiptVersion)
	}
	want, err := subjectsOf(s.Predicate)
	if err != nil {
		return p, err
	}
	if !reflect.DeepEqual(s.Subject, want) {
		return p, errors.New("its subjects are not its artifacts")
	}
	return s.Predicate, nil
}

// Artifact signs the artifact's statement and returns the signature in base64. It fails on
// an invalid hash and on a path that is not UTF-8.
func (k *Key) Artifact(a ArtifactStatement) (signature string, err error) {
	payload, err := a.payload()
	if err != nil {
		return "", fmt.Errorf("sign the artifact %s: %w", sandboxmcp.Quote(a.Path), err)
	}
	return k.sign(payload), nil
}

// VerifyArtifact checks that signature is public's signature over exactly these fields. The
// caller checks that the content has the hash a.SHA256.
func VerifyArtifact(a ArtifactStatement, signature string, public ed25519.PublicKey) error {
	payload, err := a.payload()
	if err == nil {
		err = check(public, payload, signature)
	}
	if err != nil {
		return fmt.Errorf("verify the artifact %s: %w", sandboxmcp.Quote(a.Path), err)
	}
	return nil
}

func (a ArtifactStatement) payload() ([]byte, error) {
	s, err := newSubject(a.Path, a.SHA256)
	if err != nil {
		return nil, err
	}
	if !isSHA256(a.CodeSHA256) {
		return nil, errors.New("the hash of the code is no SHA-256")
	}
	for _, text := range []string{string(a.Namespace), string(a.RequestID), sessionText(a.SessionID)} {
		if !utf8.ValidString(text) {
			return nil, errors.New("an id is not UTF-8")
		}
	}
	return encode(statement[artifactPredicate]{
		Type: statementType, Subject: []subject{s}, PredicateType: artifactPredicateType,
		Predicate: artifactPredicate{
			Version: receiptVersion, Namespace: a.Namespace, RequestID: a.RequestID, SessionID: a.SessionID,
			SizeBytes: a.SizeBytes, CodeSHA256: a.CodeSHA256, CreatedAt: a.CreatedAt.UTC(),
		},
	})
}

// FileStatement is the content that the signature of a file covers: this file, under this
// name, was signed at this time.
type FileStatement struct {
	Name      string // valid UTF-8
	SizeBytes int64
	SHA256    string // of the content, hex
	SignedAt  time.Time
}

// File signs the statement and returns the signature in base64. It fails on an invalid hash and
// on a name that is not UTF-8.
func (k *Key) File(f FileStatement) (signature string, err error) {
	payload, err := f.payload()
	if err != nil {
		return "", fmt.Errorf("sign the file %s: %w", sandboxmcp.Quote(f.Name), err)
	}
	return k.sign(payload), nil
}

// VerifyFile checks that signature is public's signature over exactly these fields. The caller
// checks that the content has the hash f.SHA256.
func VerifyFile(f FileStatement, signature string, public ed25519.PublicKey) error {
	payload, err := f.payload()
	if err == nil {
		err = check(public, payload, signature)
	}
	if err != nil {
		return fmt.Errorf("verify the file %s: %w", sandboxmcp.Quote(f.Name), err)
	}
	return nil
}

func (f FileStatement) payload() ([]byte, error) {
	s, err := newSubject(f.Name, f.SHA256)
	if err != nil {
		return nil, err
	}
	return encode(statement[filePredicate]{
		Type: statementType, Subject: []subject{s}, PredicateType: filePredicateType,
		Predicate: filePredicate{Version: receiptVersion, SizeBytes: f.SizeBytes, SignedAt: f.SignedAt.UTC()},
	})
}

func sessionText(id *sandboxmcp.SessionID) string {
	if id == nil {
		return ""
	}
	return string(*id)
}

func subjectsOf(p sandboxmcp.ReceiptPredicate) ([]subject, error) {
	if len(p.Artifacts) == 0 {
		s, err := newSubject(codeSubject, p.CodeSHA256)
		return []subject{s}, err
	}
	all := make([]subject, len(p.Artifacts))
	for i, a := range p.Artifacts {
		s, err := newSubject(a.Path, a.SHA256)
		if err != nil {
			return nil, err
		}
		all[i] = s
	}
	return all, nil
}

func newSubject(name, sum string) (subject, error) {
	if name == "" || !utf8.ValidString(name) {
		return subject{}, fmt.Errorf("the path %s is empty or not UTF-8", sandboxmcp.Quote(name))
	}
	if !isSHA256(sum) {
		return subject{}, fmt.Errorf("the hash of %s is no SHA-256", sandboxmcp.Quote(name))
	}
	return subject{Name: name, Digest: digest{SHA256: sum}}, nil
}

func isSHA256(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == s
}

// encode encodes v as encoding/json does, but without its HTML escapes, so that programs in
// other languages get the same bytes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
