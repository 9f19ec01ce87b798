package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

// Sign signs a file of the caller with the key of the state directory. The signature covers
// the name, the content and the time. It fails with invalid_argument if the name is empty or
// not UTF-8.
func (e *Engine) Sign(name string, content []byte) (sandboxmcp.FileSignature, error) {
	s := sandboxmcp.FileSignature{
		Name: name, SizeBytes: int64(len(content)), SHA256: digest(content),
		SignedAt: e.cfg.Now().UTC(), KeyID: e.key.ID(),
	}
	var err error
	if s.Signature, err = e.key.File(statementOf(s)); err != nil || name == "" {
		return sandboxmcp.FileSignature{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a file named %s cannot be signed", sandboxmcp.Quote(name)).
			WithHint("give it a name in UTF-8").WithCause(err)
	}
	return s, nil
}

// Verify checks that the content is that of a file which [Engine.Sign] signed with the key of
// this state directory, and that no field of the signature was changed. It fails with
// invalid_content.
func (e *Engine) Verify(content []byte, s sandboxmcp.FileSignature) error {
	wrong := func(what string) *sandboxmcp.Error {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the signature of %s does not hold: %s", sandboxmcp.Quote(s.Name), what).
			WithHint("use the file and the signature as they were made")
	}
	switch {
	case s.KeyID != e.key.ID():
		return wrong("it was made with another key")
	case s.SizeBytes != int64(len(content)) || s.SHA256 != digest(content):
		return wrong("the content is another")
	}
	if err := sign.VerifyFile(statementOf(s), s.Signature, e.key.Public()); err != nil {
		return wrong("its fields are not those that were signed").WithCause(err)
	}
	return nil
}

func statementOf(s sandboxmcp.FileSignature) sign.FileStatement {
	return sign.FileStatement{Name: s.Name, SizeBytes: s.SizeBytes, SHA256: s.SHA256, SignedAt: s.SignedAt}
}

// VerifyReceipt checks that a receipt was signed with the key of this state directory, and
// returns its content. It fails with invalid_content.
func (e *Engine) VerifyReceipt(r sandboxmcp.Receipt) (sandboxmcp.ReceiptPredicate, error) {
	p, err := sign.Verify(r, e.key.Public())
	if err != nil {
		return sandboxmcp.ReceiptPredicate{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the receipt does not hold: %s", err).
			WithHint("use the receipt as it was made, with the state directory that made it")
	}
	return p, nil
}

// Manifest returns the SHA-256 of each file that an ended run has left, by its name.
func (e *Engine) Manifest(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID) (map[string]string, error) {
	res, err := e.Lookup(ctx, c, sandboxmcp.Lookup{RequestID: id})
	if err != nil {
		return nil, err
	}
	manifest := make(map[string]string, len(res.Artifacts))
	for _, f := range res.Artifacts {
		manifest[f.Name] = f.SHA256
	}
	return manifest, nil
}
