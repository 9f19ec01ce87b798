package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// liveOf returns what a live session holds. It counts as use of the session.
func (e *Engine) liveOf(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (*liveSession, error) {
	if _, err := sandboxmcp.ParseSessionID(string(id)); err != nil {
		return nil, err
	}
	s, err := e.sessions.Find(ctx, ns, id)
	if err != nil {
		return nil, err
	}
	r, ok := s.Room().(*liveSession)
	if !ok {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "session %s is being made", sandboxmcp.Quote(string(id)))
	}
	return r, nil
}

// goneError returns the reason if err says that the session's sandbox was closed during
// an operation, else nil.
func (e *Engine) goneError(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, r *liveSession, err error) error {
	if !errors.Is(err, fs.ErrClosed) {
		return nil
	}
	s, err := e.sessions.Find(ctx, ns, id)
	if err == nil && s.Room() != r { // a new session has this id
		err = sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s was closed meanwhile", sandboxmcp.Quote(string(id))).
			WithHint("a new session has its id")
	}
	return err
}

// Upload writes a file into a session's working directory. If the upload names no
// session, it creates one. It works during a run.
func (e *Engine) Upload(ctx context.Context, c sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	c, err := e.caller(c)
	if err != nil {
		return "", "", err
	}
	name, err := workName(u.Name)
	if err != nil {
		return "", "", err
	}
	r, err := e.liveFor(ctx, c, &u)
	if err != nil {
		return "", "", err
	}
	err = r.Put(ctx, name, u.Content, u.Overwrite)
	if gone := e.goneError(ctx, c.Namespace, u.SessionID, r, err); gone != nil {
		return "", "", gone
	}
	if err != nil {
		return "", "", putError(name, err)
	}
	if masks, err := e.masksOf(ctx, c.Namespace, r); err == nil {
		e.log.Info("file_uploaded", "session_id", u.SessionID, "name", masks.Text(name), "bytes", len(u.Content))
	}
	return u.SessionID, path.Join(backend.WorkDir, name), nil
}

// liveFor returns what the session of an upload holds, and creates the session if needed.
func (e *Engine) liveFor(ctx context.Context, c sandboxmcp.Caller, u *sandboxmcp.Upload) (*liveSession, error) {
	if u.SessionID != "" {
		r, err := e.liveOf(ctx, c.Namespace, u.SessionID)
		if u.Session == nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
			return r, err
		}
	}
	spec := sandboxmcp.SessionSpec{}
	if u.Session != nil {
		spec = *u.Session
	}
	spec.ID = u.SessionID
	s, err := e.CreateSession(ctx, c, spec)
	if err != nil {
		return nil, err
	}
	u.SessionID = s.ID
	return e.liveOf(ctx, c.Namespace, u.SessionID)
}

func putError(name string, err error) error {
	quoted := sandboxmcp.Quote(name)
	switch {
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
	case errors.Is(err, syscall.EAGAIN):
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "%s cannot be written now: the program has used up its processes", quoted)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s could not be written", quoted).WithCause(err)
}

// workName turns a path below /mnt/data, absolute or relative to it, into a name for
// backend.Files.
func workName(p string) (string, error) {
	bad := sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "%s is no path of a file below %s", sandboxmcp.Quote(p), backend.WorkDir)
	if p == "" || strings.ContainsRune(p, 0) || slices.Contains(strings.Split(p, "/"), "..") || strings.HasPrefix(p, "//") {
		return "", bad
	}
	if path.IsAbs(p) {
		rest, ok := strings.CutPrefix(path.Clean(p), backend.WorkDir+"/")
		if !ok {
			return "", bad
		}
		return rest, nil
	}
	if p = path.Clean(p); p == "." {
		return "", bad
	}
	return p, nil
}

// errLarge reports a file above the size limit.
var errLarge = errors.New("too large")

