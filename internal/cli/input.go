package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxStdin bounds the stdin of a program, which is held in memory.
const maxStdin = 64 << 20

// readAll reads at most limit bytes. It returns when ctx ends, even if the read does not.
func readAll(ctx context.Context, r io.Reader, limit int64) ([]byte, error) {
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, limit+1))
		if err == nil && int64(len(data)) > limit {
			err = &plainfile.TooLargeError{Limit: limit}
		}
		if data == nil {
			data = []byte{}
		}
		done <- read{data, err}
	}()
	select {
	case got := <-done:
		return got.data, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readFile reads a file, a pipe or a device of at most limit bytes.
func readFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	in, err := openInput(ctx, path, limit)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return readAll(ctx, in.file, limit)
}

// input is a file, pipe or device that is read on demand.
type input struct {
	file  *os.File
	size  int64 // -1: unknown
	left  int64 // bytes that may still be read
	limit int64
}

// inputError is a failed read of an input. The type distinguishes it from an error of the
// input's consumer.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// openInput opens an input of at most limit bytes. If ctx ends first, it returns the
// error of ctx.
func openInput(ctx context.Context, path string, limit int64) (*input, error) {
	f, err := openAny(ctx, path)
	if err != nil {
		return nil, err
	}
	return newInput(f, limit)
}

func newInput(f *os.File, limit int64) (*input, error) {
	in := &input{file: f, size: -1, left: limit, limit: limit}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.IsDir():
		err = errors.New("it is a directory")
	case st.Mode().IsRegular() && st.Size() > limit:
		err = &plainfile.TooLargeError{Size: st.Size(), Limit: limit}
	case st.Mode().IsRegular() && st.Size() > 0: // files in /proc and /sys have size 0
		in.size = st.Size()
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// Read fails if the input has more bytes than its limit.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.file.Read(p[:min(int64(len(p)), in.left+1)])
	if in.left -= int64(n); in.left < 0 {
		err = &plainfile.TooLargeError{Limit: in.limit}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &inputError{err}
	}
	return n, err
}

// Close closes the file. It may be called more than once.
func (in *input) Close() error { return in.file.Close() }

// readFailure converts a read error to an Error. tooLong is the code for an input above the
// limit.
func readFailure(what string, tooLong sandboxmcp.Code, err error) error {
	var large *plainfile.TooLargeError
	var at *fs.PathError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &large) && large.Size > 0:
		return sandboxmcp.Errorf(tooLong, "%s has %d bytes, more than %d", what, large.Size, large.Limit)
	case errors.As(err, &large):
		return sandboxmcp.Errorf(tooLong, "%s has more than %d bytes", what, large.Limit)
	case errors.Is(err, fs.ErrNotExist):
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is not there", what)
	case errors.As(err, &at):
		err = at.Err
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s cannot be read: %v", what, err)
}

func baseName(script string) string {
	if script == "" || script == "-" {
		return ""
	}
	return filepath.Base(script)
}

// fileName returns the base name of the script if it is valid in a sandbox. Otherwise it
// returns "", and the engine chooses a name.
func fileName(script string) string {
	name := baseName(script)
	odd := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
	if odd || name == "" || len(name) > 128 || name[0] == '.' || name[0] == '-' {
		return ""
	}
	return name
}
