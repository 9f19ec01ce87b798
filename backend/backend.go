// Package backend is the seam between the engine and the places where code can
// run. A backend builds sandboxes and carries bytes. It knows nothing of languages, sessions, audit
// records or the server's APIs. Package backendtest holds the suite that every backend passes. Each
// rule in the comments below has a test there.
//
// Several processes may run in one sandbox at a time. Output is passed to writers as soon as it is
// written. A process may have private byte channels besides its three streams. What a backend
// prepares in advance is not visible to the caller of Open.
//
// A backend may be another machine. Every method that may wait or fail therefore takes a context
// and returns an error. If the context has ended before the call, a method does nothing and returns
// the context's error. Close is the exception: it always does its work, and its context limits only
// how long the caller waits.
package backend

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Paths inside every sandbox that has a file system of its own. A sandbox without one, as at tiers
// L0 and L1, has WorkDir, ProgramDir and TempDir elsewhere, and has no BridgeDir and no PackageDir.
// The backend then replaces the three paths in Argv, in the values of Env and in Dir. It replaces a
// path only if the whole string is the path, or if the string begins with the path and a slash. It
// changes no other string, such as /mnt/dataX or --to=/mnt/data, and not the bytes of files and
// streams.
const (
	BridgeDir  = "/run/bridge"     // another name of the directory bridge of ProgramDir, into which the server provides values
	WorkDir    = "/mnt/data"       // working directory: writable, with a quota, kept as artifacts
	ProgramDir = "/run/program"    // program files; read-only for programs
	TempDir    = "/tmp"            // writable scratch
	PackageDir = "/opt/sandboxmcp" // each package set is shown below it under its name
)

// A Backend builds sandboxes. All methods may be called concurrently.
type Backend interface {
	// Name is the backend's name in settings and results, such as "process".
	Name() string

	// Capabilities reports whether sandboxes can be built here and which walls they have. It builds
	// a trial sandbox to find out. It is cheap after the first call.
	Capabilities(ctx context.Context) Capabilities

	// Interpreter returns the program that runs code of a language in the backend's sandboxes. Its
	// version may be incomplete. If the backend has no such interpreter, Interpreter fails with
	// runtime_unavailable, and the hint says how to install one.
	Interpreter(ctx context.Context, l sandboxmcp.Language) (Interpreter, error)

	// Interpreters returns a row for each language, in the order of
	// sandboxmcp.Languages, with the exact version of each interpreter.
	Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error)

	// Open builds a sandbox as the Spec demands. If it fails, it returns an *sandboxmcp.Error and
	// leaves nothing behind. If the Spec needs a wall that cannot be built, it fails with
	// isolation_unavailable. If ctx ends during the call, the sandbox is closed again. The end of
	// ctx after the call has no effect: the caller closes the sandbox.
	Open(ctx context.Context, spec Spec) (Sandbox, error)

	// Close ends every sandbox and returns when all of them are removed. It may be called more than
	// once.
	Close(ctx context.Context) error
}

// A Warmer is a Backend that can prepare itself before the first Open, so that
// the first request does not wait for it.
//
// The methods run no program of a caller. They report no error, because Open will report it. They may
// be called concurrently with every other method.
type Warmer interface {
	// Prepare prepares what all sandboxes share.
	Prepare(ctx context.Context)

	// Warm prepares for sandboxes that see the trees of the Spec. If it has limits, the first sandbox will probably have them.
	Warm(ctx context.Context, spec Spec)

	// Expect says that the first caller will probably open a sandbox with this Spec and start this
	// process in it. The backend may build the sandbox and start what p.Prestart says. Expect does not
	// wait for that, but Open does. The channel is closed when the walls are read and the process has
	// started, when the backend starts none, and when ctx ends.
	Expect(ctx context.Context, spec Spec, p Process) <-chan struct{}
}

// A Pooler is a Backend that keeps resources for the next sandboxes: parts of closed ones, or empty
// ones in which no process was ever started.
type Pooler interface {
	// Pool returns how many resources of each kind are kept now. Their number is bounded. They are
	// dropped after a time without requests, and when the server ends. A resource from a closed
	// sandbox holds at most one descriptor, and no process, mount or goroutine. An empty sandbox
	// holds as much as every other sandbox.
	Pool() map[string]int

	// Trim drops all resources that are kept, and returns when they are released. Later requests
	// make the backend keep resources again.
	Trim(ctx context.Context) error
}

// A Tasker is a Backend whose sandboxes share the kernel's table of tasks with
// the rest of the machine.
type Tasker interface {
	// MaxTasks returns the upper bound of the sum of the task limits of all its sandboxes. The
	// caller opens no sandbox beyond that sum. The backend closes ready sandboxes that do not fit
	// beside the caller's.
	MaxTasks() int
}