// readFile reads a regular file of at most limit bytes.
func readFile(ctx context.Context, files backend.FileReader, name string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	f, err := files.Open(ctx, name)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	defer f.Close()
	st, err := f.Stat(ctx)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
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

// ReadFile reads a file of a session. It fails with artifact_too_large if the file has
// more than limit bytes. It works during a run.
func (e *Engine) ReadFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, p string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	if _, err = sandboxmcp.ParseSessionID(string(id)); err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	name, err := workName(p)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	r, err := e.liveOf(ctx, c.Namespace, id)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	masks, err := e.masksOf(ctx, c.Namespace, r)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	f, data, err := readFile(ctx, r.Sandbox().Files(), unmasked(ctx, r.Sandbox().Files(), masks, name), limit)
	f.Path, f.Filename = masks.Text(f.Path), masks.Text(f.Filename)
	if gone := e.goneError(ctx, c.Namespace, id, r, err); gone != nil {
		return f, nil, gone
	}
	switch {
	case err == nil:
		if key := masks.Find(data); key != "" && !e.cfg.AllowSecretArtifacts {
			return f, nil, secretFileError(p, key)
		}
		return f, data, nil
	case ctx.Err() != nil:
		return f, nil, cancelledError(ctx)
	case errors.Is(err, errLarge):
		return f, nil, sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "%s has %d bytes; %d are allowed", sandboxmcp.Quote(p), f.SizeBytes, limit).With("size_bytes", f.SizeBytes).With("limit_bytes", limit)
	default: // links and other irregular files count as missing
		return f, nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is not there", sandboxmcp.Quote(p)).WithCause(maskCause(masks, err))
	}
}

// RemoveFile removes a file of a session.
func (e *Engine) RemoveFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, p string) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	name, err := workName(p)
	if err != nil {
		return err
	}
	r, err := e.liveOf(ctx, c.Namespace, id)
	if err != nil {
		return err
	}
	masks, err := e.masksOf(ctx, c.Namespace, r)
	if err != nil {
		return err
	}
	if err := r.Sandbox().Files().Remove(ctx, unmasked(ctx, r.Sandbox().Files(), masks, name)); err != nil {
		if ctx.Err() != nil {
			return cancelledError(ctx)
		}
		if gone := e.goneError(ctx, c.Namespace, id, r, err); gone != nil {
			return gone
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is not there, or is a directory", sandboxmcp.Quote(p)).WithCause(maskCause(masks, err))
	}
	return nil
}

// Bounds of bridged values.
const (
	maxBridgeKey   = 128
	maxBridgeKeys  = 100
	maxBridgeBytes = 4 << 20 // of one call, and of the values stored for a namespace
)

func checkBridgeKey(k string) error {
	ok := k != "" && len(k) <= maxBridgeKey && !strings.HasPrefix(k, ".")
	for _, c := range k {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-.", c))
	}
	if !ok {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "bridge key %s is not 1 to %d characters of A-Z a-z 0-9 _ - . that begin with no point", sandboxmcp.Quote(k), maxBridgeKey)
	}
	return nil
}

// Bridge hands values, from the caller or from one session, to another session. Without a
// target it keeps them for sessions that the namespace creates later.
func (e *Engine) Bridge(ctx context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	out := sandboxmcp.Bridged{Data: map[string]json.RawMessage{}, Keys: []string{}}
	c, err := e.caller(c)
	if err != nil {
		return out, err
	}
	if (b.Data == nil) == (b.From == "") {
		return out, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "either data or from_session is needed")
	}
	if len(b.Keys) > maxBridgeKeys {
		return out, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d keys are named; %d are allowed at once", len(b.Keys), maxBridgeKeys)
	}
	for _, k := range b.Keys {
		if err = checkBridgeKey(k); err != nil {
			return out, err
		}
	}
	var to *liveSession
	if b.To != "" {
		if to, err = e.liveOf(ctx, c.Namespace, b.To); err != nil {
			return out, err
		}
	}
	if b.From != "" {
		if b.Data, err = e.bridgeOut(ctx, c, b); err != nil {
			return out, err
		}
	}
	if len(b.Data) > maxBridgeKeys {
		return out, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d values are bridged; %d are allowed at once", len(b.Data), maxBridgeKeys)
	}
	for k, v := range b.Data {
		if err = checkBridgeKey(k); err != nil {
			return out, err
		}
		if v, err = kernel.CleanJSON(v); err != nil {
			return out, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the value of %s cannot be bridged: %s", sandboxmcp.Quote(k), err)
		}
		out.Bytes += int64(len(v))
		out.Keys = append(out.Keys, k)
		out.Data[k] = v
	}
	slices.Sort(out.Keys)
	if out.Bytes > maxBridgeBytes {
		return out, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the values have %d bytes; %d are allowed", out.Bytes, int64(maxBridgeBytes)).WithHint("put large data into a file")
	}
	if to == nil {
		err = e.keepBridge(c.Namespace, out.Data)
	} else {
		err = provideBridge(ctx, to.Sandbox(), out.Data)
		if gone := e.goneError(ctx, c.Namespace, b.To, to, err); gone != nil {
			err = gone
		}
	}
	out.Bridged = err == nil
	return out, err
}

