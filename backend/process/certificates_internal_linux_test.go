package process

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestKeysAreFoundAcrossPieces: a private key or a certificate is found wherever it begins in a file.
func TestKeysAreFoundAcrossPieces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := bytes.Repeat([]byte("a"), 52<<10)
	const piece, overlap = 16 << 10, 16
	for _, edge := range []int{piece, 2*piece - overlap, 3*piece - 2*overlap} {
		for at := edge - 20; at < edge+2; at++ {
			for mark, want := range map[string][2]bool{"PRIVATE KEY": {true, false}, "CERTIFICATE-----": {false, true}} {
				whole := bytes.Clone(text)
				copy(whole[at:], mark)
				if err := os.WriteFile(file, whole, 0o600); err != nil {
					t.Fatal(err)
				}
				private, certificate, err := holds(file, false)
				if got := [2]bool{private, certificate}; got != want || err != nil {
					t.Errorf("%s at %d: got %v, %v, want %v", mark, at, got, err, want)
				}
			}
		}
	}
	if err := os.WriteFile(file, append(bytes.Repeat([]byte("CERTIFICATE-----"), 2<<10), "PRIVATE KEY"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, first := range []bool{false, true} {
		if private, certificate, err := holds(file, first); private == first || !certificate || err != nil {
			t.Errorf("a key after 32 KiB of certificates, first %v: got %v, %v, %v, want it found if all is read", first, private, certificate, err)
		}
	}
	if err := os.WriteFile(file, make([]byte, maxCertificates+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := holds(file, false); err == nil {
		t.Error("a file above the limit: got no error, want one")
	}
}
