package sign

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// peerPurpose separates the key of connections from the key that signs.
const peerPurpose = "sandboxmcp connections between servers 1"

// PeerTLS returns the TLS configuration of connections between servers that have the same signing key. Both
// sides prove that they have it. It serves clients and servers.
func (k *Key) PeerTLS() (*tls.Config, error) {
	seed, err := k.Derive(peerPurpose)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public, _ := private.Public().(ed25519.PublicKey)
	// Peers compare the key alone, so that no clock and no name matters.
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sandboxmcp"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of connections: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the key, which no authority has signed
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) > 0 && public.Equal(c.PeerCertificates[0].PublicKey) {
				return nil
			}
			return errors.New("the other server has another signing key")
		},
	}, nil
}