// A Pruner is a Sandbox that can end some of its processes.
type Pruner interface {
	// Prune ends every process in the sandbox but those of keep and what these have started, and
	// returns when none of the others is left. If it fails, any number of them may have ended, none
	// of keep has, and the caller uses Clear. It fails with errors.ErrUnsupported in a sandbox in
	// which it does not work.
	Prune(ctx context.Context, keep ...Running) error
}

// A Near sandbox is on the server's own machine: a call takes microseconds, unless a program delays it.
// Its caller makes calls one after the other instead of at the same time.
type Near interface{ Near() }

// Capabilities is what a backend can do on this machine.
type Capabilities struct {
	Available bool
	Reason    string               // why not, and what to do; empty when Available
	Isolation sandboxmcp.Isolation // observed in a trial sandbox
	Attach    bool                 // Sandbox.Attach works
	Dial      bool                 // Sandbox.Dial works
	Freeze    bool                 // Sandbox.Freeze works
	Terminal  bool                 // Spec.Terminal and Process.Terminal work
	Users     []string             // names that Process.User may have, the default first; empty: users have no names here, and Process.User has to be empty
}

// Spec describes the sandbox that Open builds.
type Spec struct {
	ID          string          // for the log and for names of objects; [A-Za-z0-9_-]. It is unique among the live sandboxes of the Backend, but another server on the same machine may use it too
	MinTier     sandboxmcp.Tier // a weaker tier is refused
	MemoryBytes int64           // limit for all processes and files together, swap included
	CPUCores    float64
	MaxTasks    int           // limit of kernel tasks, threads included
	CPUTime     time.Duration // limit of the CPU time of one process, in addition to the caller's own time limit
	WorkBytes   int64         // quota of WorkDir; the backend may make it smaller, never larger
	WorkInodes  int64
	TempBytes   int64
	Image       string    // of Interpreter, for backends whose images differ; empty: the backend's own
	Hint        string    // a word for the kind of program that will be started; sandboxes with the same hint are prepared alike
	Loads       string    // name of what the first process loads by Fork.Load; empty: nothing is loaded before Start. A sandbox with something loaded is given only to a Spec with the same name. A backend that loads nothing in advance ignores it
	Terminal    bool      // processes in it may have a terminal. Open fails with isolation_unavailable if Capabilities.Terminal is false
	Apart       bool      // what the operator shares with all programs is not shown
	Stays       bool      // the sandbox will live long, such as that of a session
	Prestart    *Prestart // Prestart of the first process, if it is known: the backend may prepare for it
	Trees       []Tree    // shown besides the system's own; they must exist. Those directly below PackageDir are attached to this sandbox only, see Sandbox.Attach. In a sandbox without a file system of its own, nothing is below PackageDir, and programs read such a tree at its Host path
}

// A Sandbox is a closed place with a working directory of its own. All methods
// may be called concurrently.
type Sandbox interface {
	// Start starts a process. Its program files are in place before it runs. After Kill it fails
	// with fs.ErrClosed.
	Start(ctx context.Context, p Process) (Running, error)

	// Kill ends every process in the sandbox, also one that ignores signals, that has left its
	// session and its group, or whose parent has ended. It returns when no process is left, and does
	// not wait until one ends by itself. If ctx ends first, it returns ctx's error. Files stay
	// readable. It may be called more than once.
	//
	// A backend without a pid namespace finds such processes by a control group, or below a process
	// that is their subreaper (PR_SET_CHILD_SUBREAPER): the kernel gives it each orphan.
	Kill(ctx context.Context) error

	// Clear ends the same processes as Kill, and returns like it. Other processes can be started
	// afterwards, unless it fails: the caller then closes the sandbox.
	Clear(ctx context.Context) error

	// Provide puts files below ProgramDir, where programs can read them and cannot write them. It
	// makes missing directories and replaces existing files.
	Provide(ctx context.Context, files []ProgramFile) error

	// Attach shows a tree in this sandbox only, also to programs that already run in it. The tree's
	// path is directly below PackageDir. If the path is taken, Attach fails with fs.ErrExist. The
	// tree stays until the sandbox ends. If Capabilities.Attach is false, Attach fails with
	// isolation_unavailable.
	Attach(ctx context.Context, tree Tree) error

	// Dial connects to a TCP port of the sandbox's own loopback address, on which one of its
	// programs listens. If none listens, it fails with syscall.ECONNREFUSED. The other end is
	// untrusted code: it may send anything, send without end, or never read. The connection ends
	// with the sandbox, and the caller closes it. If Capabilities.Dial is false, Dial fails with
	// isolation_unavailable.
	Dial(ctx context.Context, port int) (net.Conn, error)

	// Freeze stops every process of the sandbox until Thaw, and returns when all have stopped.
	// Nothing is started meanwhile: Start and Files.Put fail with backend_unavailable. Signals
	// arrive after Thaw. Everything else works: files can be read, Clear and Kill end frozen
	// processes, and the sandbox's limits stay in force. A frozen sandbox ends with the server like
	// any other. Freeze may be called more than once. If Capabilities.Freeze is false, Freeze and
	// Thaw fail with isolation_unavailable.
	Freeze(ctx context.Context) error

	// Thaw continues the processes of a frozen sandbox. It may be called more than once.
	Thaw(ctx context.Context) error

	// Files gives access to WorkDir from outside, by descriptors: no name in it can lead out of it.
	// Names and contents come from untrusted code.
	Files() Files

	// Isolation returns the walls around the sandbox, read from the kernel while it lives. If it
	// cannot read one of them, it fails.
	Isolation(ctx context.Context) (sandboxmcp.Isolation, error)

	// Usage returns what the sandbox has used so far. After Close it fails with fs.ErrClosed.
	Usage(ctx context.Context) (Usage, error)

	// Close kills all processes and releases everything that the sandbox held, its directories
	// included. It may be called more than once.
	Close(ctx context.Context) error
}

