package host_test

import (
	"debug/elf"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// withData is a program whose file asks for data of a size. It has no code, so it ends by a signal.
func withData(t *testing.T, size uint64) string {
	t.Helper()
	machine, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if !known {
		t.Skip("the test knows no program header of this architecture")
	}
	const page, at, data = 64 << 10, 4 << 20, 256 << 20
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: at + 512, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2,
	}
	parts := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: at, Filesz: page, Memsz: page, Align: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Vaddr: data, Filesz: page, Memsz: size, Align: page},
	}
	var b strings.Builder
	for _, part := range []any{head, parts} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString(strings.Repeat("\x00", page-b.Len()))
	return b.String()
}

// TestAProgramBeginsWithinItsLimitOfData: the kernel makes the data that a program file asks for before the server can limit it.
func TestAProgramBeginsWithinItsLimitOfData(t *testing.T) {
	b := open(t)
	small, large := b.tool("small", withData(t, 64<<20)), b.tool("large", withData(t, 1100<<20))
	b.allow(small)
	b.allow(large)
	out, err := b.exec(small)
	if err != nil || out.ExitCode < 128 {
		t.Errorf("a small one: got %+v, %v, want it to end by a signal", out, err)
	}
	if !slices.Contains(out.Walls, "rlimits") {
		t.Skip("processes have no limits here")
	}
	if out, err = b.exec(large); err == nil || !strings.Contains(err.Error(), "more data") {
		t.Errorf("a large one: got %+v, %v, want that it has more data than it may have", out, err)
	}
}
