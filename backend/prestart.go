package backend

import "context"

// Prestart says that a process may be started, or forked from one like it, before it
// is asked for. The process that waits is started with this Argv, Env and Program. It
// comes up and waits. Then it is made the caller's: it becomes a process that differs
// from one that is started when it is asked for only in its clocks and in what the
// kernel shows of its first environment and command line.
//
// Nothing here but Begin may come from a caller: a process may wait for one caller and
// be given to another. A backend that does not know how ignores it.
//
// Without Fork, the process waits in an empty sandbox and is used once. It always has
// two channels, and closes those that the process asked for does not have; one with more
// than two is not started ahead. It waits for Begin on descriptor 4.
type Prestart struct {
	Argv    []string      // of the process that waits; without Fork nil stands for the process's own
	Env     []string      // of the process that waits, whole
	Program []ProgramFile // of the process that waits, in place of those of the process that have their names
	Begin   []byte        // makes the process that waits the caller's; without Fork only
	Fork    *Fork         // nil: the process that waits is used itself
}

// Fork says that the process that waits is forked into sandboxes and never used itself.
// It waits outside of any sandbox. Its forks are behind the same walls as a process that
// is started, and share their layout of memory and their seed of hashes. Nobody but root
// may be able to change what the process that waits loads.
//
// Program of the Prestart is one file, the one that Argv names after its options. It
// speaks the wire of fork servers (package internal/jail), which is the same for all
// languages.
type Fork struct {
	Options int  // how many of Argv stand before the file of Program; these and the file's name are the process's own, too
	Stays   bool // the process will live for long: the memory that it has to itself counts for more than its first moments

	// Load is what a fork executes in a sandbox of its own, as far as the fork server
	// knows how. Other forks take over the memory of that fork, each in its own sandbox.
	// nil: nothing.
	Load []byte

	// Loaded is called after Load was executed and before the memory is used. An error
	// says that Load has read other files than it should. nil: no check.
	Loaded func(ctx context.Context) error
}

// A Prestarter is a Backend that starts processes before they are asked for.
type Prestarter interface {
	// NotForked returns why processes with a Prestart.Fork are not forked, as far as that
	// is known; nil: nothing is in the way.
	NotForked() error

	// NotLoaded returns why the last Fork.Load was not taken over; nil: it was, or there
	// was none.
	NotLoaded() error
}
