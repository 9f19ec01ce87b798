package sign

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Run is what the receipt of a result states besides the result.
type Run struct {
	Product            string // its version
	CodeSHA256         string
	StartedAt, EndedAt time.Time
	Limits             sandboxmcp.Limits
	Secrets            []string // keys of the secrets that the run got
}

// Result signs each artifact of a result and then the receipt, and puts the signatures into
// the result. It returns the hashes of stdout and stderr as the result shows them.
func (k *Key) Result(res *sandboxmcp.Result, run Run) (stdoutSHA256, stderrSHA256 string, err error) {
	files := make([]sandboxmcp.ReceiptArtifact, 0, len(res.Artifacts))
	for i := range res.Artifacts {
		a := &res.Artifacts[i]
		a.Signature, err = k.Artifact(ArtifactStatement{Namespace: res.Namespace, RequestID: res.RequestID, Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256, CodeSHA256: run.CodeSHA256, CreatedAt: a.CreatedAt})
		if err != nil {
			return "", "", fmt.Errorf("sign %s: %w", a.Name, err)
		}
		files = append(files, sandboxmcp.ReceiptArtifact{Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256})
	}
	stdoutSHA256, stderrSHA256 = hashText(res.Stdout), hashText(res.Stderr)
	r, err := k.Receipt(Statement{Predicate: sandboxmcp.ReceiptPredicate{
		Version: receiptVersion, Product: run.Product, RequestID: res.RequestID, SessionID: res.SessionID, Namespace: res.Namespace, Language: res.Language, CodeSHA256: run.CodeSHA256,
		Status: res.Status, ExitCode: res.ExitCode, StartedAt: run.StartedAt.UTC(), EndedAt: run.EndedAt.UTC(),
		StdoutSHA256: stdoutSHA256, StderrSHA256: stderrSHA256, StdoutTruncated: res.StdoutTruncated, StderrTruncated: res.StderrTruncated,
		Artifacts: files, Limits: run.Limits, Isolation: res.Isolation, Network: &res.Network, Secrets: run.Secrets,
	}})
	if err != nil {
		return "", "", fmt.Errorf("sign receipt: %w", err)
	}
	res.Receipt = &r
	return stdoutSHA256, stderrSHA256, nil
}

func hashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