// Process is a program to start.
type Process struct {
	Argv      []string      // absolute path of the program first
	Env       []string      // the whole environment, KEY=value; nothing is added
	Dir       string        // absolute; empty: WorkDir
	User      string        // one of Capabilities.Users; empty: the default. Start fails with invalid_argument for another
	Program   []ProgramFile // put into ProgramDir before the start; names without a slash
	Stdin     []byte        // nil: end of file at once, unless OpenStdin is set
	OpenStdin bool          // stdin stays open after Stdin was written, for Running.WriteStdin
	Stdout    io.Writer     // called by one goroutine at a time, until Drain returns; its errors are ignored. If it blocks, so do Flush, Drain and the program's own writes, and Close waits a limited time; Wait, Clear and Kill do not wait for it
	Stderr    io.Writer
	Channels  int       // private streams of bytes on descriptors 3, 4, 5 …, at most MaxChannels; see Running.Channel
	Prestart  *Prestart // nil: the process must not be started before Start is called

	// Terminal gives the process a controlling terminal as its three streams; nil: none. It needs
	// Spec.Terminal. All output goes to Stdout. Stdin stays open as with OpenStdin, and written
	// bytes are input of the terminal: byte 3 (^C) interrupts. CloseStdin sends byte 4 (^D), which
	// a program reads as an end of file unless it has changed its terminal.
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
	Exec bool // programs can execute it
}

// Running is a started process.
type Running interface {
	// Signal sends a signal to the process alone.
	Signal(ctx context.Context, number int) error

	// Interrupt sends SIGINT to the process and its group, as ^C on a terminal.
	Interrupt(ctx context.Context) error

	// WriteStdin writes to the process's stdin, which Process.OpenStdin keeps open. It waits until
	// the stream has taken all bytes. If ctx ends first, it returns how many were written, and
	// ctx's error. It fails with fs.ErrClosed without OpenStdin and after CloseStdin, and with
	// syscall.EPIPE if the stream has no reader.
	WriteStdin(ctx context.Context, p []byte) (n int, err error)

	// CloseStdin closes stdin. The process can still read the bytes that were written before. After
	// them it reads the end of the file. CloseStdin may be called more than once.
	CloseStdin(ctx context.Context) error

	// Resize sets the size of the process's terminal, whose programs get SIGWINCH. Without
	// Process.Terminal it fails with invalid_argument. After the terminal has been read to its end,
	// it fails with fs.ErrClosed.
	Resize(ctx context.Context, size TerminalSize) error

	// Channel returns the server's end of a pair of private streams. Pair 0 is descriptors 3 and 4
	// of the process, pair 1 is 5 and 6, and so on. The process writes to the first descriptor of a
	// pair and reads from the second. If the process does not have the first, Channel returns nil.
	// If it does not have the second, writing fails.
	//
	// Untrusted code writes the bytes that Channel delivers. Reading ends when every process
	// that holds the descriptor has closed it. No descriptor can be passed over a channel.
	Channel(pair int) io.ReadWriteCloser

	// Wait waits for the process to end. It does not wait for its children, nor for its streams to
	// be closed: a daemon that holds them does not delay it. If ctx ends first, Wait returns ctx's
	// error and the process continues. Output that was written before the end has been passed to
	// the writers once Drain returns.
	Wait(ctx context.Context) (Exit, error)

	// Flush passes everything that is in the streams now to the writers. A caller that learns of an
	// event in another way, such as by a channel, then has the output before that event. If a
	// stream cannot be read, Flush fails. If ctx ends first, Flush returns ctx's error: a program can
	// keep a stream from being read until it is killed.
	Flush(ctx context.Context) error

	// Drain waits until both streams are read to their end, which is after Kill at the latest. If a
	// stream cannot be read to its end, or if ctx ends first, output is lost and Drain fails.
	Drain(ctx context.Context) error
}

