package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
)

// Bounds of listing files. A sparse file may have many bytes and take little memory of
// its sandbox, but hashing it takes the server's time.
const (
	maxListed   = 5000      // entries of a working directory
	hashedBytes = 64 << 20  // largest file that is hashed
	hashedInAll = 256 << 20 // of all files together, the smallest first
	sniffed     = 4 << 10   // of a file, to detect its type
)

// SessionFiles lists the regular files directly in a session's working directory by name,
// without hidden ones. A file that is too large to hash has no SHA256. It works during a
// run.
func (e *Engine) SessionFiles(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	c, err := e.caller(c)
	if err != nil {
		return nil, err
	}
	ns := c.Namespace
	r, err := e.liveOf(ctx, ns, id)
	if err != nil {
		return nil, err
	}
	masks, err := e.masksOf(ctx, ns, r)
	if err != nil {
		return nil, err
	}
	files := r.Sandbox().Files()
	entries, _, err := files.List(ctx, ".", maxListed)
	if err != nil && ctx.Err() != nil {
		return nil, cancelledError(ctx)
	}
	if gone := e.goneError(ctx, ns, id, r, err); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the working directory cannot be listed").WithCause(err)
	}
	slices.SortStableFunc(entries, func(a, b backend.FileInfo) int { return cmp.Compare(a.Size, b.Size) })
	list, left := []sandboxmcp.SessionFile{}, int64(hashedInAll)
	for _, info := range entries {
		if !info.Mode.IsRegular() || info.Links > 1 || strings.HasPrefix(info.Name, ".") || artifact.BadName(info.Name) {
			continue
		}
		f := sandboxmcp.SessionFile{Path: path.Join(backend.WorkDir, info.Name), Filename: info.Name, SizeBytes: info.Size, MIMEType: artifact.MIMEType(info.Name, nil)}
		read, there := lookInto(ctx, files, &f, min(hashedBytes, left))
		if left -= read; ctx.Err() != nil {
			return nil, cancelledError(ctx)
		}
		if !there {
			continue
		}
		f.Path, f.Filename = masks.Text(f.Path), masks.Text(f.Filename)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b sandboxmcp.SessionFile) int { return strings.Compare(a.Filename, b.Filename) })
	return list, nil
}

// lookInto fills in the size of a file and its type, and its hash if the file has at most
// limit bytes. It returns how many bytes it read, which is at most one more than the size
// at first, and whether the file is there.
func lookInto(ctx context.Context, files backend.FileReader, f *sandboxmcp.SessionFile, limit int64) (read int64, there bool) {
	r, err := files.Open(ctx, f.Filename)
	if err != nil {
		return 0, !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = r.Close() }()
	st, err := r.Stat(ctx)
	if err != nil || st.Size > limit {
		return 0, err == nil
	}
	src := io.LimitReader(backend.Reading(ctx, r), st.Size+1)
	var head bytes.Buffer
	h := sha256.New()
	read, err = io.Copy(io.MultiWriter(&head, h), io.LimitReader(src, sniffed))
	if err == nil && read == sniffed {
		var more int64
		more, err = io.Copy(h, src)
		read += more
	}
	if err != nil || read > st.Size { // it grew while it was read
		return read, true
	}
	f.SizeBytes, f.SHA256, f.MIMEType = read, hex.EncodeToString(h.Sum(nil)), artifact.MIMEType(f.Filename, head.Bytes())
	return read, true
}