// bridgeOut returns the values that a session has published, with secrets masked. It
// leaves out a value whose key contains a secret: keys are file names that the program
// chose.
func (e *Engine) bridgeOut(ctx context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (map[string]json.RawMessage, error) {
	r, err := e.liveOf(ctx, c.Namespace, b.From)
	if err != nil {
		return nil, err
	}
	masks, err := e.masksOf(ctx, c.Namespace, r)
	if err != nil {
		return nil, err
	}
	data, err := e.takeBridge(ctx, c, b, r)
	if err != nil {
		return nil, (&guard{masker: masks}).failure(sandboxmcp.AsError(err))
	}
	maskBridge(masks, data)
	return data, nil
}

// takeBridge reads the values that a session has published.
func (e *Engine) takeBridge(ctx context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge, r *liveSession) (map[string]json.RawMessage, error) {
	files, keys := r.Sandbox().Files(), b.Keys
	if len(keys) == 0 {
		entries, _, err := files.List(ctx, ".bridge", maxBridgeKeys)
		if err != nil && ctx.Err() != nil {
			return nil, cancelledError(ctx)
		}
		if gone := e.goneError(ctx, c.Namespace, b.From, r, err); gone != nil {
			return nil, gone
		}
		if err != nil {
			return map[string]json.RawMessage{}, nil //nolint:nilerr // no directory: nothing was published
		}
		for _, f := range entries {
			if k, ok := strings.CutSuffix(f.Name, ".json"); ok && checkBridgeKey(k) == nil {
				keys = append(keys, k)
			}
		}
	}
	data, sum := map[string]json.RawMessage{}, 0
	for _, k := range keys {
		_, text, err := readFile(ctx, files, ".bridge/"+k+".json", maxBridgeBytes)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, cancelledError(ctx)
		case errors.Is(err, errLarge):
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the value of %s is larger than %d bytes", sandboxmcp.Quote(k), int64(maxBridgeBytes))
		case err != nil:
			if gone := e.goneError(ctx, c.Namespace, b.From, r, err); gone != nil {
				return nil, gone
			}
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "session %s has published no value %s", sandboxmcp.Quote(string(b.From)), sandboxmcp.Quote(k)).
				WithHint("in the session: sandbox.bridge[" + sandboxmcp.Quote(k) + "] = value")
		}
		data[k] = text
		if sum += len(text); sum > maxBridgeBytes { // bounds the memory that they take here
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the values have more than %d bytes, which is what is allowed", int64(maxBridgeBytes)).WithHint("put large data into a file")
		}
	}
	return data, nil
}

func provideBridge(ctx context.Context, sb backend.Sandbox, data map[string]json.RawMessage) error {
	list := make([]backend.ProgramFile, 0, len(data))
	for k, v := range data {
		list = append(list, backend.ProgramFile{Name: path.Base(backend.BridgeDir) + "/" + k + ".json", Data: v})
	}
	if err := sb.Provide(ctx, list); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the values do not fit into the session").WithHint("put large data into a file")
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the values could not be handed over").WithCause(err)
	}
	return nil
}

// keepBridge keeps values for sessions that a namespace creates later.
func (e *Engine) keepBridge(ns sandboxmcp.Namespace, data map[string]json.RawMessage) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.bridged[ns]
	if kept == nil {
		kept = map[string]json.RawMessage{}
		e.bridged[ns] = kept
	}
	sum := 0
	for k, v := range kept {
		if _, replaced := data[k]; !replaced {
			sum += len(v)
		}
	}
	for _, v := range data {
		sum += len(v)
	}
	if sum > maxBridgeBytes {
		return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the namespace's values would have %d bytes; %d are allowed", sum, int64(maxBridgeBytes))
	}
	maps.Copy(kept, data)
	return nil
}

// bridgeKept gives a new session the values kept for its namespace.
func (e *Engine) bridgeKept(ctx context.Context, ns sandboxmcp.Namespace, sb backend.Sandbox) error {
	e.mu.Lock()
	data := map[string]json.RawMessage{}
	maps.Copy(data, e.bridged[ns])
	e.mu.Unlock()
	if len(data) == 0 {
		return nil
	}
	return provideBridge(ctx, sb, data)
}

// policyText returns SANDBOX_POLICY: JSON in which a session's code can read its limits,
// writable directories and open domains.
func policyText(l sandboxmcp.Limits, open []string) string {
	text, err := json.Marshal(map[string]any{
		"network": map[string]any{"allowed": open}, "writable": []string{backend.WorkDir, backend.TempDir}, "limits": l,
	})
	if err != nil {
		return "{}"
	}
	return string(text)
}
