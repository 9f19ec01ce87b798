package packages

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of what is unpacked.
const (
	maxUnpacked  = 6 << 30 // bytes of a tree
	maxEntries   = 100_000 // files of a tree, and as many directories
	entryBytes   = 4 << 10 // what a file or a directory counts for besides its content: so much of a disk, or more
	maxRatio     = 300     // unpacked to packed bytes of a package above freeRatio
	freeRatio    = 32 << 20
	maxPath      = 1000
	maxSegment   = 255
	maxDepth     = 100
	maxTextField = 200
	maxWarnings  = 20 // of each kind
)

// unfitError means that a package is refused because of its content.
type unfitError struct{ why string }

func (e *unfitError) Error() string { return e.why }

func unfit(format string, args ...any) error { return &unfitError{fmt.Sprintf(format, args...)} }

// unpacker writes the files of packages below a directory. It makes regular files and
// directories only, never a link, and replaces nothing.
type unpacker struct {
	root     *os.Root
	made     map[string]bool // directories, with those above them
	at       string          // the directory of the last file, which is open as dir
	dir      *os.Root
	owner    map[string]string // which package made a file
	total    int64
	next     int64                   // total at which spare is asked again
	spare    func(bytes int64) error // see Config.Spare
	warnings []string
	unshown  int // warnings that are not in warnings
	losses   []*loss
}

// loss tells of the files of one package that are left out because others have their names.
type loss struct {
	pkg, name, by string // the first file, and the package that has it
	more          int
}

// warn adds a warning. Many are only counted.
func (u *unpacker) warn(format string, args ...any) {
	if len(u.warnings) < maxWarnings {
		u.warnings = append(u.warnings, fmt.Sprintf(format, args...))
	} else {
		u.unshown++
	}
}

// lose notes that a file of a package is left out because another package has its name.
func (u *unpacker) lose(pkg, name, by string) {
	if n := len(u.losses); n > 0 && u.losses[n-1].pkg == pkg { // packages are unpacked one after the other
		u.losses[n-1].more++
		return
	}
	u.losses = append(u.losses, &loss{pkg: pkg, name: name, by: by})
}

// told returns the warnings. Files that others replace come first, a line for each package, so
// that no package hides them behind warnings of its own. The last line counts what is not shown.
func (u *unpacker) told() []string {
	var all []string
	for _, l := range u.losses[:min(len(u.losses), maxWarnings)] {
		line := fmt.Sprintf("%s of %s is left out: %s has a file of this name", clean(l.name), l.pkg, l.by)
		if l.more > 0 {
			line += fmt.Sprintf("; %d more of its files are left out for such a reason", l.more)
		}
		all = append(all, line)
	}
	all = append(all, u.warnings...)
	if n := u.unshown + max(0, len(u.losses)-maxWarnings); n > 0 {
		all = append(all, fmt.Sprintf("%d more warnings are not shown", n))
	}
	return all
}

// budget bounds one package.
type budget struct {
	packed, unpacked int64
	names            map[string]string // the names of its files, folded
	bundled          map[string]bool   // node: the packages that are in its tarball; see modules
}

