// Package backend is the seam between the engine and the places where code can
// run. A backend builds sandboxes and carries bytes; it knows nothing of
// languages, sessions, records or doors. Package backendtest holds the suite
// that every backend passes: each law in the comments below is a test there.
//
// Several processes may run in one sandbox at a time. Output goes to writers while it
// is written. A process may have private byte channels besides its three streams. What
// a backend prepares ahead is its own affair behind Open.
//
// A backend may be another machine. Every method that may wait or fail therefore has
// a context and an error. A method whose context has ended before the call does
// nothing and fails with the context's error, but for Close, which always does its
// work: its context says only how long the caller waits for it.
package backend

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Places inside every sandbox, on every backend with a file system of its own for each
// sandbox. One without, as at tier L1, has WorkDir, ProgramDir and TempDir elsewhere and
// has no BridgeDir and no PackageDir. It replaces those three in Argv, in the values of
// Env and in Dir, where they are the whole string or stand before a slash at its begin.
const (
	BridgeDir  = "/run/bridge"     // values that were handed to the sandbox: the directory bridge of ProgramDir
	WorkDir    = "/mnt/data"       // working directory: writable, with a quota, kept as artifacts
	ProgramDir = "/run/program"    // program files; read-only for programs
	TempDir    = "/tmp"            // writable scratch
	PackageDir = "/opt/sandboxmcp" // below it package sets are shown, by name
)

// A Backend builds sandboxes. All methods may be called concurrently.
type Backend interface {
	// Name is the backend's name in settings and results, such as "process".
	Name() string

	// Capabilities tells whether sandboxes can be built here and behind which
	// walls, from a trial that was really made. It is cheap after the first call.
	Capabilities(ctx context.Context) Capabilities

	// Interpreter returns what runs code of a language in the backend's sandboxes. It
	// may leave the version short. If the backend has no such interpreter, it fails with
	// runtime_unavailable, and the hint says how to get one.
	Interpreter(ctx context.Context, l sandboxmcp.Language) (Interpreter, error)

	// Interpreters returns a row for each language, in the order of
	// sandboxmcp.Languages, with the exact version of each interpreter.
	Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error)

	// Open builds a sandbox as the Spec demands, or fails with an
	// *sandboxmcp.Error and leaves nothing behind. A Spec that needs a wall
	// that cannot be built fails with isolation_unavailable. When ctx ends
	// during the call, the sandbox is taken down again; when it ends
	// afterwards, nothing happens: the caller closes.
	Open(ctx context.Context, spec Spec) (Sandbox, error)

	// Close ends every sandbox and returns when nothing of them is left. It
	// may be called more than once.
	Close(ctx context.Context) error
}

// A Warmer is a Backend that can prepare itself before the first Open, so that
// the first request does not wait for it.
type Warmer interface {
	// Warm prepares for sandboxes that see the trees. It runs nothing,
	// tells no failure, which Open will, and may be called concurrently with
	// every other method.
	Warm(ctx context.Context, trees []Tree)
}

// A Pooler is a Backend that keeps something for the next sandboxes: what is
// left of dead ones, or empty ones in which nothing was ever started.
type Pooler interface {
	// Pool tells how much of each kind is kept now. What is kept is bounded, goes
	// by itself when nothing is asked for, and ends with the server like
	// everything else. A thing of a dead sandbox holds at most one descriptor,
	// and no process, mount or goroutine; an empty sandbox holds what every
	// sandbox does.
	Pool() map[string]int

	// Trim gives back all that is kept, and returns when nothing of it is left.
	// What is asked for afterwards makes the backend keep things again.
	Trim(ctx context.Context) error
}

// A Tasker is a Backend whose sandboxes share the kernel's table of tasks with
// the rest of the machine.
type Tasker interface {
	// MaxTasks returns how many kernel tasks the limits of all its sandboxes may
	// add up to. The caller keeps the sandboxes that it opens within that sum. The
	// backend closes ready sandboxes that do not fit beside them.
	MaxTasks() int
}

