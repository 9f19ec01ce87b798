package api

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"io/fs"
	"net/http"
	"os"

	"github.com/sandboxmcp/sandboxmcp"
)

// The kernel names the user of a socket's peer. Commands of the host that a model has executed
// have the server's user, too, and Landlock does not keep them from connecting. It keeps them from
// reading the state directory. So a peer also proves that it can read there: it sends the content
// of a file beside the socket.
const (
	proofHeader = "Sandboxmcp-Proof"
	proofSuffix = ".key"
	maxProof    = 256
)

// writeProof makes the file with the proof of a server.
func writeProof(dir *os.Root, id string) (proof string, err error) {
	proof = rand.Text()
	f, err := dir.OpenFile(id+proofSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(proof)
	return proof, errors.Join(err, f.Close())
}

// checkProof refuses a request without the proof.
func checkProof(r *http.Request, proof string) error {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(proofHeader)), []byte(proof)) == 1 {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the caller has not proved that it can read the state directory").
		WithHint("use the same release of sandboxmcp on both sides")
}

// readProof returns the proof of the server with that id. A server of an older release has none.
func readProof(stateDir, id string) (string, error) {
	text, err := os.ReadFile(stateDir + "/" + runDir + "/" + id + proofSuffix)
	if errors.Is(err, fs.ErrNotExist) || len(text) > maxProof {
		return "", nil
	}
	return string(text), err
}
