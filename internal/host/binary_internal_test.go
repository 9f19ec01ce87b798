package host

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// elfOf returns an ELF header of 64 bits with tables of program headers and of sections.
func elfOf(headers uint16, sectionsAt uint64, sections, names uint16) []byte {
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	for _, v := range []any{uint16(2), uint16(62), uint32(1), uint64(0x400000), uint64(64), sectionsAt, uint32(0), uint16(64), uint16(56), headers, uint16(64), sections, names} {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// section returns a section header.
func section(kind uint32, size uint64, link uint32) []byte {
	var b []byte
	for _, v := range []any{uint32(0), kind, uint64(0), uint64(0), uint64(4096), size, link, uint32(0), uint64(1), uint64(0)} {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// TestAProgramFileThatNobodyAllowedCostsNothing: a caller may name any file as a program. The server reads of it what the kernel reads, so
// that a file which claims to have large tables takes no memory, and one whose tables contradict each other is no fault.
func TestAProgramFileThatNobodyAllowedCostsNothing(t *testing.T) {
	const large = 64 << 20
	path := filepath.Join(t.TempDir(), "program")
	for name, begin := range map[string][]byte{
		"names of sections": append(append(elfOf(0, 64, 2, 1), section(0, 0, 0)...), section(3, large-4096, 0)...),
		"number of names":   append(elfOf(0, 64, 0, 0xffff), section(0, 0xff00, 0xfffffff0)...),
		"program headers":   elfOf(0xffff, 0, 0, 0),
	} {
		if err := os.WriteFile(path, begin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, large); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := newProgram(path)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; len(p.execs) != 1 || got > large/8 {
			t.Errorf("%s: got %q with %d bytes of memory, want the file alone", name, p.execs, got)
		}
	}
}

// TestLoaderOf: the loader of a program is found as the kernel finds it.
func TestLoaderOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	segment := func(kind uint32, size uint64) []byte {
		var b []byte
		for _, v := range []any{kind, uint32(4), uint64(200), uint64(0), uint64(0), size, size, uint64(1)} {
			b, _ = binary.Append(b, binary.LittleEndian, v)
		}
		return b
	}
	for _, c := range []struct {
		kind uint32
		size uint64
		want string
	}{{3, 14, "/lib/ld.so"}, {1, 14, ""}, {3, 5000, ""}, {3, 1 << 63, ""}, {3, 4000, ""}} {
		whole := append(append(elfOf(1, 0, 0, 0), segment(c.kind, c.size)...), bytes.Repeat([]byte{0}, 80)...)
		if err := os.WriteFile(path, append(whole, "/lib/ld.so\x00x\x00\x00"...), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := loaderOf(path); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
