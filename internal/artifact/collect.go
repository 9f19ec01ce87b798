package artifact

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Bounds limits what Collect takes from one sandbox. 0 means the default in the field's
// comment.
type Bounds struct {
	Files      int   // 200
	Entries    int   // directory entries that are read, including hidden ones; 5 000
	Depth      int   // parts of a file's path; 8
	FileBytes  int64 // 32 MiB
	TotalBytes int64 // size of all stored files; 64 MiB

	ReadBytes int64         // read from all files, including files that are not stored; 2 * TotalBytes
	Time      time.Duration // time after which no further file is read; 10 s
}

func (b Bounds) orDefault() Bounds {
	b = Bounds{
		Files: cmp.Or(b.Files, 200), Entries: cmp.Or(b.Entries, 5000), Depth: cmp.Or(b.Depth, 8),
		FileBytes: cmp.Or(b.FileBytes, 32<<20), TotalBytes: cmp.Or(b.TotalBytes, 64<<20),
		ReadBytes: b.ReadBytes, Time: cmp.Or(b.Time, 10*time.Second),
	}
	b.ReadBytes = cmp.Or(b.ReadBytes, 2*b.TotalBytes)
	return b
}

// maxSkipped is the number of skipped files that are named. Further ones are only counted.
const maxSkipped = 100

// Source is a sandbox to collect from.
type Source struct {
	Files     backend.FileReader
	RequestID sandboxmcp.RequestID
	SessionID *sandboxmcp.SessionID // nil: a run without a session
	Now       time.Time             // the artifacts' created_at
	Bounds    Bounds
	Grace     time.Duration // how long Collect reads on after its context has ended

	// Empty is the working directory without visible entries, as Survey found it before. If it has not
	// changed, Collect need not list it.
	Empty Empty

	// Known are the files that existed before, by name. Collect leaves out those that have
	// not changed.
	Known map[string]State

	// Refuse returns why a file may not be taken, judged by its content, or "". It is
	// called before the file is stored. It may be nil.
	Refuse func(name string, data []byte) string

	// Rename returns the name of a file in results. It may be nil.
	Rename func(name string) string
}

// State is a file as it was at one time.
type State struct {
	Info   backend.FileInfo
	SHA256 string // empty: its content was not read
	Fresh  bool   // its content was read soon after a change, so a further change may show nothing in Info
}

// Before Linux 6.13, changes of a file within one tick of a clock have the same time. Some file systems round times to whole seconds,
// or to two: ext4 with small inodes, FAT. Programs use those of the host at tier L1.
const (
	freshFor     = 20 * time.Millisecond // longer than a tick
	freshForLong = 2*time.Second + freshFor
	aheadBy      = time.Minute // a time that is further ahead was set by a program
)

// isFresh reports whether a file or directory that is read at a time was changed shortly before, so that a further change may have the
// same time.
func isFresh(changed, read time.Time) bool {
	long := freshFor
	if changed.Nanosecond() == 0 {
		long = freshForLong
	}
	return changed.After(read.Add(-long)) && changed.Before(read.Add(aheadBy))
}

// same reports whether the directory entry shows no change of the file.
func (s State) same(info backend.FileInfo) bool {
	return s.Info.Mark != "" && s.Info.Mark == info.Mark && s.Info.Size == info.Size && s.Info.ModTime.Equal(info.ModTime)
}

// Collection is the result of Collect.
type Collection struct {
	// Artifacts are sorted by name. Signature and DownloadURL are empty. The content is in
	// memory and stored as blobs. The list is not nil.
	Artifacts []sandboxmcp.Artifact

	// Skipped are the files that were not taken, with names that are safe to print. At most
	// 100 are named, and a last row counts the others. Hidden files and directories are not
	// listed.
	Skipped []sandboxmcp.SkippedFile

	// SkippedTotal is how many files were not taken, named or not, of those that were looked at.
	// Rows of Skipped for directories do not count.
	SkippedTotal int

	// Beyond is how many of these would have been taken but for the number or the size of all.
	Beyond int

	// Large reports that a file was not taken because of its own size.
	Large bool

	// Partial reports that not all directory entries were looked at.
	Partial bool

	// States are the files whose content was read.
	States map[string]State
}

// Empty is a working directory in which a list found no visible entry. The zero Empty knows of no such list.
type Empty struct{ changed time.Time }

// Still reports whether no visible entry was added since. It never waits for a program.
func (e Empty) Still(files backend.FileReader) bool {
	if e.changed.IsZero() {
		return false
	}
	at, ok := changed(files)
	return ok && at.Equal(e.changed)
}

