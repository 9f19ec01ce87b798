package engine

import (
	"context"
	"encoding/json"
	"io"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
)

// liveOf returns a live session. It counts as use of the session.
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

// view is the working directory of a live session, for one call.
type view struct {
	session.Files

	live  *liveSession
	masks *redact.Masker // at the beginning of the call; see masksAfter
}

// filesOf returns the working directory of a session.
func (e *Engine) filesOf(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (view, error) {
	r, err := e.liveOf(ctx, ns, id)
	if err != nil {
		return view{}, err
	}
	masks, err := e.masksOf(ctx, ns, r)
	return view{r.Files(masks), r, masks}, err
}

// masksAfter returns a masker for data that was read from a session. Callers call it after the read: the read may have
// waited, and a program may have received a new secret meanwhile.
func (e *Engine) masksAfter(ctx context.Context, ns sandboxmcp.Namespace, r *liveSession) (*redact.Masker, error) {
	return e.masksOf(context.WithoutCancel(ctx), ns, r)
}

// Upload writes a file into a session's working directory. If the upload names no
// session, it creates one. It works during a run.
func (e *Engine) Upload(ctx context.Context, c sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	c, err := e.caller(c)
	if err != nil {
		return "", "", err
	}
	name, err := session.ParsePath(u.Name)
	if err != nil {
		return "", "", err
	}
	if u.Content, err = e.contentOf(u); err != nil {
		return "", "", err
	}
	r, err := e.liveFor(ctx, c, &u)
	if err != nil {
		return "", "", err
	}
	if err = r.Put(ctx, name, u.Content, u.Overwrite); err != nil {
		return "", "", err
	}
	if masks, err := e.masksOf(ctx, c.Namespace, r); err == nil {
		e.log.Info("file_uploaded", "session_id", u.SessionID, "name", masks.Text(name.Name()), "bytes", len(u.Content))
	}
	return u.SessionID, name.Abs(), nil
}

// liveFor returns the session of an upload, and creates it if needed.
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

// SessionFiles lists the regular files directly in a session's working directory by name,
// without hidden ones. A file that is too large to hash has no SHA256. It works during a
// run.
func (e *Engine) SessionFiles(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	c, err := e.caller(c)
	if err != nil {
		return nil, err
	}
	files, err := e.filesOf(ctx, c.Namespace, id)
	if err != nil {
		return nil, err
	}
	list, err := files.List(ctx)
	if err != nil {
		return nil, err
	}
	masks, err := e.masksAfter(ctx, c.Namespace, files.live)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Path, list[i].Filename = masks.Text(list[i].Path), masks.Text(list[i].Filename)
	}
	return list, nil
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
	name, err := session.ParsePath(p)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	files, err := e.filesOf(ctx, c.Namespace, id)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	f, data, failed := files.Read(ctx, name, limit)
	masks, err := e.masksAfter(ctx, c.Namespace, files.live)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	f.Path, f.Filename = masks.Text(f.Path), masks.Text(f.Filename)
	if failed != nil {
		return f, nil, guard.Masked(masks, failed)
	}
	if key := masks.Find(data); key != "" && !e.cfg.AllowSecretArtifacts {
		return f, nil, guard.FileError(p, key)
	}
	return f, data, nil
}

// OpenFile returns a file of a session as a copy on disk, however large it is, up to limit bytes.
// The caller closes it. It fails as ReadFile does, and with session_busy if the file changes
// meanwhile. It works during a run.
func (e *Engine) OpenFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, p string, limit int64) (sandboxmcp.SessionFile, io.ReadSeekCloser, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	name, err := session.ParsePath(p)
	if err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	for range copyTries {
		files, err := e.filesOf(ctx, c.Namespace, id)
		if err != nil {
			return sandboxmcp.SessionFile{}, nil, err
		}
		f, content, failed := files.Copy(ctx, name, min(limit, int64(e.settings().WorkQuotaMB)<<20)) // a sparse file may claim more
		masks, err := e.masksAfter(ctx, c.Namespace, files.live)
		switch {
		case failed != nil && err == nil:
			return f, nil, guard.Masked(masks, failed)
		case err == nil && masks == files.masks:
			return f, content, nil
		case failed == nil:
			_ = content.Close() // it was searched for other secrets
		}
		if err != nil {
			return sandboxmcp.SessionFile{}, nil, err
		}
	}
	return sandboxmcp.SessionFile{}, nil, sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "the secrets of the namespace changed while %s was copied", sandboxmcp.Quote(p)).
		WithHint("read it again when they have not changed for a while")
}

// copyTries is how often a file is copied if the secrets change meanwhile, for which it is searched.
const copyTries = 3

// copiesConfig bounds the copies of large files to two of the largest that a session can hold.
func (e *Engine) copiesConfig() session.CopiesConfig {
	c := session.CopiesConfig{Temp: e.store.Temp, Bytes: 2 * int64(e.settings().WorkQuotaMB) << 20}
	if !e.cfg.AllowSecretArtifacts {
		c.Refuse = guard.FileError
	}
	return c
}

// RemoveFile removes a file of a session.
func (e *Engine) RemoveFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, p string) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	name, err := session.ParsePath(p)
	if err != nil {
		return err
	}
	files, err := e.filesOf(ctx, c.Namespace, id)
	if err != nil {
		return err
	}
	return guard.Masked(files.masks, files.Remove(ctx, name))
}

// Bridge hands values, from the caller or from one session, to another session. Without a
// target it keeps them for sessions that the namespace creates later.
func (e *Engine) Bridge(ctx context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	c, err := e.caller(c)
	if err == nil {
		err = session.CheckBridge(b)
	}
	var to *liveSession
	if err == nil && b.To != "" {
		if to, err = e.liveOf(ctx, c.Namespace, b.To); sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionNotFound {
			err = sandboxmcp.AsError(err).WithHint("make the session first, by a run in it; without to_session the values wait for sessions that are made later")
		}
	}
	if err == nil && b.From != "" {
		b.Data, err = e.published(ctx, c.Namespace, b)
	}
	if err != nil {
		return sandboxmcp.Bridged{}, err
	}
	out, err := session.CleanValues(b.Data)
	if err != nil {
		return out, err
	}
	if to == nil {
		err = e.bridged.Keep(c.Namespace, out.Data)
	} else {
		err = to.Provide(ctx, out.Data)
	}
	out.Bridged = err == nil
	if b.From != "" && len(out.Keys) == 0 {
		out.Note = "The session has put out no values. " + note.Bridge("df")
	}
	return out, err
}

// published returns the values that a session has published, with secrets masked. It
// leaves out a value whose key contains a secret: keys are file names that the program
// chose.
func (e *Engine) published(ctx context.Context, ns sandboxmcp.Namespace, b sandboxmcp.Bridge) (map[string]json.RawMessage, error) {
	r, err := e.liveOf(ctx, ns, b.From)
	if err != nil {
		return nil, err
	}
	data, unread := r.Published(ctx, b.Keys)
	masks, err := e.masksAfter(ctx, ns, r)
	if err != nil {
		return nil, err
	}
	if unread != nil {
		failed := *sandboxmcp.AsError(unread)
		if key, ok := failed.Fields["key"].(string); ok {
			failed.Fields, failed.Hint = nil, note.Bridge(key)
		}
		return nil, guard.Failure(masks, &failed)
	}
	guard.Bridge(masks, data)
	return data, nil
}
