package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// made is the id of the session that the fake makes for a caller without one.
const made sandboxmcp.SessionID = "sess_0123456789abcdef01234567"

// fakeSessions are the sessions of a fake engine: files in memory.
type fakeSessions struct {
	specs   []sandboxmcp.SessionSpec
	uploads []sandboxmcp.Upload
	bridges []sandboxmcp.Bridge
	reads   []string // namespace, id and path of each ReadFile
	limits  []int64
	opened  atomic.Int64 // files that OpenFile has opened and that are not closed
	live    map[sandboxmcp.SessionID]map[string][]byte
	busy    map[sandboxmcp.SessionID]bool
	types   map[string]string // MIME type by name
	ended   []sandboxmcp.SessionID
}

func newFakeSessions() fakeSessions {
	return fakeSessions{
		live: map[sandboxmcp.SessionID]map[string][]byte{}, busy: map[sandboxmcp.SessionID]bool{},
		types: map[string]string{"a.txt": "text/plain; charset=utf-8", "p.png": "image/png", "d.csv": "text/csv; charset=utf-8", "big.csv": "text/csv; charset=utf-8"},
	}
}

func unknown(id sandboxmcp.SessionID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s is not known", id)
}

// asked counts the calls of the engine that concern a session.
func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests) + len(f.specs) + len(f.uploads) + len(f.bridges) + len(f.reads) + len(f.ended)
}

// put makes a session with files, or adds them.
func (f *fake) put(id sandboxmcp.SessionID, files map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[id] == nil {
		f.live[id] = map[string][]byte{}
	}
	for name, text := range files {
		f.live[id][name] = []byte(text)
	}
}

func (f *fake) CreateSession(_ context.Context, c sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Session{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	id := spec.ID
	if id == "" {
		id = made
	}
	f.live[id] = map[string][]byte{}
	return f.session(id), nil
}

func (f *fake) session(id sandboxmcp.SessionID) sandboxmcp.Session {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := sandboxmcp.Session{
		ID: id, Language: sandboxmcp.Python, Backend: "process", Status: sandboxmcp.SessionIdle, CreatedAt: now, LastActivity: now, ExpiresAt: now.Add(time.Hour),
		Limits: sandboxmcp.DefaultLimits(), Namespace: "team", Isolation: &sandboxmcp.Isolation{Tier: sandboxmcp.TierL2},
	}
	if f.busy[id] {
		s.Status = sandboxmcp.SessionActive
	}
	return s
}

func (f *fake) TerminateSession(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[id] == nil || stranger(c) != nil {
		return unknown(id)
	}
	delete(f.live, id)
	f.ended = append(f.ended, id)
	return nil
}

func (f *fake) CloseSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	if err := stranger(c); err != nil {
		return err
	}
	f.mu.Lock()
	busy := f.busy[id]
	f.mu.Unlock()
	if busy {
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "session %s is busy", id)
	}
	return f.TerminateSession(ctx, c, id)
}

func (f *fake) Sessions(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	if err := stranger(c); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []sandboxmcp.Session
	for _, id := range slices.Sorted(maps.Keys(f.live)) {
		list = append(list, f.session(id))
	}
	return list, nil
}

func (f *fake) Upload(_ context.Context, c sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	if err := stranger(c); err != nil {
		return "", "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uploads = append(f.uploads, u)
	id := u.SessionID
	if id == "" {
		id = made
	}
	if f.live[id] == nil {
		f.live[id] = map[string][]byte{}
	}
	if _, there := f.live[id][u.Name]; there && !u.Overwrite {
		return "", "", sandboxmcp.Errorf(sandboxmcp.CodeFileExists, "%s is there", u.Name)
	}
	f.live[id][u.Name] = u.Content
	return id, "/mnt/data/" + u.Name, nil
}

func (f *fake) file(name string, data []byte) sandboxmcp.SessionFile {
	sum := sha256.Sum256(data)
	mime := f.types[name]
	if mime == "" {
		mime = "application/octet-stream"
	}
	return sandboxmcp.SessionFile{Path: "/mnt/data/" + name, Filename: path.Base(name), SizeBytes: int64(len(data)), MIMEType: mime, SHA256: hex.EncodeToString(sum[:])}
}

func (f *fake) SessionFiles(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	if err := stranger(c); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[id] == nil {
		return nil, unknown(id)
	}
	var list []sandboxmcp.SessionFile
	for name, data := range f.live[id] {
		if !strings.Contains(name, "/") {
			list = append(list, f.file(name, data))
		}
	}
	if n := len(list); n > 0 {
		list[n-1].More = f.moreFiles
	}
	return list, nil
}

func (f *fake) ReadFile(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, name string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.SessionFile{}, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads = append(f.reads, fmt.Sprintf("%s %s %s", c.Namespace, id, name))
	f.limits = append(f.limits, limit)
	if f.live[id] == nil {
		return sandboxmcp.SessionFile{}, nil, unknown(id)
	}
	name = strings.TrimPrefix(name, "/mnt/data/")
	data, ok := f.live[id][name]
	switch {
	case name == "panic":
		panic("planted")
	case !ok:
		return sandboxmcp.SessionFile{}, nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "there is no %s", name)
	case int64(len(data)) > limit:
		return sandboxmcp.SessionFile{}, nil, sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "the file has %d bytes", len(data)).With("size_bytes", len(data))
	}
	return f.file(name, data), data, nil
}

// OpenFile counts the files that were opened and not closed.
func (f *fake) OpenFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, name string, limit int64) (sandboxmcp.SessionFile, io.ReadSeekCloser, error) {
	info, data, err := f.ReadFile(ctx, c, id, name, limit)
	if err != nil {
		return info, nil, err
	}
	f.opened.Add(1)
	return info, closing{strings.NewReader(string(data)), func() { f.opened.Add(-1) }}, nil
}

type closing struct {
	io.ReadSeeker
	end func()
}

func (c closing) Close() error {
	c.end()
	return nil
}

func (f *fake) Bridge(_ context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.Bridged{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bridges = append(f.bridges, b)
	return sandboxmcp.Bridged{Bridged: true, Data: b.Data, Keys: slices.Sorted(maps.Keys(b.Data))}, nil
}

func (f *fake) Inspect(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.State{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	st := sandboxmcp.State{Namespace: c.Namespace, Limits: sandboxmcp.DefaultLimits()}
	for _, other := range slices.Sorted(maps.Keys(f.live)) {
		if id == "" || id == other {
			st.Sessions = append(st.Sessions, f.session(other))
		}
	}
	if id != "" {
		if f.live[id] == nil {
			return sandboxmcp.State{}, unknown(id)
		}
		for name, data := range f.live[id] {
			st.Files = append(st.Files, f.file(name, data))
		}
		if n := len(st.Files); n > 0 {
			st.Files[n-1].More = f.moreFiles
		}
	}
	return st, nil
}