func changed(files backend.FileReader) (at time.Time, ok bool) {
	d, ok := files.(backend.Dated)
	if !ok {
		return time.Time{}, false
	}
	at, err := d.Changed()
	return at, err == nil
}

// Survey lists the files that Collect would look at, without reading them. For files that
// have not changed it takes the State from known. empty is set if the directory has no visible entry.
func Survey(ctx context.Context, files backend.FileReader, known map[string]State, bounds Bounds) (found map[string]State, empty Empty) {
	b := bounds.orDefault()
	at, began := time.Time{}, time.Now()
	if since, ok := changed(files); ok && since.Before(began) && !isFresh(since, began) {
		at = since
	}
	found = map[string]State{}
	var look func(dir string, depth int)
	left := b.Entries
	look = func(dir string, depth int) {
		if left <= 0 || depth >= b.Depth {
			return
		}
		list, more, err := files.List(ctx, dir, left)
		if err != nil || more {
			at = time.Time{}
		}
		if err != nil {
			return
		}
		left -= len(list)
		for _, info := range list {
			name := path.Join(dir, info.Name)
			if strings.HasPrefix(info.Name, ".") {
				continue
			}
			at = time.Time{}
			switch {
			case info.Mode.IsDir():
				look(name, depth+1)
			default:
				s := State{Info: info}
				if k := known[name]; k.same(info) {
					s = k
				}
				found[name] = s
			}
		}
	}
	look(".", 0)
	return found, Empty{at}
}

// Collect takes every regular file below the working directory within the bounds. The
// Collection holds the content in memory, up to Bounds.TotalBytes for each Collect that
// runs at the same time. Collect fails if the working directory cannot be listed, if the
// machine fails to read a file, and if a blob cannot be written. A file or directory that the program
// made unreadable is only skipped, the working directory included. If ctx has ended for Source.Grace, or Bounds.Time or Bounds.ReadBytes is used
// up, Collect reads nothing more and names the other files in Skipped.
func (k *Keeper) Collect(ctx context.Context, src Source) (Collection, error) {
	if src.Empty.Still(src.Files) {
		return Collection{Artifacts: []sandboxmcp.Artifact{}}, nil
	}
	c := &collector{keeper: k, src: src, bounds: src.Bounds.orDefault(), states: map[string]State{}}
	c.entries, c.unread = c.bounds.Entries, c.bounds.ReadBytes
	ctx, end := withGrace(ctx, src.Grace)
	defer end()
	ctx, cancel := context.WithTimeoutCause(ctx, c.bounds.Time, errTime)
	defer cancel()
	if err := c.directory(ctx, ".", 0); err != nil {
		return Collection{}, err
	}
	if c.unnamed > 0 {
		c.skipped = append(c.skipped, sandboxmcp.SkippedFile{Name: "…", Reason: fmt.Sprintf("and %d more", c.unnamed)})
	}
	skipped := min(len(c.skipped), maxSkipped) + c.unnamed - c.marks
	c.rename()
	if c.artifacts == nil {
		c.artifacts = []sandboxmcp.Artifact{}
	}
	slices.SortFunc(c.artifacts, func(a, b sandboxmcp.Artifact) int { return strings.Compare(a.Name, b.Name) })
	return Collection{Artifacts: c.artifacts, Skipped: c.skipped, SkippedTotal: skipped, Beyond: c.beyond, Large: c.large, Partial: c.partial, States: c.states}, nil
}

// rename sets the artifacts' names to those of Source.Rename, and makes them unique.
func (c *collector) rename() {
	if c.src.Rename == nil {
		return
	}
	taken := map[string]bool{}
	for _, a := range c.artifacts {
		taken[a.Name] = true
	}
	for i := range c.artifacts {
		a := &c.artifacts[i]
		name := c.src.Rename(a.Name)
		if name == a.Name {
			continue
		}
		ext := path.Ext(name)
		for n, stem := 2, strings.TrimSuffix(name, ext); taken[name]; n++ {
			name = stem + "-" + strconv.Itoa(n) + ext
		}
		taken[name] = true
		a.Name, a.Path, a.URI = name, absolute(name), uri(c.src.RequestID, c.src.SessionID, name)
	}
}

