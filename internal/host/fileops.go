package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Files reads and writes files of the host.
type Files struct {
	host      *Host
	trees     atomic.Pointer[[]tree]
	workspace *tree
	started   []string // Config.Started, and what it led to at the start
}

// state is what the links of the settings lead to, and the mounts, at the time of an act.
type state struct {
	mounts  plainfile.Mounts
	closed  []string               // paths of Config.Own and Config.Obeyed
	started func() places          // places of Config.Started; files there may be read, and are not written
	execs   func() places          // programs and interpreters of the rules in the settings; they are not written, either
	found   func() (places, error) // places of Config.Found; the same holds for them
}

// now returns the state. A link may have been put in the place of a file or directory since the last act, or lead elsewhere.
func (f *Files) now(ctx context.Context) (state, error) {
	mounts, err := mountsNow()
	if err != nil {
		return state{}, err
	}
	s := state{mounts: mounts}
	for _, path := range slices.Concat(f.host.cfg.Own, f.host.cfg.Obeyed) {
		s.closed = append(s.closed, s.mounts.Whole(newTree(path).real)...)
	}
	slices.Sort(s.closed)
	s.closed = slices.Compact(s.closed)
	s.started = sync.OnceValue(func() places {
		all := slices.Clone(f.started)
		for _, path := range f.started {
			all = append(all, newTree(path).real)
		}
		slices.Sort(all)
		return newPlaces(slices.Compact(all))
	})
	s.execs = sync.OnceValue(func() places {
		var all []string
		for _, r := range f.host.set.Load().rules {
			all = append(all, r.program.execs...)
			for _, way := range r.program.ways {
				all = append(all, newTree(way).real) // after a restart, the server executes the file to which the path leads then
			}
		}
		slices.Sort(all)
		return newPlaces(slices.Compact(all))
	})
	s.found = sync.OnceValues(func() (places, error) {
		if f.host.cfg.Found == nil {
			return newPlaces(nil), nil
		}
		all, err := f.host.cfg.Found(ctx)
		for i, dir := range all {
			all[i] = newTree(dir).real
		}
		return newPlaces(all), err
	})
	return s, nil
}

// SetRoots replaces [Config.Roots], for acts to come.
func (f *Files) SetRoots(dirs []string) {
	trees := make([]tree, 0, len(dirs))
	for _, dir := range dirs {
		trees = append(trees, newTree(dir))
	}
	f.trees.Store(&trees)
}

// Bounds of file tools.
const (
	defaultRead = 50_000
	maxRead     = 10 << 20
	maxWrite    = 50 << 20
	maxListed   = 1000
)

// fileAct is an act on a file.
type fileAct struct {
	c          sandboxmcp.Caller
	what, path string
	masks      gate.Masks
}

// act performs an act on a file. Intent and outcome are recorded, never content. work may add
// to what the outcome says.
func (f *Files) act(ctx context.Context, a fileAct, work func(more map[string]any) error) error {
	if !f.host.cfg.Enabled {
		return disabled()
	}
	path := a.path
	if len(path) <= maxPath { // without what says nothing, such as /././, which could leave no room for the rest
		path = filepath.Clean(path)
	}
	e := entry{c: a.c, action: "host_file", detail: a.what + " " + sandboxmcp.Quote(path)}
	more := map[string]any{"operation": a.what}
	if err := a.masks.Plain("the path", a.path); err != nil {
		e.detail = a.what + " of a path with a secret"
		return f.host.outcome(ctx, e, more, err, false)
	}
	if err := f.host.intent(ctx, e, map[string]any{"operation": a.what, "path": strings.ToValidUTF8(path[:min(len(path), maxPath)], "\uFFFD")}); err != nil {
		return err
	}
	err := work(more)
	return f.host.outcome(ctx, e, more, err, true)
}

// Read reads a file, or a part of it. Secrets in it are masked.
func (f *Files) Read(ctx context.Context, c sandboxmcp.Caller, r sandboxmcp.HostRead, masks gate.Masks) (sandboxmcp.HostContent, error) {
	out := sandboxmcp.HostContent{Success: true}
	err := f.act(ctx, fileAct{c, "read", r.Path, masks}, func(more map[string]any) error {
		if r.MaxBytes == 0 {
			r.MaxBytes = defaultRead
		}
		if r.MaxBytes < 0 || r.MaxBytes > maxRead || r.Offset < 0 {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "max_bytes is 1 to %d, and offset is at least 0", maxRead)
		}
		b, info, err := f.readPart(ctx, r.Path, r.Offset, int64(r.MaxBytes), math.MaxInt64)
		if err != nil {
			return err
		}
		out.Size, out.Truncated = info.Size(), r.Offset+int64(len(b)) < info.Size()
		more["bytes"] = len(b)
		out.Content, out.Encoding = shown([]byte(masks.Text(string(b))), out.Truncated)
		return nil
	})
	if err != nil {
		return sandboxmcp.HostContent{}, err
	}
	return out, nil
}

