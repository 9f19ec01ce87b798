package host

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// Budgets, in the unit of spend.
const (
	maxLooked  = 32 << 20      // for one command
	maxProject = maxLooked / 2 // of these, for secrets of npm's projects
	maxHome    = 4 << 20       // for each home, beside that of the command
	minHome    = 512 << 10     // for each of very many homes
	maxOwn     = maxLooked / 2 // for the home of the server's user, which no stranger fills
	maxProgram = 2 << 20       // for the files of a program, before a rule allows it
	maxWalls   = 64 << 20      // for directories with closed places, whose entries are allowed one by one
)

// What each thing costs besides the bytes of its path. An entry takes memory for its name and what it is. A place gets a rule of Landlock, and other paths
// are compared with it.
const (
	costName  = 64
	costEntry = 64
	costPlace = 2 << 10

	costStored = 128 // bytes that a directory takes on its file system, for one unit: some file systems keep the space of removed entries, and read all of it
	costPlaces = 2   // for each place with which a path is compared
)

// budget bounds what the server looks at before one command: entries of directories, names on the way of paths, bytes of files, and paths that it
// keeps. Others make these, and each bound of its own leaves what several of them multiply to. What lists, follows or reads spends from the budget first. Once the
// budget is used up, or the time for the command is over, it finds nothing more, and over returns the error for the command.
type budget struct {
	late   func() error // fails if the time for the command is over
	left   int          // a unit is a byte of memory, or at most about 30 ns of the processor
	whole  *budget      // this one is a part of it; nil: of none
	failed error
}

func newBudget(late func() error, most int) *budget { return &budget{late: late, left: most} }

// anyTime is the function late of a budget that belongs to no command.
func anyTime() error { return nil }

// lateIn returns the function late of a budget for a context.
func lateIn(ctx context.Context) func() error { return func() error { return late(ctx) } }

// part returns a budget of at most this much of b. If it is used up, b is not.
func (b *budget) part(most int) *budget {
	return &budget{late: b.late, left: min(most, b.left), whole: b}
}

// apart returns a budget beside b, for what strangers decide. It has the same time.
func (b *budget) apart(most int) *budget { return newBudget(b.late, most) }

// spend takes from the budget. After its first error it returns that one.
func (b *budget) spend(cost int) error {
	switch {
	case b.failed != nil:
		return b.failed
	case b.whole != nil:
		b.failed = b.whole.spend(cost)
	default:
		b.failed = b.late()
	}
	if b.left -= cost; b.left < 0 && b.failed == nil {
		b.failed = sandboxmcp.Errorf(sandboxmcp.CodeHostPathDenied, "the command is refused: there is too much to look at in the files and directories that it would read").
			WithHint("name fewer files, or as cwd a directory with less in it")
	}
	return b.failed
}

// over returns an error if the budget is used up, or the time is over.
func (b *budget) over() error { return b.spend(0) }

// short ends the budget if err says that the server can open no more files at the moment. What it cannot look at, it would not close.
func (b *budget) short(err error) {
	if b.failed == nil && usedUp(err) {
		b.failed = sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the server can open no more files at the moment, so it cannot look at those that the command may not read").
			WithHint("call again later; an operator raises the server's limit of open files").WithCause(err)
	}
}

// usedUp reports whether an error says that the server or the machine has too many open files, or too little memory.
func usedUp(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// keep spends for places that a command may read, or that are closed. It reports whether there was enough left.
func (b *budget) keep(places ...string) bool {
	for _, p := range places {
		if b.spend(costPlace+len(p)) != nil {
			return false
		}
	}
	return true
}

// note spends for a path that is kept until it is looked at. It reports whether there was enough left.
func (b *budget) note(path string) bool { return b.spend(costEntry+len(path)) == nil }

// name spends for a name on the way of a path, whose own names the kernel looks up.
func (b *budget) name(path string) error { return b.spend(costName + 2*len(path)) }

// follow returns an absolute path without links.
func (b *budget) follow(path string) (string, error) { return plainfile.Real(path, b.name) }

// there reports whether a path names something.
func (b *budget) there(path string) bool {
	_, err := b.follow(path)
	return err == nil
}

// leadsInto reports whether a path is in one of some directories, or leads there or through one. So does a path that takes too much to follow.
func (b *budget) leadsInto(dirs []string, path string) bool {
	in := false
	whole := plainfile.Walk(path, func(next string, _ bool) bool {
		in = b.name(next) != nil || underAny(next, dirs)
		return !in
	})
	return in || !whole
}

// read returns the text of a regular file, or "" if that has more than most bytes, cannot be read, or is a file of the kernel.
func (b *budget) read(path string, most int64) string {
	real, err := b.follow(path)
	if err != nil {
		return ""
	}
	f, err := openPlain(real)
	if b.short(err); err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if b.spend(len(text)) != nil || err != nil || int64(len(text)) > most {
		return ""
	}
	return string(text)
}

// entries returns the entries of a directory, in the order of the file system. If the path names a FIFO or a device, entries does not open it:
// another user may have made it, and the open could wait or have an effect. A directory that the server cannot list has no entries.
func (b *budget) entries(dir string) iter.Seq[os.DirEntry] {
	return func(yield func(os.DirEntry) bool) {
		real, err := b.follow(dir)
		if err != nil {
			return
		}
		f, err := os.OpenFile(real, os.O_RDONLY|onlyDirectory, 0)
		if b.short(err); err != nil {
			return
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil || b.spend(stored(info)/costStored) != nil {
			return
		}
		for {
			some, failed := f.ReadDir(100)
			for _, e := range some {
				if b.spend(costEntry+len(dir)+len(e.Name())) != nil || !yield(e) {
					return
				}
			}
			if b.short(failed); failed != nil || len(some) == 0 { // what cannot be read is passed over
				return
			}
		}
	}
}

// names returns up to maxEntries names in a directory.
func (b *budget) names(dir string) (all []string) {
	for e := range b.entries(dir) {
		if all = append(all, e.Name()); len(all) == maxEntries {
			break
		}
	}
	return all
}

// linksIn returns the links in a directory, and in the scopes of packages in a directory node_modules.
func (b *budget) linksIn(dir string) (all []string) {
	for e := range b.entries(dir) {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0 && b.note(path):
			all = append(all, path)
		case e.IsDir() && e.Name()[0] == '@' && filepath.Base(dir) == "node_modules":
			all = append(all, b.linksIn(path)...)
		}
	}
	return all
}
