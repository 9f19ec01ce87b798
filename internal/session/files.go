package session

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
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// Path names a file below the working directory.
type Path struct {
	given string // as the caller wrote it, for errors
	name  string // relative and clean
}

// ParsePath parses a path that a caller gave: relative to the working directory, or absolute
// and below it. It fails with invalid_path.
func ParsePath(p string) (Path, error) {
	bad := sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "%s is no path of a file below %s", sandboxmcp.Quote(p), backend.WorkDir)
	if p == "" || strings.ContainsRune(p, 0) || slices.Contains(strings.Split(p, "/"), "..") || strings.HasPrefix(p, "//") {
		return Path{}, bad
	}
	name := path.Clean(p)
	if path.IsAbs(p) {
		var ok bool
		if name, ok = strings.CutPrefix(name, backend.WorkDir+"/"); !ok {
			return Path{}, bad
		}
	}
	if name == "." {
		return Path{}, bad
	}
	return Path{p, name}, nil
}

// Name returns the path relative to the working directory.
func (p Path) Name() string { return p.name }

// Abs returns the path as programs see it.
func (p Path) Abs() string { return path.Join(backend.WorkDir, p.name) }

// Files is the working directory of a live session as a caller sees it, with secrets masked
// in names. A masked name that a caller gives back stands for the real one. Its methods may
// be called concurrently, also during a run. They fail with session_expired or
// session_not_found if the session ends meanwhile. The cause of their errors is not masked.
type Files struct {
	live  *Live
	masks *redact.Masker // nil: nothing is masked
}

// Files returns the session's working directory. masks may be nil.
func (l *Live) Files(masks *redact.Masker) Files { return Files{l, masks} }

// Put writes a file. It fails with file_exists unless overwrite is set. The session kills no
// process while a file is written, unless that takes longer than writingLimit.
func (l *Live) Put(ctx context.Context, p Path, data []byte, overwrite bool) error {
	l.writing.RLock()
	defer l.writing.RUnlock()
	err := l.cfg.Sandbox.Files().Put(ctx, p.name, data, overwrite)
	if gone := l.goneError(ctx, err); gone != nil {
		return gone
	}
	if err != nil && ctx.Err() != nil {
		return run.Cancelled(ctx)
	}
	return putError(p.name, err)
}

// goneError returns the reason if err says that the session's sandbox was closed during an
// operation, else nil.
func (l *Live) goneError(ctx context.Context, err error) error {
	if !errors.Is(err, fs.ErrClosed) {
		return nil
	}
	k := l.entry.key
	s, err := l.entry.t.Find(ctx, k.ns, k.id)
	if err == nil && s != l.entry { // a new session has this id
		err = sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s was closed meanwhile", sandboxmcp.Quote(string(k.id))).
			WithHint("a new session has its id")
	}
	return err
}

func putError(name string, err error) error {
	quoted := sandboxmcp.Quote(name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY):
		return sandboxmcp.Errorf(sandboxmcp.CodeFileExists, "%s is there already", quoted).WithHint("set overwrite to replace it, or use another name")
	case errors.Is(err, syscall.ENOSPC):
		return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "%s does not fit: the working directory's quota is used up", quoted).WithHint("remove files, or make the session with more max_ram_mb")
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrInvalid):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "%s cannot be a file: something else has the name, or a part of it", quoted)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "%s is too long a name", quoted)
	case errors.Is(err, fs.ErrPermission):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "%s cannot be written: the program has closed the directory", quoted)
	case errors.Is(err, context.DeadlineExceeded):
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "%s could not be written in time: the program keeps its directory locked, or the disk is slow", quoted)
	case errors.Is(err, syscall.EAGAIN):
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "%s cannot be written now: the program has used up its processes", quoted)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s could not be written", quoted).WithCause(err)
}

// Read returns a file with its content. It fails with artifact_too_large if the file has more
// than limit bytes, and with not_found if it is not a regular file. The content is not
// masked.
func (f Files) Read(ctx context.Context, p Path, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	files := f.live.cfg.Sandbox.Files()
	info, data, err := readFile(ctx, files, f.realName(ctx, p.name), limit)
	info.Path, info.Filename = f.masks.Text(info.Path), f.masks.Text(info.Filename)
	if err != nil {
		return info, nil, f.readError(ctx, p, info.SizeBytes, limit, err)
	}
	return info, data, nil
}

// readError returns why a file of size bytes could not be read.
func (f Files) readError(ctx context.Context, p Path, size, limit int64, err error) error {
	if gone := f.live.goneError(ctx, err); gone != nil {
		return gone
	}
	if e, ok := errors.AsType[*sandboxmcp.Error](err); ok {
		return e
	}
	switch {
	case ctx.Err() != nil:
		return run.Cancelled(ctx)
	case errors.Is(err, errLarge):
		return sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "%s has %d bytes; %d are allowed", sandboxmcp.Quote(p.given), size, limit).With("size_bytes", size).With("limit_bytes", limit)
	case errors.Is(err, errMoved):
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "%s changed while it was read", sandboxmcp.Quote(p.given)).WithHint("read it again when no program writes it")
	default: // links and other irregular files count as missing
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is not there", sandboxmcp.Quote(p.given)).WithCause(err)
	}
}

