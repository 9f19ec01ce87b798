package process

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// prepared is what a forked program needs besides its fork. It is made while the fork waits, and contains no
// values of a caller.
type prepared struct {
	driver  backend.ProgramFile // the driver that the program is started with; if its name is empty, it is not written ahead
	private private             // streams of the program
	pipes   *pipes              // nil: not made
}

// preparedFor returns what programs like p need. Nothing of it is made yet.
func preparedFor(p backend.Process) prepared {
	o := prepared{private: privateOf(p)}
	for _, f := range p.Program {
		if f.Name == p.Prestart.Program[0].Name {
			o.driver = f
		}
	}
	return o
}

// prepare makes what the program of the waiting fork needs. It reports whether it could.
func (s *sandbox) prepare(o prepared) bool {
	if o.driver.Name != "" && s.putProgram([]backend.ProgramFile{o.driver}) != nil {
		return false
	}
	var err error
	o.pipes, err = openPipes(s.slot.UID(), s.input(nil), false, o.private, s.effort)
	s.prepared = o
	s.b.refused(err)
	return err == nil
}

// takePrepared returns the files that the first process of the sandbox still needs, and its streams if they are made.
// It removes what other processes do not need.
func (s *sandbox) takePrepared(p backend.Process) ([]backend.ProgramFile, *pipes) {
	s.mu.Lock()
	o := s.prepared
	s.prepared = prepared{}
	s.mu.Unlock()
	if o.pipes != nil && (p.Terminal != nil || p.OpenStdin || s.input(p.Stdin) != nil || privateOf(p) != o.private) {
		o.close()
	}
	if o.driver.Name == "" {
		return p.Program, o.pipes
	}
	at := slices.IndexFunc(p.Program, func(f backend.ProgramFile) bool { return f.Name == o.driver.Name })
	switch {
	case at < 0:
		_ = unix.Unlinkat(s.slot.Dirs[jail.DirProgram], o.driver.Name, 0) // otherwise the program would see this file
	case p.Program[at].Exec == o.driver.Exec && bytes.Equal(p.Program[at].Data, o.driver.Data):
		return slices.Delete(slices.Clone(p.Program), at, at+1), o.pipes
	}
	return p.Program, o.pipes
}

// close closes the streams that no program has got.
func (o *prepared) close() {
	if o.pipes != nil {
		o.pipes.closeTheirs()
		o.pipes.close(0)
		o.pipes = nil
	}
}
