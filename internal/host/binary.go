package host

import (
	"encoding/binary"
	"os"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// elfMagic begins an ELF file (elf(5)).
const elfMagic = "\x7fELF"

// elfForm says where the fields of an ELF header and of a program header are, in one of the two sizes of words.
type elfForm struct {
	table, size, count int // e_phoff, e_phentsize, e_phnum
	header             int // bytes of a program header
	offset, bytes      int // p_offset, p_filesz
	word               func(b []byte) uint64
}

// elfForms are the forms. The kernel decides by the machine in the header, and ignores the fields for the class and for the order of bytes.
func elfForms() []elfForm {
	return []elfForm{
		{32, 54, 56, 56, 8, 32, binary.NativeEndian.Uint64},
		{28, 42, 44, 32, 4, 16, func(b []byte) uint64 { return uint64(binary.NativeEndian.Uint32(b)) }},
	}
}

// segmentLoader is PT_INTERP, the type of the segment with the path of the loader.
const segmentLoader = 3

// Bounds of the kernel.
const (
	maxHeaders = 64 << 10 // bytes of all program headers
	maxLoader  = 4096     // bytes of the path of a loader
)

// openPlain opens a regular file that others may have named. It refuses files of the kernel: a read of some of them, such as trace_pipe, waits for ever, and
// the timeout of a command does not end it.
func openPlain(path string) (*os.File, error) {
	f, err := plainfile.Open(path) // it does not wait for a FIFO
	if err == nil && ofKernel(f) {
		_ = f.Close()
		return nil, plainfile.ErrNotRegular
	}
	return f, err
}

// elfFile reports whether a file begins as an ELF file does.
func elfFile(f *os.File) bool {
	var b [len(elfMagic)]byte
	_, err := f.ReadAt(b[:], 0)
	return err == nil && string(b[:]) == elfMagic
}

// binaryFile reports whether a path names an ELF file.
func binaryFile(path string) bool {
	f, err := openPlain(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return elfFile(f)
}

// loadersOf returns the paths of the loaders of an ELF file: one, or none. A file that can be read as either form has perhaps two. Callers may have
// made the file, and no rule has allowed it yet. So loadersOf reads only the headers that the kernel reads, within its bounds. Package debug/elf
// allocates tables of the size that the file claims, and panics for some files.
func loadersOf(path string) (all []string) {
	f, err := openPlain(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var head [64]byte
	if _, err = f.ReadAt(head[:], 0); err != nil || string(head[:len(elfMagic)]) != elfMagic {
		return nil
	}
	for _, form := range elfForms() {
		if loader := form.loader(f, head[:]); loader != "" {
			all = append(all, loader)
		}
	}
	return all
}

// loader returns the path of the loader of a file of this form with the first bytes head, or "".
func (form elfForm) loader(f *os.File, head []byte) string {
	if int(binary.NativeEndian.Uint16(head[form.size:])) != form.header {
		return ""
	}
	headers := make([]byte, form.header*int(binary.NativeEndian.Uint16(head[form.count:])))
	if len(headers) > maxHeaders {
		return ""
	}
	if _, err := f.ReadAt(headers, int64(form.word(head[form.table:]))); err != nil {
		return ""
	}
	for ; len(headers) > 0; headers = headers[form.header:] {
		if binary.NativeEndian.Uint32(headers) != segmentLoader {
			continue
		}
		size := form.word(headers[form.bytes:])
		if size > maxLoader {
			return ""
		}
		loader := make([]byte, size)
		if _, err := f.ReadAt(loader, int64(form.word(headers[form.offset:]))); err != nil {
			return ""
		}
		text, _, _ := strings.Cut(string(loader), "\x00")
		return text
	}
	return ""
}
