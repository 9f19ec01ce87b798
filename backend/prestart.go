package backend

import "context"

// Prestart says that a process may be started, or forked from one like it, before Start is called
// for it. The waiting process is started with this Argv, Env and Program. It initializes and waits.
// Then it becomes the caller's process. It differs from a process that Start starts only in its
// clocks, and in the first environment and command line that the kernel shows of it.
//
// Only Begin may contain values of a caller, because a waiting process may be given to any caller.
// A backend that does not support Prestart ignores it.
//
// Without Fork, the waiting process is in an empty sandbox and is used once. It always has two
// channels, and closes those that the requested process does not have. A process with more than two
// channels is not started in advance. It waits for Begin on descriptor 4.
type Prestart struct {
	Argv    []string      // of the waiting process; without Fork, nil means Process.Argv
	Env     []string      // of the waiting process, complete
	Program []ProgramFile // of the waiting process; they replace the files of Process.Program that have the same names
	Begin   []byte        // turns the waiting process into the caller's; without Fork only
	Fork    *Fork         // nil: the waiting process itself is used
	Alone   *Prestart     // with Fork: how the process is started in advance where nothing can be forked yet; nil: it is not
}

// Fork says that the waiting process is forked into sandboxes and never used itself. It waits
// outside of any sandbox. Its forks have the same walls as a process that Start starts. They share
// their memory layout and their hash seed. Only root may be able to change the files that the
// waiting process loads.
//
// Prestart.Program must be one file, which Argv names after its options. It speaks the wire
// protocol of fork servers (package internal/jail), which is the same for all languages. A file of
// Process.Program with the same name may be in a sandbox before its program is requested, so it
// contains no values of a caller.
type Fork struct {
	Options int  // number of elements of Prestart.Argv before the file of Program; Process.Argv begins with the same elements and file
	Stays   bool // the process will live long: its private memory matters more than its start-up time

	// Load is code that a fork executes in a sandbox of its own, if the fork server supports it.
	// Later forks share the memory of that fork, each in its own sandbox. nil: nothing.
	Load []byte

	Check LoadCheck // of the files that Load reads; nil: no check
}

// A LoadCheck returns an error if the files that a Load reads are not the right ones. It is called
// before the Load is executed, with loaded false, and again before its memory is used, with loaded
// true. It may take seconds.
type LoadCheck func(ctx context.Context, loaded bool) error

// A Prestarter is a Backend that starts processes before they are requested.
type Prestarter interface {
	// NotForked returns why processes with a Prestart.Fork are not forked, as far as that is known.
	// It returns nil if they are.
	NotForked() error

	// NotLoaded returns why the result of the last Fork.Load was not used. It returns nil if it was
	// used, or if there was none.
	NotLoaded() error
}