// Remove removes a file.
func (f Files) Remove(ctx context.Context, p Path) error {
	err := f.live.cfg.Sandbox.Files().Remove(ctx, f.realName(ctx, p.name))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return run.Cancelled(ctx)
	}
	if gone := f.live.goneError(ctx, err); gone != nil {
		return gone
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is not there, or is a directory", sandboxmcp.Quote(p.given)).WithCause(err)
}

// realName returns the real name of a file whose name was shown masked, or name if there is
// no such file.
func (f Files) realName(ctx context.Context, name string) string {
	if f.masks == nil || !strings.Contains(name, redact.Mask) {
		return name
	}
	found, _ := artifact.Survey(ctx, f.live.cfg.Sandbox.Files(), nil, artifact.Bounds{})
	for have := range found {
		if f.masks.Text(have) == name {
			return have
		}
	}
	return name
}

// errLarge reports a file above the size limit.
var errLarge = errors.New("too large")

// openFile opens a regular file. The caller closes it.
func openFile(ctx context.Context, files backend.FileReader, name string) (backend.File, backend.FileInfo, error) {
	f, err := files.Open(ctx, name)
	if err != nil {
		return nil, backend.FileInfo{}, err
	}
	st, err := f.Stat(ctx)
	if err != nil {
		return nil, st, errors.Join(err, f.Close())
	}
	return f, st, nil
}

// readFile reads a regular file of at most limit bytes.
func readFile(ctx context.Context, files backend.FileReader, name string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	f, st, err := openFile(ctx, files, name)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	defer f.Close()
	out := sandboxmcp.SessionFile{Path: path.Join(backend.WorkDir, name), Filename: path.Base(name), SizeBytes: st.Size}
	if st.Size > limit {
		return out, nil, errLarge
	}
	data, err := io.ReadAll(io.LimitReader(backend.Reading(ctx, f), limit+1))
	switch {
	case err != nil:
		return out, nil, err
	case int64(len(data)) > limit:
		return out, nil, errLarge
	}
	sum := sha256.Sum256(data)
	out.SizeBytes, out.SHA256, out.MIMEType = int64(len(data)), hex.EncodeToString(sum[:]), artifact.MIMEType(name, data)
	return out, data, nil
}

// Bounds of listing files. A sparse file may have many bytes and take little memory of
// its sandbox, but hashing it takes the server's time.
const (
	maxListed   = 5000      // entries of a working directory
	hashedBytes = 64 << 20  // largest file that is hashed
	hashedInAll = 256 << 20 // of all files together, the smallest first
	sniffed     = 4 << 10   // of a file, to detect its type
)

// unlisted returns the failure of a listing that ended with err; nil if err is nil.
func (f Files) unlisted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return run.Cancelled(ctx)
	}
	if gone := f.live.goneError(ctx, err); gone != nil {
		return gone
	}
	if err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the working directory cannot be listed").WithCause(err)
	}
	return nil
}

// List returns the regular files directly in the working directory by name, without hidden
// ones. A file that is too large to hash has no SHA256. The lists of a session are made one after the
// other, because each may take the server a second of a processor.
func (f Files) List(ctx context.Context) ([]sandboxmcp.SessionFile, error) {
	select {
	case f.live.listing <- struct{}{}:
		defer func() { <-f.live.listing }()
	case <-ctx.Done():
		return nil, run.Cancelled(ctx)
	}
	files := f.live.cfg.Sandbox.Files()
	entries, more, err := files.List(ctx, ".", maxListed)
	if err = f.unlisted(ctx, err); err != nil {
		return nil, err
	}
	slices.SortStableFunc(entries, func(a, b backend.FileInfo) int { return cmp.Compare(a.Size, b.Size) })
	list, left := []sandboxmcp.SessionFile{}, int64(hashedInAll)
	for _, info := range entries {
		if !info.Mode.IsRegular() || info.Links > 1 || strings.HasPrefix(info.Name, ".") || artifact.BadName(info.Name) {
			continue
		}
		file := sandboxmcp.SessionFile{Path: path.Join(backend.WorkDir, info.Name), Filename: info.Name, SizeBytes: info.Size, MIMEType: artifact.MIMEType(info.Name, nil)}
		read, there := lookInto(ctx, files, &file, min(hashedBytes, left))
		if left -= read; ctx.Err() != nil {
			return nil, run.Cancelled(ctx)
		}
		if !there {
			continue
		}
		file.Path, file.Filename = f.masks.Text(file.Path), f.masks.Text(file.Filename)
		list = append(list, file)
	}
	slices.SortFunc(list, func(a, b sandboxmcp.SessionFile) int { return strings.Compare(a.Filename, b.Filename) })
	if n := len(list); n > 0 {
		list[n-1].More = more
	}
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
