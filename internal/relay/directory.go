package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// maxSorted is how many names of a directory are read to find the first of them.
const maxSorted = 20_000

// List returns entries of a directory.
func (f files) List(ctx context.Context, name string, limit int) (entries []backend.FileInfo, more bool, err error) {
	err = f.do(ctx, "list", name, false, func() error {
		names, known, failed := f.small(name)
		if errors.Is(failed, errMore) {
			names, failed = f.large(ctx, name, max(limit+1, maxSorted))
		}
		if failed != nil {
			return failed
		}
		if more = len(names) > limit; more {
			slices.Sort(names)
			names = names[:limit]
		}
		entries, failed = f.entries(name, names, known)
		return failed
	})
	return entries, more, err
}

// entries returns the facts about the entries of a directory. It asks the relay for those that it does not know.
func (f files) entries(dir string, names []string, known map[string]backend.FileInfo) ([]backend.FileInfo, error) {
	all := make([]backend.FileInfo, 0, len(names))
	var rest []string
	for _, n := range names {
		if info, ok := known[n]; ok {
			all = append(all, info)
		} else {
			rest = append(rest, n)
		}
	}
	var err error
	for some := range slices.Chunk(rest, maxCalls-2) {
		if all, err = f.describe(dir, some, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// describe asks for entries of a directory and adds them. It leaves out entries that were removed meanwhile. If the program
// has removed or replaced the directory, or has taken away its permissions, it adds none.
func (f files) describe(dir string, names []string, entries []backend.FileInfo) ([]backend.FileInfo, error) {
	r, err := f.run(func(l *list) {
		l.size = statSize * len(names)
		fd := f.open(l, dir, openDirectory(l.arch))
		for i, n := range names {
			stat(l, l.try, result(fd), n, statSize*i)
		}
		l.finally("close", result(fd))
	})
	for _, changed := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP, syscall.EXDEV} {
		if errors.Is(err, changed) {
			return entries, nil
		}
	}
	if err != nil {
		return entries, err
	}
	for i, n := range names {
		if _, gone := r.value(1 + i); gone == nil && len(r.bytes) >= statSize*(i+1) {
			info, _ := describe(n, r.bytes[statSize*i:])
			entries = append(entries, info)
		}
	}
	return entries, nil
}

// errMore means that a directory is too large to be read with one packet.
var errMore = errors.New("there are more names")

// Bounds of the bytes of names of a directory that is read with one packet. Any one name is shorter.
const (
	smallNames  = 16 << 10 // the answer has only the bytes of the names
	guessedSize = 2 << 10  // the answer always has this size
)

// small reads the names of a small directory with one packet. The packet also asks for the entries that the directory had
// when it was last read. If the directory is too large, the error is errMore.
func (f files) small(dir string) ([]string, map[string]backend.FileInfo, error) {
	guess := f.s.before.of(dir)
	at, space := statSize*len(guess), guessedSize
	if len(guess) == 0 {
		space = smallNames
	}
	var first, next int
	r, err := f.run(func(l *list) {
		l.size = at + space
		fd := f.open(l, dir, openDirectory(l.arch))
		first = l.do("getdents64", result(fd), answer(at), num(space))
		next = l.try("getdents64", result(fd), answer(at), num(space)) // at the end of the directory it returns 0 and writes nothing
		for i, n := range guess {
			stat(l, l.try, result(fd), n, statSize*i)
		}
		l.finally("close", result(fd))
		if len(guess) == 0 {
			l.from = first + 1
		}
	})
	if err != nil {
		return nil, nil, err
	}
	size := int(r.results[first])
	if len(guess) == 0 {
		space = size
	}
	switch {
	case r.results[next] != 0:
		f.s.before.keep(dir, nil) // without a guess there is room for more names
		return nil, nil, errMore
	case size > space || len(r.bytes) != at+space:
		return nil, nil, errGone
	}
	names, _, err := parseNames(nil, r.bytes[at:at+size])
	if err != nil {
		return nil, nil, err
	}
	known := map[string]backend.FileInfo{}
	for i, n := range guess {
		if _, gone := r.value(next + 1 + i); gone == nil {
			known[n], _ = describe(n, r.bytes[statSize*i:])
		}
	}
	f.s.before.keep(dir, names)
	return names, known, nil
}

// former holds the names that directories had when they were last read. A program may have changed the directories since.
type former struct {
	mu    sync.Mutex
	names map[string][]string
}

// Bounds of former.
const (
	formerDirs  = 16
	formerNames = 16
)

func (p *former) of(dir string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.names[dir]
}

// keep replaces the names of a directory. It forgets a directory without names, or with too many.
func (p *former) keep(dir string, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, dir)
	if len(names) == 0 || len(names) > formerNames || len(p.names) >= formerDirs {
		return
	}
	if p.names == nil {
		p.names = map[string][]string{}
	}
	p.names[dir] = slices.Clone(names) // the caller may sort its own
}

// large reads at most about limit names of a directory.
func (f files) large(ctx context.Context, name string, limit int) ([]string, error) {
	var fd int
	r, err := f.run(func(l *list) { fd = f.open(l, name, openDirectory(l.arch)) })
	if err != nil {
		return nil, err
	}
	dir := int(r.results[fd])
	defer f.s.c.drop(dir)
	return f.names(ctx, dir, limit)
}

// names reads at most about limit names of an open directory.
func (f files) names(ctx context.Context, dir, limit int) (names []string, err error) {
	for seen := 0; seen < limit+2; { // with . and ..
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := f.s.c.list()
		l.size, l.from = maxAnswer, 1
		l.do("getdents64", num(dir), answer(0), num(maxAnswer))
		r, err := f.s.c.run(l)
		if err != nil {
			return nil, err
		}
		if len(r.bytes) == 0 {
			break
		}
		var n int
		if names, n, err = parseNames(names, r.bytes); err != nil {
			return nil, err
		}
		seen += n
	}
	return names, nil
}

// parseNames adds the names of directory entries to a list, without . and .., and counts the entries.
func parseNames(names []string, b []byte) (all []string, seen int, err error) {
	for ; len(b) > 0; seen++ {
		if len(b) < 20 {
			return nil, 0, errGone
		}
		size := int(binary.LittleEndian.Uint16(b[16:]))
		if size < 20 || size > len(b) {
			return nil, 0, errGone
		}
		text := b[19:size]
		if end := slices.Index(text, 0); end >= 0 {
			text = text[:end]
		}
		n := string(text)
		if n == "" || strings.Contains(n, "/") {
			return nil, 0, errGone
		}
		if n != "." && n != ".." {
			names = append(names, n)
		}
		b = b[size:]
	}
	return names, seen, nil
}