// shown returns bytes as text, or as base64 if they are no text. A character that is cut off
// at the end is left out.
func shown(b []byte, more bool) (text, encoding string) {
	if more {
		for i := 1; i < utf8.UTFMax && i < len(b); i++ {
			if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return string(b), "utf-8"
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

// Write writes a file.
func (f *Files) Write(ctx context.Context, c sandboxmcp.Caller, w sandboxmcp.HostWrite, masks gate.Masks) (sandboxmcp.HostWritten, error) {
	err := f.act(ctx, fileAct{c, "write", w.Path, masks}, func(more map[string]any) error {
		if len(w.Content) > maxWrite {
			return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the content has %d bytes; at most %d are allowed", len(w.Content), maxWrite)
		}
		path, overwrite, content := w.Path, w.Overwrite, &kept{bytes: []byte(w.Content)} // a look does not have w
		defer content.take()
		p, err := looked(ctx, timeToLook, func(ctx context.Context) (place, error) {
			now, err := f.now(ctx)
			if err != nil {
				return place{}, err
			}
			p, err := locate(path, *f.trees.Load(), now.closed)
			if err == nil {
				err = f.written(p, path, now)
			}
			return p, err
		})
		if err != nil {
			return err
		}
		more["bytes"], more["sha256"] = len(w.Content), sum([]byte(w.Content))
		_, err = looked(ctx, timeToLook, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, put(ctx, p, path, content, overwrite)
		})
		return err
	})
	if err != nil {
		return sandboxmcp.HostWritten{}, err
	}
	return sandboxmcp.HostWritten{Success: true, Path: w.Path, BytesWritten: len(w.Content)}, nil
}

// List lists a directory.
func (f *Files) List(ctx context.Context, c sandboxmcp.Caller, path string, masks gate.Masks) (sandboxmcp.HostListing, error) {
	out := sandboxmcp.HostListing{Success: true, Entries: []sandboxmcp.HostEntry{}}
	err := f.act(ctx, fileAct{c, "list", path, masks}, func(more map[string]any) error {
		listed, err := looked(ctx, timeToLook, func(context.Context) (l sandboxmcp.HostListing, err error) {
			now, err := f.now(ctx)
			if err != nil {
				return l, err
			}
			p, err := locate(path, *f.trees.Load(), now.closed)
			if err != nil {
				return l, err
			}
			dir, err := p.open(path, false)
			if err != nil {
				return l, err
			}
			defer func() { _ = dir.Close() }()
			l.Entries, l.More, err = entries(dir)
			return l, err
		})
		out.Entries, out.More = listed.Entries, listed.More
		more["entries"] = len(out.Entries) + out.More
		return err
	})
	if err != nil {
		return sandboxmcp.HostListing{}, err
	}
	var b strings.Builder
	for i := range out.Entries {
		out.Entries[i].Name = masks.Text(out.Entries[i].Name)
		x := out.Entries[i]
		fmt.Fprintf(&b, "%-4s %12d  %s  %s\n", x.Type, x.Size, x.MTime.UTC().Format(time.DateTime), oneLine(x.Name))
	}
	if out.More > 0 {
		fmt.Fprintf(&b, "and %d more\n", out.More)
	}
	out.Listing = b.String()
	return out, nil
}

// oneLine returns a file name that keeps to its line.
func oneLine(name string) string {
	if strings.ContainsFunc(name, hidden) {
		return sandboxmcp.Quote(name)
	}
	return name
}

// entries lists a directory by name.
func entries(dir *os.Root) (list []sandboxmcp.HostEntry, more int, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(100_000)
	if err != nil && err != io.EOF { //nolint:errorlint // Readdirnames returns it as it is
		return nil, 0, err
	}
	slices.Sort(names)
	list = []sandboxmcp.HostEntry{}
	for i, name := range names {
		if len(list) == maxListed {
			return list, len(names) - i, nil
		}
		info, err := dir.Lstat(name)
		if err != nil {
			continue
		}
		x := sandboxmcp.HostEntry{Name: strings.ToValidUTF8(name, "\uFFFD"), Type: "other", Size: info.Size(), MTime: info.ModTime()}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			x.Type = "file"
		case mode.IsDir():
			x.Type = "dir"
		case mode&fs.ModeSymlink != 0:
			x.Type = "link"
		}
		list = append(list, x)
	}
	return list, 0, nil
}

// Copy copies a file. deliver gets its content; nil: it goes to the workspace.
func (f *Files) Copy(ctx context.Context, c sandboxmcp.Caller, cp sandboxmcp.HostCopy, masks gate.Masks, deliver func(name string, content []byte) (path string, err error)) (sandboxmcp.HostCopied, error) {
	out := sandboxmcp.HostCopied{Success: true}
	err := f.act(ctx, fileAct{c, "copy", cp.Source, masks}, func(more map[string]any) error {
		content, err := f.whole(ctx, cp.Source)
		if err != nil {
			return err
		}
		name := cp.Destination
		if name == "" {
			name = filepath.Base(cp.Source)
		}
		if deliver == nil {
			deliver = func(name string, content []byte) (path string, err error) {
				left := &kept{bytes: content}
				defer left.take()
				return looked(ctx, timeToLook, func(ctx context.Context) (string, error) { return f.toWorkspace(ctx, name, left) })
			}
		}
		if out.Path, err = deliver(name, content); err != nil {
			return err
		}
		out.Size, out.SHA256 = int64(len(content)), sum(content)
		more["bytes"], more["sha256"], more["session_id"], more["destination"] = out.Size, out.SHA256, cp.SessionID, masks.Text(out.Path)
		return nil
	})
	if err != nil {
		return sandboxmcp.HostCopied{}, err
	}
	return out, nil
}

// whole reads a whole file.
func (f *Files) whole(ctx context.Context, path string) ([]byte, error) {
	tooLarge := func(n int64) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "%s has %d bytes; at most %d are copied", sandboxmcp.Quote(path), n, maxWrite)
	}
	b, info, err := f.readPart(ctx, path, 0, maxWrite+1, maxWrite)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxWrite {
		return nil, tooLarge(info.Size())
	}
	if len(b) > maxWrite {
		return nil, tooLarge(int64(len(b)))
	}
	return b, nil
}

