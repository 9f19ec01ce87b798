package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// script is a list of system calls that the program of init/init.c makes in order. It
// stops at the first call that fails, unless that call has mayFail.
type script struct {
	calls   []call
	data    []byte
	names   []string // what each call does, for error messages
	results []reg    // registers whose values are returned
	fds     []reg    // registers whose descriptors are returned
	regs    reg
	err     error // why the script cannot be encoded
}

type call struct {
	nr, flags uint32
	tag       [6]uint8
	keep      uint8
	arg       [6]uint64
}

// arg is an argument of a call. init.c defines the tags.
type arg struct {
	tag uint8
	v   uint64
}

type reg uint8

const (
	tagNumber = iota
	tagBytes
	tagDescriptor
	tagResult
)

const (
	mayFail = 1
	store64 = 0xffffffff
	store32 = 0xfffffffe
	load32  = 0xfffffffd
	network = 0xfffffffc

	maxRegs = 63
)

func num[T ~int | ~int64 | ~uint32 | ~uint64 | ~uintptr](v T) arg { return arg{tagNumber, uint64(v)} }

func passed(i int) arg { return arg{tagDescriptor, uint64(i)} }

func (r reg) arg() arg { return arg{tagResult, uint64(r)} }

// bytes puts b into the packet, 8-byte aligned, and returns a pointer to it.
func (s *script) bytes(b []byte) arg {
	at := s.aligned()
	s.data = append(s.data, b...)
	return at
}

func (s *script) str(v string) arg {
	at := s.aligned()
	s.data = append(append(s.data, v...), 0)
	return at
}

// aligned returns the address of the next bytes, and adds zeros before them.
func (s *script) aligned() arg {
	for len(s.data)%8 != 0 {
		s.data = append(s.data, 0)
	}
	return arg{tagBytes, uint64(len(s.data))}
}

// at returns the address a plus offset.
func at(a arg, offset uint64) arg { return arg{a.tag, a.v + offset} }

// do adds a call that must succeed. name describes it in error messages, such as "mount
// /tmp".
func (s *script) do(name string, nr int, args ...arg) { s.add(name, uint32(nr), 0, 0, args) }

// try adds a call that may fail.
func (s *script) try(name string, nr int, args ...arg) { s.add(name, uint32(nr), mayFail, 0, args) }

// keep adds a call and returns the register of its result.
func (s *script) keep(name string, nr int, args ...arg) reg {
	r := s.reg()
	s.add(name, uint32(nr), 0, r, args)
	return r
}

// probe adds a call whose result or negative errno is returned to the server.
func (s *script) probe(name string, nr int, args ...arg) (index int) {
	r := s.reg()
	s.add(name, uint32(nr), mayFail, r, args)
	s.results = append(s.results, r)
	return len(s.results) - 1
}

func (s *script) store(name string, size uint32, where, what arg) {
	s.add(name, size, 0, 0, []arg{where, what})
}

// give returns the descriptor in r to the server.
func (s *script) give(r reg) (index int) {
	s.fds = append(s.fds, r)
	return len(s.fds) - 1
}

func (s *script) reg() reg {
	if s.regs >= maxRegs {
		s.err = errors.New("script needs too many registers")
		return s.regs
	}
	s.regs++
	return s.regs
}

func (s *script) add(name string, nr, flags uint32, keep reg, args []arg) {
	c := call{nr: nr, flags: flags, keep: uint8(keep)}
	for i, a := range args {
		c.tag[i], c.arg[i] = a.tag, a.v
	}
	s.calls, s.names = append(s.calls, c), append(s.names, name)
}

const (
	scriptHead = 64
	callSize   = 64
	maxPacket  = 1<<18 - 1
)

// encode appends the script to the packet p. Pointers become offsets from the start of
// the packet.
func (s *script) encode(p []byte, kind uint32) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	start := len(p)
	base := uint64(start + scriptHead + callSize*len(s.calls))
	p = slices.Grow(p, scriptHead+callSize*len(s.calls)+len(s.data))
	le := binary.LittleEndian
	p = le.AppendUint32(p, kind)
	p = le.AppendUint32(p, uint32(len(s.calls)))
	p = le.AppendUint32(p, uint32(len(s.results)))
	p = le.AppendUint32(p, uint32(len(s.fds)))
	var res [32]byte
	var fds [16]byte
	for i, r := range s.results {
		res[i] = byte(r)
	}
	for i, r := range s.fds {
		fds[i] = byte(r)
	}
	p = append(append(p, res[:]...), fds[:]...)
	for _, c := range s.calls {
		p = le.AppendUint32(p, c.nr)
		p = le.AppendUint32(p, c.flags)
		p = append(append(p, c.tag[:]...), c.keep, 0)
		for i, v := range c.arg {
			if c.tag[i] == tagBytes {
				v += base
			}
			p = le.AppendUint64(p, v)
		}
	}
	p = append(p, s.data...)
	if len(p) > maxPacket {
		return nil, fmt.Errorf("script of %d bytes is over the packet size", len(p))
	}
	return p, nil
}

// failure returns an error that names the call that failed.
func (s *script) failure(index, errno uint32) error {
	name := "call"
	if int(index) < len(s.names) {
		name = s.names[index]
	}
	return fmt.Errorf("%s: %w", name, unix.Errno(errno))
}

// mount adds mount(2).
func (s *script) mount(source, target, fstype string, flags uintptr, data string) {
	d := num(0)
	if data != "" {
		d = s.str(data)
	}
	s.do("mount "+target, unix.SYS_MOUNT, s.str(source), s.str(target), s.str(fstype), num(flags), d)
}

// mkdirs makes a directory and its parents, and records them in made.
func (s *script) mkdirs(path string, made map[string]bool) {
	if path == "/" || made[path] {
		return
	}
	s.mkdirs(filepath.Dir(path), made)
	made[path] = true
	s.do("mkdir "+path, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(path), num(0o755))
}

// file makes a file with mode 0644.
func (s *script) file(path string, content []byte) {
	fd := s.create(path)
	if len(content) > 0 {
		s.do("write "+path, unix.SYS_WRITE, fd.arg(), s.bytes(content), num(len(content)))
	}
	s.close(path, fd)
}

// create makes and opens an empty file with mode 0644.
func (s *script) create(path string) reg {
	return s.keep("make "+path, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(path), num(unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC), num(0o644))
}

// close closes a descriptor, which is that of the file at path, and releases its register.
func (s *script) close(path string, fd reg) {
	s.do("close "+path, unix.SYS_CLOSE, fd.arg())
	s.free(fd)
}

// free releases the register r if it was allocated last.
func (s *script) free(r reg) {
	if r == s.regs {
		s.regs--
	}
}
