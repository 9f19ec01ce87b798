package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// systemCertificates lists the files in which systems keep their certificate authorities.
var systemCertificates = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

const (
	shownCertificates = "/etc/ssl/sandboxmcp.pem" // where sandboxes see the configured file
	maxCertificates   = 8 << 20
)

// certificates returns the file of certificate authorities as sandboxes see it, and the trees that
// show it, if any are needed.
func (b *Backend) certificates() (inside string, shown []jail.Tree) {
	if own := b.cfg.CertFile; own != "" {
		seen := jail.Shows
		if b.cfg.Root != "" {
			seen = inNone
		}
		target, err := certificateFile(own, seen)
		switch {
		case err != nil:
			b.log.Warn("the file of certificates is not shown in sandboxes; they have the system's", "file", own, "error", err)
		case b.cfg.Root == "" && jail.Shows(own) && jail.Shows(target):
			return own, nil
		default:
			return shownCertificates, []jail.Tree{{Host: target, Inside: shownCertificates}}
		}
	}
	if b.cfg.Root != "" {
		return certificatesBelow(b.cfg.Root), nil
	}
	for _, path := range systemCertificates {
		if target, err := certificateFile(path, jail.Shows); err == nil && jail.Shows(path) && jail.Shows(target) {
			return path, nil
		}
	}
	return "", nil
}

// certificatesBelow returns the file of certificate authorities of a root file system as its
// programs see it; empty: it has none.
func certificatesBelow(root string) string {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	for _, path := range systemCertificates {
		if st, err := dir.Stat(strings.TrimPrefix(path, "/")); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
			return path
		}
	}
	return ""
}

// inNone says that sandboxes see no file anyway.
func inNone(string) bool { return false }

// certificateFile checks that a file contains certificates and no private key, and that programs in
// sandboxes can read it. It returns the path with all links resolved. Of a file that sandboxes see anyway it
// reads only the beginning, up to a certificate.
func certificateFile(path string, seen func(target string) bool) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("it is not named by an absolute path")
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(target)
	switch {
	case err != nil:
		return "", err
	case !st.Mode().IsRegular() || st.Size() > maxCertificates:
		return "", errors.New("it is no file, or a very large one")
	case os.Geteuid() == 0 && st.Mode().Perm()&0o004 == 0:
		return "", errors.New("not everybody may read it")
	}
	private, certificate, err := holds(target, seen(target))
	switch {
	case err != nil:
		return "", err
	case private:
		return "", errors.New("it holds a private key")
	case !certificate:
		return "", errors.New("it holds no certificate")
	}
	return target, nil
}

// holds reports whether a file contains a private key or a certificate. It reads the file in pieces,
// because it is large and new memory is slow. With first set it reads up to a certificate.
func holds(file string, first bool) (private, certificate bool, err error) {
	const key, cert, overlap = "PRIVATE KEY", "CERTIFICATE-----", 16
	f, err := os.Open(file)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 16<<10)
	for had, total := 0, 0; total <= maxCertificates; {
		n, err := f.Read(buf[had:])
		piece := buf[:had+n]
		private = private || bytes.Contains(piece, []byte(key))
		certificate = certificate || bytes.Contains(piece, []byte(cert))
		if errors.Is(err, io.EOF) || first && certificate {
			return private, certificate, nil
		}
		if err != nil {
			return false, false, err
		}
		total += n
		had = copy(buf, piece[max(0, len(piece)-overlap):])
	}
	return false, false, errors.New("it is very large")
}