// toWorkspace writes a file into the workspace.
func (f *Files) toWorkspace(ctx context.Context, name string, content io.Reader) (string, error) {
	if f.workspace == nil {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "session_id is missing, and no workspace_path is configured").
			WithHint("name a session, or an operator sets workspace_path")
	}
	if filepath.IsAbs(name) || !filepath.IsLocal(name) {
		return "", sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "%s is no name in the workspace", sandboxmcp.Quote(name)).WithHint("use a relative path without ..")
	}
	path := filepath.Join(f.workspace.name, name)
	now, err := f.now(ctx)
	if err != nil {
		return "", err
	}
	p, err := locate(path, []tree{*f.workspace}, now.closed)
	if err != nil {
		return "", err
	}
	if err := f.written(p, path, now); err != nil {
		return "", err
	}
	return path, put(ctx, p, path, content, true)
}

// written refuses a place that is not writable, a file of [Config.Found], and one that is executed for a rule of the settings. This server
// would not execute the new file for the rule, but the next one would take it for the rule's.
func (f *Files) written(p place, path string, now state) error {
	if err := p.writable(path, now); err != nil {
		return err
	}
	all := now.mounts.Paths(p.abs())
	found, err := now.found()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, found.holdFile) {
		return pathDenied(path, startedThere)
	}
	if slices.ContainsFunc(all, now.execs().holdFile) {
		return pathDenied(path, "a rule of host_allowed_commands executes it")
	}
	return nil
}

// namedIn returns the places of host_roots that words name, and what a command may not write there because this server executes or trusts it: what a person has allowed word by
// word may write there. A file that is not there yet opens its directory. Landlock opens no place that a link leads to: a program in a
// sandbox may have put the link there. Once ctx ends, the remaining places are left out.
func (f *Files) namedIn(ctx context.Context, words []string) (all, unwritten []string) {
	now, err := f.now(ctx)
	if err != nil {
		return nil, nil // the command writes nowhere
	}
	found, err := now.found()
	if err != nil {
		return nil, nil
	}
	unwritten = slices.Clone(now.closed) // commands may read Config.Obeyed
	for _, path := range slices.Concat(now.started().paths, now.execs().paths, found.paths) {
		unwritten = append(unwritten, now.mounts.Paths(path)...)
	}
	for _, w := range words {
		if !filepath.IsAbs(w) || ctx.Err() != nil {
			continue
		}
		p, err := locate(w, *f.trees.Load(), now.closed)
		if err != nil || f.written(p, w, now) != nil {
			continue
		}
		path := p.abs()
		if _, err = os.Lstat(path); err != nil && p.rel != "." {
			path = filepath.Dir(path)
		}
		for _, c := range slices.Concat(neverWritten, systemPlaces) {
			if c != path && under(c, path) { // the path itself may be in one of them, if its tree is there
				unwritten = append(unwritten, c)
			}
		}
		all = append(all, path)
	}
	return all, unwritten
}

// holds reports whether a directory is below one of host_roots. real is its path without links.
func (f *Files) holds(real string) bool {
	return slices.ContainsFunc(*f.trees.Load(), func(t tree) bool { return under(real, t.real) })
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