// collector is a Collect in progress.
type collector struct {
	keeper *Keeper
	src    Source
	bounds Bounds

	entries   int   // directory entries that may still be read
	unread    int64 // bytes that may still be read
	total     int64
	artifacts []sandboxmcp.Artifact
	skipped   []sandboxmcp.SkippedFile
	unnamed   int // skipped files that are only counted
	marks     int // rows of skipped for directories, whose files were not all looked at
	beyond    int // see Collection, as large and partial
	large     bool
	partial   bool
	states    map[string]State
}

func (c *collector) skip(name, reason string) {
	if len(c.skipped) >= maxSkipped {
		c.unnamed++
		return
	}
	if c.src.Rename != nil {
		name = c.src.Rename(name)
	}
	c.skipped = append(c.skipped, sandboxmcp.SkippedFile{Name: printable(name), Reason: reason})
}

// skipRest says that not all files of a directory were looked at. name ends with a slash, or with …
// if some were.
func (c *collector) skipRest(name, reason string) {
	c.marks++
	c.skip(name, reason)
}

// directory takes the files of a directory. Its path has depth parts.
func (c *collector) directory(ctx context.Context, dir string, depth int) error {
	if reason := c.stopped(ctx); reason != "" {
		c.skipRest(dir+"/", reason)
		return nil
	}
	if c.entries <= 0 {
		c.partial = true
		c.skipRest(dir+"/", fmt.Sprintf("not looked into: more than %d entries in all", c.bounds.Entries))
		return nil
	}
	list, more, err := c.src.Files.List(ctx, dir, c.entries)
	switch {
	case err == nil:
	case c.stopped(ctx) != "":
		c.skipRest(dir+"/", c.stopped(ctx))
		return nil
	case dir == "." && !errors.Is(err, fs.ErrPermission) || !programs(err):
		return unreadError("the directory "+printable(dir), err)
	default:
		c.skipRest(dir+"/", "the directory cannot be read")
		return nil
	}
	c.entries -= len(list)
	slices.SortFunc(list, func(a, b backend.FileInfo) int { // files first: a folder may use up what may be kept
		if dirs := rank(a) - rank(b); dirs != 0 {
			return dirs
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, info := range list {
		if strings.HasPrefix(info.Name, ".") {
			continue
		}
		if err := c.entry(ctx, path.Join(dir, info.Name), info, depth+1); err != nil {
			return err
		}
	}
	if more {
		c.partial = true
		c.skipRest(strings.TrimPrefix(dir+"/…", "./"), fmt.Sprintf("the rest was not looked at: more than %d entries in all", c.bounds.Entries))
	}
	return nil
}

func rank(info backend.FileInfo) int {
	if info.Mode.IsDir() {
		return 1
	}
	return 0
}

func (c *collector) entry(ctx context.Context, name string, info backend.FileInfo, depth int) error {
	if reason := badName(info.Name); reason != "" {
		c.skip(name, reason)
		return nil
	}
	if info.Mode.IsDir() {
		if depth >= c.bounds.Depth {
			c.skipRest(name+"/", fmt.Sprintf("deeper than %d levels", c.bounds.Depth))
			return nil
		}
		return c.directory(ctx, name, depth)
	}
	known, was := c.src.Known[name]
	if was && known.same(info) {
		if known.Fresh && c.full(info) == "" && c.stopped(ctx) == "" && info.Size <= c.unread {
			return c.take(ctx, name, info, known)
		}
		return nil
	}
	if reason := c.unfit(info); reason != "" {
		c.skip(name, reason)
		if n := len(c.skipped); info.Mode.IsRegular() && info.Size > c.bounds.FileBytes {
			c.large = true
			if c.unnamed == 0 {
				c.skipped[n-1].SizeBytes = info.Size
			}
		}
		return nil
	}
	if reason := c.full(info); reason != "" {
		c.beyond++
		c.skip(name, reason)
		return nil
	}
	reason := c.stopped(ctx)
	if reason == "" && info.Size > c.unread {
		reason = c.tooMuch()
	}
	if reason != "" {
		c.skip(name, reason)
		return nil
	}
	return c.take(ctx, name, info, known)
}

// full returns why no further file of that size is taken, or "".
func (c *collector) full(info backend.FileInfo) string {
	switch {
	case len(c.artifacts) >= c.bounds.Files:
		return fmt.Sprintf("more than %d files", c.bounds.Files)
	case c.total+info.Size > c.bounds.TotalBytes:
		return fmt.Sprintf("all files together are larger than %d bytes", c.bounds.TotalBytes)
	}
	return ""
}

// unfit returns why a file cannot be an artifact, judged by its directory entry, or "".
func (c *collector) unfit(info backend.FileInfo) string {
	switch m := info.Mode; {
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	case !m.IsRegular():
		return "not a regular file"
	case info.Links > 1:
		return "hard link"
	case info.Size < 0 || info.Size > c.bounds.FileBytes:
		return fmt.Sprintf("larger than %d bytes", c.bounds.FileBytes)
	}
	return ""
}

var (
	errChanged = errors.New("changed while it was read")
	errTime    = errors.New("the time for reading files is used up")
)

// stopped returns why no further file is read, or "".
func (c *collector) stopped(ctx context.Context) string {
	switch {
	case ctx.Err() == nil:
		return ""
	case errors.Is(context.Cause(ctx), errTime):
		return fmt.Sprintf("not read: the files took longer than %s", c.bounds.Time)
	default:
		return "not read: the run was cancelled"
	}
}

func (c *collector) tooMuch() string {
	return fmt.Sprintf("not read: at most %d bytes of files are read", c.bounds.ReadBytes)
}

// take reads one file and stores it.
func (c *collector) take(ctx context.Context, name string, info backend.FileInfo, known State) error {
	data, err := c.read(ctx, name)
	var unfit unfitError
	switch {
	case ctx.Err() != nil:
		c.skip(name, c.stopped(ctx))
		return nil
	case errors.As(err, &unfit):
		c.skip(name, string(unfit))
		return nil
	case errors.Is(err, errChanged), errors.Is(err, fs.ErrNotExist):
		c.skip(name, errChanged.Error())
		return nil
	case err != nil && !programs(err):
		return unreadError("the file "+printable(name), err)
	case err != nil:
		c.skip(name, "cannot be read")
		return nil
	}
	if c.src.Refuse != nil {
		if reason := c.src.Refuse(name, data); reason != "" {
			c.skip(name, reason)
			return nil
		}
	}
	sum, err := c.keeper.store.PutBlob(ctx, data)
	if err != nil && ctx.Err() != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		c.skip(name, c.stopped(ctx))
		return nil
	}
	if err != nil {
		return err
	}
	c.states[name] = State{Info: info, SHA256: sum, Fresh: isFresh(info.ModTime, c.src.Now)}
	if known.SHA256 == sum && known.Info.Size == info.Size && known.Info.ModTime.Equal(info.ModTime) {
		return nil // only the mode was changed, or the content is the same again
	}
	c.total += int64(len(data))
	c.artifacts = append(c.artifacts, sandboxmcp.Artifact{
		Name: name, ContentB64: data, SizeBytes: int64(len(data)), SHA256: sum, CreatedAt: c.src.Now.UTC().Round(0),
		Path: absolute(name), MIMEType: MIMEType(name, data), URI: uri(c.src.RequestID, c.src.SessionID, name),
	})
	return nil
}

// programs reports whether a program in the sandbox can cause the error, by changing names
// and modes. Any other error means that the machine fails and files are lost.
func programs(err error) bool {
	for _, of := range []error{fs.ErrPermission, fs.ErrNotExist, fs.ErrInvalid, syscall.ELOOP, syscall.ENOTDIR, syscall.EXDEV, syscall.ENAMETOOLONG, syscall.EAGAIN, syscall.ENXIO} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

func unreadError(what string, err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "%s could not be read: %s", what, err).WithCause(err)
}

// unfitError says why an opened file cannot be an artifact.
type unfitError string

func (e unfitError) Error() string { return string(e) }

// read reads a file once, and checks that it does not change meanwhile. It does not trust
// the directory entry. All bytes that it reads count toward Bounds.ReadBytes, even if the
// file is not stored.
func (c *collector) read(ctx context.Context, name string) ([]byte, error) {
	f, err := c.src.Files.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := f.Stat(ctx)
	if err != nil {
		return nil, err
	}
	if reason := c.unfit(before); reason != "" {
		return nil, unfitError(reason)
	}
	if c.total+before.Size > c.bounds.TotalBytes {
		return nil, errChanged
	}
	if before.Size > c.unread {
		return nil, unfitError(c.tooMuch())
	}
	buf := bytes.NewBuffer(make([]byte, 0, before.Size+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(backend.Reading(ctx, f), before.Size+1))
	c.unread -= n
	if err != nil {
		return nil, err
	}
	after, err := f.Stat(ctx)
	if err != nil {
		return nil, err
	}
	if int64(buf.Len()) != before.Size || after.Size != before.Size || !after.ModTime.Equal(before.ModTime) || after.Links != before.Links || after.Mark != before.Mark {
		return nil, errChanged
	}
	return buf.Bytes(), nil
}
