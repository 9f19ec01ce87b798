package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// Bounds of the wire, as in program/relay.c.
const (
	maxPacket  = 1 << 17
	maxWaiting = 20 << 10
	maxAnswer  = 1 << 16
	maxCalls   = 60
	maxFiles   = 20

	listHead = 32
	callSize = 64
)

const (
	mayFail = 1
	always  = 2 // it is made although a call before it has failed

	store64 = 0xffffffff
)

// arg is an argument of a call.
type arg struct {
	tag uint8
	v   uint64
}

const (
	tagNumber = iota
	tagBytes
	tagAnswer
	tagResult
)

func num[T ~int | ~int64 | ~uint32 | ~uint64](v T) arg { return arg{tagNumber, uint64(v)} }

// answer is a place in the bytes of the answer.
func answer(offset int) arg { return arg{tagAnswer, uint64(offset)} }

// result is the result of an earlier call of the list.
func result(call int) arg { return arg{tagResult, uint64(call)} }

// minus is the argument -1.
var minus = arg{tagNumber, 1<<64 - 1}

type sysCall struct {
	nr, flags uint32
	args      []arg
}

// list is a list of system calls that the relay makes.
type list struct {
	arch   seccomp.Arch
	fd     int // it waits for this descriptor; -1: it does not wait
	events int
	size   int // bytes of the answer
	from   int // the call whose result is the number of these bytes, from 1; 0: all of them
	calls  []sysCall
	data   []byte
	err    error
}

// do adds a call that must succeed, and returns its index.
func (l *list) do(name string, args ...arg) int { return l.add(name, 0, args) }

// try adds a call that may fail.
func (l *list) try(name string, args ...arg) int { return l.add(name, mayFail, args) }

// finally adds a call that is always made.
func (l *list) finally(name string, args ...arg) int { return l.add(name, mayFail|always, args) }

func (l *list) add(name string, flags uint32, args []arg) int {
	nr, ok := seccomp.Number(l.arch, name)
	if !ok && l.err == nil {
		l.err = fmt.Errorf("there is no system call %s on %s", name, l.arch)
	}
	l.calls = append(l.calls, sysCall{nr, flags, args})
	return len(l.calls) - 1
}

// store adds the storing of a 64-bit value.
func (l *list) store(where, what arg) {
	l.calls = append(l.calls, sysCall{store64, 0, []arg{where, what}})
}

// bytes puts b into the packet, 8-byte aligned, and returns its place.
func (l *list) bytes(b []byte) arg {
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	at := len(l.data)
	l.data = append(l.data, b...)
	return arg{tagBytes, uint64(at)}
}

func (l *list) str(s string) arg { return l.bytes(append([]byte(s), 0)) }

// packet encodes the list.
func (l *list) packet(kind byte, tag uint32) ([]byte, error) {
	if l.err == nil && len(l.calls) > maxCalls {
		l.err = errors.New("the list has too many system calls")
	}
	start := listHead + callSize*len(l.calls)
	size := start + len(l.data)
	if most := maxPacket; l.err == nil && (size > most || l.fd >= 0 && size > maxWaiting) {
		l.err = fmt.Errorf("the list has %d bytes", size)
	}
	if l.err != nil {
		return nil, l.err
	}
	p := words(uint32(size), uint32(kind), tag, uint32(int32(l.fd)), uint32(l.events), uint32(len(l.calls)), uint32(l.size), uint32(l.from))
	for _, c := range l.calls {
		p = append(p, words(c.nr, c.flags)...)
		var tags [8]byte
		var args [6]uint64
		for i, a := range c.args {
			tags[i], args[i] = a.tag, a.v
			if a.tag == tagBytes {
				args[i] += uint64(start)
			}
		}
		p = append(p, tags[:]...)
		for _, v := range args {
			p = binary.LittleEndian.AppendUint64(p, v)
		}
	}
	return append(p, l.data...), nil
}

func words(v ...uint32) []byte {
	var p []byte
	for _, x := range v {
		p = binary.LittleEndian.AppendUint32(p, x)
	}
	return p
}

// reply is the answer to a list.
type reply struct {
	results []int64
	bytes   []byte
}

// value returns the result of a call.
func (r reply) value(call int) (int, error) {
	if call >= len(r.results) {
		return 0, errors.New("the relay gave no result")
	}
	if v := r.results[call]; v < 0 {
		return 0, failure(int(-v))
	}
	return int(r.results[call]), nil
}

// check returns the error of the first call that failed and was not allowed to. If it returns nil, every
// call has a result. A list that the relay refused has one result, its error.
func (r reply) check(l *list) error {
	if len(r.results) != len(l.calls) {
		if _, err := r.value(0); err != nil && len(r.results) == 1 {
			return err
		}
		return errGone
	}
	for i, c := range l.calls {
		if _, err := r.value(i); err != nil && c.flags&mayFail == 0 {
			return err
		}
	}
	return nil
}

// Error numbers of Linux.
const (
	errAGAIN      = 11
	errINPROGRESS = 115
)

// failures are the error numbers of Linux as this system has them.
var failures = map[int]error{
	1: syscall.EPERM, 2: syscall.ENOENT, 3: syscall.ESRCH, 6: syscall.ENXIO, 7: syscall.E2BIG, 8: syscall.ENOEXEC, 9: syscall.EBADF, errAGAIN: syscall.EAGAIN, 12: syscall.ENOMEM,
	13: syscall.EACCES, 17: syscall.EEXIST, 18: syscall.EXDEV, 20: syscall.ENOTDIR, 21: syscall.EISDIR, 22: syscall.EINVAL, 24: syscall.EMFILE,
	28: syscall.ENOSPC, 32: syscall.EPIPE, 36: syscall.ENAMETOOLONG, 39: syscall.ENOTEMPTY, 40: syscall.ELOOP, 98: syscall.EADDRINUSE,
	104: syscall.ECONNRESET, 110: syscall.ETIMEDOUT, 111: syscall.ECONNREFUSED, errINPROGRESS: syscall.EINPROGRESS, 125: fs.ErrClosed,
}

func failure(number int) error {
	if err, ok := failures[number]; ok {
		return err
	}
	return fmt.Errorf("system call failed with error %d", number)
}
