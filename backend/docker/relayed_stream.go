package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Places of the first program in a container: where an engine on this machine shows it, and where a
// shell of the image writes it otherwise.
const (
	relayProgram = doorDir + "/relay"
	bootstrapped = "/run/relay"
)

// bootstrap is the first program of a container on another machine: it writes the relay, which comes
// as one line of octal escapes, and executes it. The image may have another PATH.
const bootstrap = `PATH=/usr/local/bin:/usr/bin:/bin; IFS= read -r relay && printf %b "$relay" >` + bootstrapped + ` && chmod 755 ` + bootstrapped + ` && exec ` + bootstrapped

// line is the engine's stream to a container's first process. The output of the process comes in frames
// with a head, which names stdout or stderr.
type line struct {
	conn io.WriteCloser
	r    *bufio.Reader
	left uint32 // bytes of the frame that have not been read

	mu   sync.Mutex
	errs strings.Builder // the beginning of stderr
}

func newStream(conn io.WriteCloser, r *bufio.Reader) *line { return &line{conn: conn, r: r} }

// mostErrors bounds the bytes of stderr that are kept.
const mostErrors = 400

// Read reads stdout.
func (l *line) Read(p []byte) (int, error) {
	for l.left == 0 {
		var head [8]byte
		if _, err := io.ReadFull(l.r, head[:]); err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(head[4:])
		switch head[0] {
		case 1:
			l.left = size
		case 2, 3: // stderr, and messages of the engine
			if err := l.hear(int64(size)); err != nil {
				return 0, err
			}
		default:
			return 0, errors.New("the engine's stream is damaged")
		}
	}
	n, err := l.r.Read(p[:min(uint32(len(p)), l.left)])
	l.left -= uint32(n)
	return n, err
}

// hear keeps the beginning of stderr.
func (l *line) hear(size int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := min(size, int64(mostErrors-l.errs.Len()))
	if _, err := io.CopyN(&l.errs, l.r, keep); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, l.r, size-keep)
	return err
}

// said returns the stderr of the first process, for an error message.
func (l *line) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errs.Len() == 0 {
		return ""
	}
	return fmt.Sprintf(": %q", strings.TrimSpace(l.errs.String()))
}

// Write writes to stdin.
func (l *line) Write(p []byte) (int, error) { return l.conn.Write(p) }

// Close ends stdin. This ends the container, because its stdin opens only once.
func (l *line) Close() error { return l.conn.Close() }

// bootstrap sends the program to the shell that starts it.
func (l *line) bootstrap(program []byte) error {
	text := make([]byte, 0, 5*len(program)+1)
	for _, b := range program {
		text = append(text, '\\', '0', '0'+b>>6, '0'+b>>3&7, '0'+b&7)
	}
	_, err := l.conn.Write(append(text, '\n'))
	return err
}