// Capabilities is what a backend can do on this machine.
type Capabilities struct {
	Available bool
	Reason    string               // why not, with what to do; empty when Available
	Isolation sandboxmcp.Isolation // what a trial sandbox was observed to have
	Attach    bool                 // Sandbox.Attach works
	Dial      bool                 // Sandbox.Dial works
	Freeze    bool                 // Sandbox.Freeze works
	Terminal  bool                 // Spec.Terminal and Process.Terminal work
	Users     []string             // that Process.User may name, the usual one first; empty: users have no names here
}

// Spec is what a sandbox has to be.
type Spec struct {
	ID          string          // unique among live sandboxes of the owner; names kernel objects; [A-Za-z0-9_-]
	MinTier     sandboxmcp.Tier // weaker than this is refused
	MemoryBytes int64           // of all processes and files together, swap included
	CPUCores    float64
	MaxTasks    int           // kernel tasks, threads counted
	CPUTime     time.Duration // CPU time of one process, a second wall behind the caller's clock
	WorkBytes   int64         // quota of WorkDir; the backend may make it smaller, never larger
	WorkInodes  int64
	TempBytes   int64
	Hint        string    // what will be started in it, in a word; sandboxes of one hint are prepared alike
	Loads       string    // name of what its first process loads by Fork.Load; empty: nothing is loaded ahead of Start. A sandbox in which it was loaded ahead is given out only for the same name
	Terminal    bool      // processes in it may have a terminal. Where Capabilities say that none can, Open fails with isolation_unavailable
	Stays       bool      // the sandbox will live long, as that of a session does
	Prestart    *Prestart // of the first process in it, if that is known: the backend may prepare for it
	Trees       []Tree    // shown besides the system's own; they must exist. Those directly below PackageDir are attached to this sandbox alone, see Sandbox.Attach
}

// A Sandbox is a closed place with a working directory of its own. All methods
// may be called concurrently.
type Sandbox interface {
	// Start starts a process. Its program files are in place before it runs.
	Start(ctx context.Context, p Process) (Running, error)

	// Kill ends every process in the sandbox, whatever it does, and returns
	// when none is left. Files stay readable. It may be called more than once.
	Kill(ctx context.Context) error

	// Clear ends every process in the sandbox, whatever it does, and returns
	// when none is left. Others can be started in it afterwards.
	Clear(ctx context.Context) error

	// Provide puts files below ProgramDir, where programs can read and not
	// write. Directories on the way are made; a file that is there is replaced.
	Provide(ctx context.Context, files []ProgramFile) error

	// Attach shows a tree in this sandbox and in no other, also to programs that run in
	// it. Its place is directly below PackageDir and not taken (fs.ErrExist). It stays
	// until the sandbox ends. Where Capabilities say that nothing can be attached, it
	// fails with isolation_unavailable.
	Attach(ctx context.Context, tree Tree) error

	// Dial connects to a TCP port of the sandbox's own loopback address, on which one of
	// its programs listens; no such program is syscall.ECONNREFUSED. The other end is
	// untrusted code: it may send anything, send without end, or never read. The
	// connection ends with the sandbox, and the caller closes it. Where Capabilities say that ports cannot be reached, it fails with
	// isolation_unavailable.
	Dial(ctx context.Context, port int) (net.Conn, error)

	// Freeze stops every process of the sandbox until Thaw, and returns when all have
	// stopped. Nothing is started meanwhile: Start and Files.Put fail with
	// backend_unavailable. Signals arrive after Thaw. Everything else works: files are
	// read, Clear and Kill end what is frozen, and the limits on what the sandbox may hold
	// stay in force. A frozen sandbox ends with the server like any other. Freeze may be
	// called more than once. Where Capabilities say that it does not work, Freeze and Thaw
	// fail with isolation_unavailable.
	Freeze(ctx context.Context) error

	// Thaw lets the processes of a frozen sandbox go on. It may be called more than once.
	Thaw(ctx context.Context) error

	// Files gives access to WorkDir from outside, by descriptors: no name in
	// it can lead out of it. What it holds is hostile.
	Files() Files

	// Isolation tells which walls stand around the sandbox, read from the
	// kernel while it lives. It fails rather than guess.
	Isolation(ctx context.Context) (sandboxmcp.Isolation, error)

	// Usage tells what the sandbox has taken so far. It works until Close; after
	// that it is fs.ErrClosed.
	Usage(ctx context.Context) (Usage, error)

	// Close kills, and gives back everything that the sandbox held. It may be
	// called more than once.
	Close(ctx context.Context) error
}

