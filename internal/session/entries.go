package session

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
)

// maxDepth bounds the directories that Entries descends into.
const maxDepth = 8

// Entries returns what is in the working directory, without hidden entries, sorted by path: at
// most maxListed entries. With deep it also returns what is in its directories.
func (f Files) Entries(ctx context.Context, deep bool) ([]sandboxmcp.SessionEntry, error) {
	all, err := f.entriesOf(ctx, ".", deep, maxDepth, nil)
	if err = f.unlisted(ctx, err); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b sandboxmcp.SessionEntry) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

func (f Files) entriesOf(ctx context.Context, dir string, deep bool, depth int, all []sandboxmcp.SessionEntry) ([]sandboxmcp.SessionEntry, error) {
	if len(all) >= maxListed {
		return all, nil
	}
	entries, _, err := f.live.cfg.Sandbox.Files().List(ctx, dir, maxListed-len(all))
	if dir != "." && errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
		return all, nil
	}
	if err != nil {
		return all, err
	}
	var below []string
	for _, info := range entries {
		if strings.HasPrefix(info.Name, ".") || artifact.BadName(info.Name) {
			continue
		}
		name := path.Join(dir, info.Name)
		e := sandboxmcp.SessionEntry{Path: f.masks.Text(path.Join(backend.WorkDir, name)), Type: typeOf(info.Mode)}
		if info.Mode.IsRegular() {
			e.SizeBytes = info.Size
		}
		all = append(all, e)
		if info.Mode.IsDir() {
			below = append(below, name)
		}
	}
	if !deep || depth == 1 {
		return all, nil
	}
	for _, name := range below {
		if all, err = f.entriesOf(ctx, name, deep, depth-1, all); err != nil {
			return all, err
		}
	}
	return all, nil
}

func typeOf(m fs.FileMode) sandboxmcp.EntryType {
	switch {
	case m.IsRegular():
		return sandboxmcp.EntryFile
	case m.IsDir():
		return sandboxmcp.EntryDirectory
	case m&fs.ModeSymlink != 0:
		return sandboxmcp.EntryLink
	}
	return sandboxmcp.EntryOther
}