// checkName fails if a name in an archive is not a plain relative path.
func checkName(name string) error {
	shown := sandboxmcp.Quote(name)
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return unfit("its file %s has a name with control characters", shown)
	case strings.ContainsAny(name, `\`) || len(name) > 1 && name[1] == ':':
		return unfit("its file %s has a name that is a path of another system", shown)
	case strings.HasPrefix(name, "/"):
		return unfit("its file %s has an absolute path", shown)
	case name == "" || len(name) > maxPath || strings.Count(name, "/") > maxDepth:
		return unfit("its file %s has a path that is too long", shown)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return unfit("its file %s leads out of the package", shown)
		case part == "" || part == ".":
			return unfit("its file %s has a path that is not plain", shown)
		case len(part) > maxSegment:
			return unfit("its file %s has a path that is too long", shown)
		}
	}
	return nil
}

// claim reserves a name in a package. It fails if a file has the name already, in any case.
func (b *budget) claim(name string) error {
	folded := strings.ToLower(name)
	if other, ok := b.names[folded]; ok {
		if other == name {
			return unfit("its file %s is in it twice", sandboxmcp.Quote(name))
		}
		return unfit("its files %s and %s differ only in case", sandboxmcp.Quote(other), sandboxmcp.Quote(name))
	}
	b.names[folded] = name
	return nil
}

// write writes a file. If another package has made a file of this name, that one stays. It
// returns what it has read through the writers.
func (u *unpacker) write(b *budget, pkg, name string, mode fs.FileMode, r io.Reader) error {
	if len(u.owner) >= maxEntries {
		return unfit("the packages have more than %d files", maxEntries)
	}
	dir, err := u.open(b, path.Dir(name))
	if err == nil {
		err = u.charge(b, 1)
	}
	if err != nil {
		return err
	}
	perm := fs.FileMode(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	out := io.Discard
	f, err := dir.OpenFile(path.Base(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	switch {
	case errors.Is(err, fs.ErrExist):
		by := u.owner[name]
		if by == pkg || by == "" {
			return unfit("its file %s stands where another is", sandboxmcp.Quote(name))
		}
		u.lose(pkg, name, by)
	case err != nil:
		return err
	default:
		u.owner[name] = pkg
		out = f
	}
	err = u.copy(b, out, r)
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// open makes a directory and returns it. Files mostly come by directory, so the last one stays
// open.
func (u *unpacker) open(b *budget, name string) (*os.Root, error) {
	if u.dir != nil && u.at == name {
		return u.dir, nil
	}
	if !u.made[name] {
		if err := u.claimDirs(b, name); err != nil {
			return nil, err
		}
		if err := u.root.MkdirAll(name, 0o755); err != nil { // protected later; every sandbox reads it
			if errors.Is(err, fs.ErrExist) || isNotDir(err) {
				return nil, unfit("its directory %s is a file", sandboxmcp.Quote(name))
			}
			return nil, err
		}
	}
	u.close()
	dir, err := u.root.OpenRoot(name)
	if err != nil {
		if isNotDir(err) {
			return nil, unfit("its directory %s is a file", sandboxmcp.Quote(name))
		}
		return nil, err
	}
	u.at, u.dir = name, dir
	return dir, nil
}

// claimDirs counts a directory that is to be made, and those above it. A few bytes of an archive can
// name a hundred of them.
func (u *unpacker) claimDirs(b *budget, name string) error {
	before := len(u.made)
	for at := name; !u.made[at]; at = path.Dir(at) {
		u.made[at] = true // "." ends the loop
	}
	if len(u.made) > maxEntries {
		return unfit("the packages have more than %d directories", maxEntries)
	}
	return u.charge(b, len(u.made)-before)
}

// charge counts files or directories of a package as bytes that it unpacks to.
func (u *unpacker) charge(b *budget, entries int) error {
	n := int64(entries) * entryBytes
	if n > u.room(b) {
		return b.exceeded()
	}
	u.total += n
	b.unpacked += n
	return nil
}

// room returns how many bytes a package may still unpack to.
func (u *unpacker) room(b *budget) int64 {
	return min(maxUnpacked-u.total, max(freeRatio, maxRatio*b.packed)-b.unpacked)
}

func (b *budget) exceeded() error {
	return unfit("it unpacks to more than %d MiB", b.unpacked>>20)
}

// close closes the directory of the last file.
func (u *unpacker) close() {
	if u.dir != nil {
		_ = u.dir.Close()
		u.dir = nil
	}
}

// copy copies a file within the bounds.
func (u *unpacker) copy(b *budget, w io.Writer, r io.Reader) error {
	room := u.room(b)
	n, err := u.copyPart(w, io.LimitReader(r, room+1))
	b.unpacked += n
	if _, told := errors.AsType[*sandboxmcp.Error](err); told {
		return err
	}
	if n > room {
		return b.exceeded()
	}
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok && p.Op == "write" {
			return err
		}
		return unfit("its archive is damaged")
	}
	return nil
}

// copyPart copies like io.Copy. It asks from time to time whether the disk has space left.
func (u *unpacker) copyPart(w io.Writer, r io.Reader) (n int64, err error) {
	for {
		if u.total >= u.next && u.spare != nil {
			if err = u.spare(spareBytes); err != nil {
				return n, err
			}
			u.next = u.total + spareEvery
		}
		part, err := io.CopyN(w, r, spareEvery)
		n += part
		u.total += part
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func isNotDir(err error) bool {
	return strings.Contains(err.Error(), "not a directory")
}

// textField makes one line of metadata fit to be shown.
func textField(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = oneLine(s)
	if len(s) > maxTextField {
		s = strings.ToValidUTF8(s[:maxTextField], "")
	}
	return s
}
