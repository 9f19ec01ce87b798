package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Files of the checksums.
const (
	sumsFile      = "SHA256SUMS"
	signatureFile = sumsFile + ".sig"
)

// readKey reads the private key that signs a release: Ed25519, as `openssl genpkey` writes it.
func readKey(file string) (ed25519.PrivateKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	refuse := func(why string) (ed25519.PrivateKey, error) {
		return nil, fmt.Errorf("the signing key %s %s; make one with: openssl genpkey -algorithm ed25519 -out %s", file, why, file)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" {
		return refuse("is no private key in PEM without a password")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return refuse("cannot be parsed")
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return refuse("is not of the algorithm Ed25519")
	}
	return private, nil
}

// sign writes the signature of SHA256SUMS, its 64 bytes alone, if there is a key.
func (r *release) sign() error {
	if r.key == nil {
		return nil
	}
	sums, err := os.ReadFile(filepath.Join(r.out, sumsFile))
	if err != nil {
		return err
	}
	signature := ed25519.Sign(r.key, sums)
	public, ok := r.key.Public().(ed25519.PublicKey)
	if !ok || !ed25519.Verify(public, sums, signature) {
		return errors.New("the signature cannot be verified")
	}
	return os.WriteFile(filepath.Join(r.out, signatureFile), signature, 0o644)
}
