package sign

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"
)

// noteName is the name of the key in signed notes.
const noteName = "sandboxmcp"

// Note signs a text as a signed note: the text, an empty line, and a line with the key's
// name, a short hash of the key and the signature. The text must end with a newline.
func (k *Key) Note(text string) (string, error) {
	v, err := k.verifier()
	if err != nil {
		return "", fmt.Errorf("sign note: %w", err)
	}
	signed, err := note.Sign(&note.Note{Text: text}, noteSigner{v, k.private})
	if err != nil {
		return "", fmt.Errorf("sign note: %w", err)
	}
	return string(signed), nil
}

// OpenNote checks a note that [Key.Note] has made and returns its text. public is the
// public half of the key. OpenNote accepts only the exact bytes that Note returned: no
// further signatures and no other spelling.
func OpenNote(public ed25519.PublicKey, signed string) (text string, err error) {
	v, err := noteVerifier(public)
	if err != nil {
		return "", fmt.Errorf("check note: %w", err)
	}
	n, err := note.Open([]byte(signed), note.VerifierList(v))
	if _, ok := errors.AsType[*note.UnverifiedNoteError](err); ok {
		return "", errors.New("it is signed by another key")
	}
	if err != nil {
		return "", errors.New("its signature does not fit")
	}
	raw, err := base64.StdEncoding.DecodeString(n.Sigs[0].Base64)
	if err != nil || n.Text+"\n— "+noteName+" "+base64.StdEncoding.EncodeToString(raw)+"\n" != signed {
		return "", errors.New("it is not byte for byte what was signed")
	}
	return n.Text, nil
}

func noteVerifier(public ed25519.PublicKey) (note.Verifier, error) {
	text, err := note.NewEd25519VerifierKey(noteName, public)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(text)
}

// noteSigner signs notes. Its Verifier verifies them.
type noteSigner struct {
	note.Verifier

	private ed25519.PrivateKey
}

// Sign returns the signature over a note's text.
func (s noteSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.private, msg), nil }

// OpenNote is the function [OpenNote] with the key's own public half.
func (k *Key) OpenNote(signed string) (text string, err error) { return OpenNote(k.public, signed) }