// Process is a program to start.
type Process struct {
	Argv      []string      // absolute path of the program first
	Env       []string      // the whole environment, KEY=value; nothing is added
	Dir       string        // absolute; empty: WorkDir
	User      string        // one of Capabilities.Users; empty: the usual one. Start fails with invalid_argument for another
	Program   []ProgramFile // put into ProgramDir before the start; names without a slash
	Stdin     []byte        // nil: end of file at once, but for OpenStdin
	OpenStdin bool          // stdin stays open behind Stdin, for Running.WriteStdin
	Stdout    io.Writer     // called from one goroutine per stream, until Drain returns; must not block; an error ends nothing
	Stderr    io.Writer
	Channels  int       // private streams of bytes on descriptors 3, 4, 5 …, at most MaxChannels; see Running.Channel
	Prestart  *Prestart // nil: it has to be started when it is asked for

	// Terminal gives the process a controlling terminal as its three streams; nil: none. It
	// needs Spec.Terminal. All output goes to Stdout. Stdin stays open as with OpenStdin,
	// and what is written is input of the terminal: 3 (^C) interrupts. CloseStdin sends 4
	// (^D), which a program reads as an end of file unless it has changed its terminal.
	Terminal *TerminalSize
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Columns, Rows uint16 }

// MaxChannels bounds Process.Channels. Start fails with invalid_argument for more.
const MaxChannels = 8

// ProgramFile is a file below ProgramDir.
type ProgramFile struct {
	Name string // relative to ProgramDir; slash-separated for Sandbox.Provide, without a slash in Process.Program
	Data []byte
}

// Running is a started process.
type Running interface {
	// Signal sends a signal to the process alone.
	Signal(ctx context.Context, number int) error

	// Interrupt sends SIGINT to the process and its group, as ^C on a terminal.
	Interrupt(ctx context.Context) error

	// WriteStdin writes to the process's stdin, which Process.OpenStdin keeps open. It
	// waits until all is in the stream. If ctx ends first, it returns how much was
	// written, and ctx's error. It fails with fs.ErrClosed without OpenStdin and after
	// CloseStdin, and with syscall.EPIPE when nothing reads the stream any more.
	WriteStdin(ctx context.Context, p []byte) (n int, err error)

	// CloseStdin ends the process's stdin: after what was written it reads the end of
	// file. It may be called more than once.
	CloseStdin(ctx context.Context) error

	// Resize sets the size of the process's terminal, whose programs get SIGWINCH. Without
	// Process.Terminal it fails with invalid_argument, and with fs.ErrClosed when the
	// terminal has been read to its end.
	Resize(ctx context.Context, size TerminalSize) error

	// Channel returns the server's end of a pair of private streams. Pair 0 is descriptors
	// 3 and 4 of the process, pair 1 is 5 and 6, and so on. The process writes to the first
	// of a pair and reads from the second. Channel returns nil if the process has not the
	// first. Writing fails if it has not the second.
	//
	// What is read comes from untrusted code. Reading ends when every process that holds
	// the descriptor has closed it. No descriptor can be passed over a channel.
	Channel(pair int) io.ReadWriteCloser

	// Wait waits for the process to end, not for its children and not for its
	// streams to be closed: a daemon that holds them does not delay it. When
	// ctx ends first, it returns ctx's error and the process goes on. Output
	// that was written before the end has been handed to the writers once
	// Drain returns.
	Wait(ctx context.Context) (Exit, error)

	// Flush hands everything that is in the streams now to the writers. A caller
	// that has heard of the process in another way then has the output before that.
	// Flush fails if a stream cannot be read any more.
	Flush(ctx context.Context) error

	// Drain waits until both streams are read to their end, which is after
	// Kill at the latest. It fails if output is lost: if a stream cannot be read
	// to its end, or if ctx ends first.
	Drain(ctx context.Context) error
}

