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
	word               func(o binary.ByteOrder, b []byte) uint64
}

// elfForms are the forms by the class of a file.
var elfForms = map[byte]elfForm{
	1: {28, 42, 44, 32, 4, 16, func(o binary.ByteOrder, b []byte) uint64 { return uint64(o.Uint32(b)) }},
	2: {32, 54, 56, 56, 8, 32, binary.ByteOrder.Uint64},
}

// segmentLoader is PT_INTERP, the type of the segment with the path of the loader.
const segmentLoader = 3

// Bounds of the kernel.
const (
	maxHeaders = 64 << 10 // bytes of all program headers
	maxLoader  = 4096     // bytes of the path of a loader
)

// elfFile reports whether a file begins as an ELF file does.
func elfFile(f *os.File) bool {
	var b [len(elfMagic)]byte
	_, err := f.ReadAt(b[:], 0)
	return err == nil && string(b[:]) == elfMagic
}

// binaryFile reports whether a path names an ELF file.
func binaryFile(path string) bool {
	f, err := plainfile.Open(path) // it does not wait for a FIFO
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return elfFile(f)
}

// loaderOf returns the path of the loader of an ELF file, or "". Callers may have made the file, and nobody has to have allowed it. So
// nothing is read but what the kernel reads: package debug/elf reads tables into memory that are as large as the file says, and panics for some files.
func loaderOf(path string) string {
	f, err := plainfile.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	var head [64]byte
	if _, err = f.ReadAt(head[:], 0); err != nil || string(head[:len(elfMagic)]) != elfMagic {
		return ""
	}
	form, known := elfForms[head[4]]
	var order binary.ByteOrder = binary.LittleEndian
	if head[5] == 2 {
		order = binary.BigEndian
	}
	if !known || int(order.Uint16(head[form.size:])) != form.header {
		return ""
	}
	headers := make([]byte, form.header*int(order.Uint16(head[form.count:])))
	if len(headers) > maxHeaders {
		return ""
	}
	if _, err = f.ReadAt(headers, int64(form.word(order, head[form.table:]))); err != nil {
		return ""
	}
	for ; len(headers) > 0; headers = headers[form.header:] {
		if order.Uint32(headers) != segmentLoader {
			continue
		}
		size := form.word(order, headers[form.bytes:])
		if size > maxLoader {
			return ""
		}
		loader := make([]byte, size)
		if _, err = f.ReadAt(loader, int64(form.word(order, headers[form.offset:]))); err != nil {
			return ""
		}
		text, _, _ := strings.Cut(string(loader), "\x00")
		return text
	}
	return ""
}