// Exit is how a process ended.
type Exit struct {
	Code   int  // exit code; meaningless when Signal is not 0
	Signal int  // number of the signal that ended it, 0 for none
	Lost   bool // the sandbox ended before the process: by Kill, by Close, or because what keeps the sandbox failed, such as its init or its machine. Signal is SIGKILL. After Clear, Signal is SIGKILL and Lost is false, because the sandbox still lives
}

// Usage is what a sandbox took.
type Usage struct {
	PeakMemory int64 // bytes
	CPU        time.Duration
	PeakTasks  int
	OOMKills   int      // processes that the memory limit ended, plus one for each entry of Exceeded
	Exceeded   []string // one entry for each time that the backend ended all programs because they held too many kernel objects of a kind; it names the kind
}

// Files is WorkDir seen from outside. Names are slash-separated and relative to
// WorkDir; "." is WorkDir itself. No method follows a symbolic link in any part
// of a name, crosses a mount or blocks on a FIFO.
//
// Programs can keep a call waiting. A change that waits when its ctx ends may still happen later.
type Files interface {
	FileReader

	// Put writes a regular file as one step: a reader sees either the whole old or the whole new
	// content. Missing directories are made. Without overwrite, it fails with fs.ErrExist if the
	// name exists. The content counts as the sandbox's memory and against the quota. If the quota
	// is full, Put fails with syscall.ENOSPC and leaves nothing. After Kill it fails with
	// fs.ErrClosed.
	Put(ctx context.Context, name string, data []byte, overwrite bool) error

	// Stat describes the entry itself, also when it is a symbolic link.
	Stat(ctx context.Context, name string) (FileInfo, error)

	// Mkdir makes a directory and its missing parents. If the directory exists, that is no error.
	// If another kind of file has the name, Mkdir fails with fs.ErrExist. After Kill it fails with
	// fs.ErrClosed.
	Mkdir(ctx context.Context, name string) error

	// Rename gives an entry another name, in one step. Without overwrite, it fails with fs.ErrExist
	// if that name exists. With it, a file replaces a file, and a directory replaces an empty
	// directory. After Kill it fails with fs.ErrClosed.
	Rename(ctx context.Context, from, to string, overwrite bool) error

	// Remove removes a file or link, also after Kill.
	Remove(ctx context.Context, name string) error

	// Watch reports changes below a directory from now on. If name is no directory, it fails. If
	// the sandbox has MaxWatches watches, it fails with syscall.EMFILE.
	Watch(ctx context.Context, name string) (Watch, error)
}

// FileReader is the part of Files that changes nothing.
type FileReader interface {
	// Open opens a regular file for reading. For anything else it fails with fs.ErrInvalid.
	Open(ctx context.Context, name string) (File, error)

	// List returns at most limit entries of a directory, in no order. more reports whether there
	// are more.
	List(ctx context.Context, name string, limit int) (entries []FileInfo, more bool, err error)
}

// A Dated FileReader tells at once when the working directory itself last changed.
type Dated interface {
	// Changed returns when an entry was last added to the working directory, removed from it or
	// renamed in it, or its attributes were changed. A program cannot set that time. Changed never
	// waits for a program.
	Changed() (time.Time, error)
}

// File is an open regular file.
type File interface {
	io.ReadCloser
	Stat(ctx context.Context) (FileInfo, error)
}

// Reading returns a reader of r that fails with ctx's error once ctx has ended. It reads at most 1
// MiB at a time, so that it soon notices the end of ctx.
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
	Blocks  int64 // 512-byte blocks allocated
	Links   uint64
	ModTime time.Time

	// ID identifies the file under all its names; 0: unknown. After the file is removed, a new file
	// may get the same ID.
	ID uint64

	// Mark changes whenever the file's content or any of its attributes changes. Another file under
	// the same name has another Mark. Empty: unknown.
	Mark string
}