// Exit is how a process ended.
type Exit struct {
	Code   int  // exit code; meaningless when Signal is not 0
	Signal int  // number of the signal that ended it, 0 for none
	Lost   bool // the sandbox ended before the process: by Kill, by Close or by a failure. Signal is SIGKILL. After Clear, Signal is SIGKILL and Lost is false, because the sandbox goes on
}

// Usage is what a sandbox took.
type Usage struct {
	PeakMemory int64 // bytes
	CPU        time.Duration
	PeakTasks  int
	OOMKills   int      // processes that the memory limit ended, and one for each entry of Exceeded
	Exceeded   []string // one entry for each time that the backend ended all programs: the kernel objects of which they held too many
}

// Files is WorkDir seen from outside. Names are slash-separated and relative to
// WorkDir; "." is WorkDir itself. No method follows a symbolic link in any part
// of a name, crosses a mount or blocks on a FIFO.
type Files interface {
	FileReader

	// Put writes a regular file as one step: whoever opens the name sees the
	// whole old or the whole new content. Missing directories on the way are
	// made. Without overwrite a name that is there is fs.ErrExist. What it holds
	// counts as the sandbox's memory and against the quota; a full one is
	// syscall.ENOSPC, and nothing is left of it. It needs the sandbox alive.
	Put(ctx context.Context, name string, data []byte, overwrite bool) error

	// Stat describes the entry itself, also when it is a symbolic link.
	Stat(ctx context.Context, name string) (FileInfo, error)

	// Mkdir makes a directory, and those on the way to it. One that is there is no error;
	// anything else of that name is fs.ErrExist.
	Mkdir(ctx context.Context, name string) error

	// Rename gives an entry another name, in one step. Without overwrite a name that is
	// there is fs.ErrExist. With it, a file takes the place of a file, and a directory
	// that of an empty directory.
	Rename(ctx context.Context, from, to string, overwrite bool) error

	// Remove removes a file or link.
	Remove(ctx context.Context, name string) error

	// Watch reports what changes below a directory from now on. What is no directory is
	// an error. A watch beyond MaxWatches is syscall.EMFILE.
	Watch(ctx context.Context, name string) (Watch, error)
}

// FileReader is the part of Files that changes nothing.
type FileReader interface {
	// Open opens a regular file for reading; anything else is fs.ErrInvalid.
	Open(ctx context.Context, name string) (File, error)

	// List returns at most limit entries of a directory, in no order, and
	// whether there are more.
	List(ctx context.Context, name string, limit int) (entries []FileInfo, more bool, err error)
}

// File is an open regular file.
type File interface {
	io.ReadCloser
	Stat(ctx context.Context) (FileInfo, error)
}

// Reading returns a reader of r that fails with ctx's error once ctx has ended. It
// reads at most 1 MiB at a time, so that it notices soon.
func Reading(ctx context.Context, r io.Reader) io.Reader { return &reading{ctx, r} }

type reading struct {
	ctx context.Context //nolint:containedctx // lives for one file
	r   io.Reader
}

func (r *reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p[:min(len(p), 1<<20)])
}

// FileInfo describes a directory entry without following it.
type FileInfo struct {
	Name    string // the entry's bytes, not necessarily UTF-8
	Mode    fs.FileMode
	Size    int64
	Blocks  int64 // 512-byte blocks really held
	Links   uint64
	ModTime time.Time

	// ID is the file's own, whatever its name; 0: not known. That of a file that was removed
	// may be given to another.
	ID uint64

	// Mark changes whenever the file's content or any of its attributes do, and
	// differs from that of another file under the same name; empty: not known.
	Mark string
}
