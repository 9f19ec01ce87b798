package host

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// segment returns the program header of a segment that begins at byte 200 of a file.
func segment(kind uint32, size uint64) []byte {
	var b []byte
	for _, v := range []any{kind, uint32(4), uint64(200), uint64(0), uint64(0), size, size, uint64(1)} {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// dynamic returns a program with a loader.
func dynamic(loader string) []byte {
	return append(append(append(elfOf(1, 0, 0, 0), segment(3, uint64(len(loader)+1))...), make([]byte, 80)...), loader+"\x00"...)
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
	for _, c := range []struct {
		kind uint32
		size uint64
		at   int // position of a byte that is changed, which the kernel does not look at
		want string
	}{{3, 14, 7, "/lib/ld.so"}, {1, 14, 7, ""}, {3, 5000, 7, ""}, {3, 1 << 63, 7, ""}, {3, 4000, 7, ""}, {3, 14, 4, "/lib/ld.so"}, {3, 14, 5, "/lib/ld.so"}} {
		whole := append(append(elfOf(1, 0, 0, 0), segment(c.kind, c.size)...), make([]byte, 80)...)
		whole[c.at] ^= 3
		if err := os.WriteFile(path, append(whole, "/lib/ld.so\x00x\x00\x00"...), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(loadersOf(path), " "); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

// TestAProgramBehindManyLinksIsNotThere: a program is found behind as many links as the kernel follows. Others may have made the links, and
// further ones can lead through thousands of directories, before any rule is looked at.
func TestAProgramBehindManyLinksIsNotThere(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "program")
	if err := os.WriteFile(at, elfOf(0, 0, 0, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		next := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Symlink(at, next); err != nil {
			t.Fatal(err)
		}
		at = next
		if _, err := os.Stat(at); (newProgram(at).path != "") != (err == nil) {
			t.Errorf("behind %d links: got %q, want it as the kernel: %v", i+1, newProgram(at).path, err)
		}
	}
}

// TestLoadersBehindManyLinksTakeNoTime: a file may name two loaders, these two again, and each path may lead through thousands of directories. No rule has
// allowed such a file yet.
func TestLoadersBehindManyLinksTakeNoTime(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	turns := strings.Repeat("../"+filepath.Base(dir)+"/", 360)
	for link, target := range map[string]string{"one": turns, "two": "one/" + turns, "three": "two/" + turns, "four": "three/" + turns, "five": "four/" + turns} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skipf("this system makes no links: %v", err)
		}
	}
	for link, want := range map[string]bool{"one": true, "five": false} { // 3600 names are not too many for one path
		path := filepath.Join(dir, "for-"+link)
		if err := os.WriteFile(path, dynamic(filepath.Join(dir, link, "for-"+link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := newProgram(path); (got.path != "") != want {
			t.Errorf("loaders behind %s: got %q by %d ways, want that it is there: %v", link, got.path, len(got.ways), want)
		}
	}
}

// TestInterpretersAreThoseOfTheKernel: the kernel ends the first line of a script at a zero byte, and divides it at blanks and tabs alone.
func TestInterpretersAreThoseOfTheKernel(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	for name, rest := range map[string]string{"a": "\x00b\n", "b\u00a0c": "\n", "d\ve": " x\n", "f\r": "\n", "g": "\th\r\n", "i": " \x00j"} {
		interpreter := filepath.Join(dir, name)
		if err := os.WriteFile(interpreter, elfOf(0, 0, 0, 0), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(script, []byte("#! "+interpreter+rest), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := newProgram(script).execs; !slices.Equal(got, []string{script, interpreter}) {
			t.Errorf("%q: got %q, want the interpreter", name+rest, got)
		}
	}
	for _, line := range []string{"#!/usr/bin/env -S sh\v-c\n", "#!/usr/bin/env -S sh\f\n"} {
		if err := os.WriteFile(script, []byte(line), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, env, after := interpreterOf(script); !env || after != nil {
			t.Errorf("%q: got %v, %q, want that the words of env are not known", line, env, after)
		}
	}
}

// TestProgramsOfTheDirectoryAreNone: the kernel looks for an interpreter or a loader with a relative path in the directory of the command,
// which a program in a sandbox may be able to change.
func TestProgramsOfTheDirectoryAreNone(t *testing.T) {
	dir := t.TempDir()
	script, relative := filepath.Join(dir, "script"), filepath.Join(dir, "relative")
	for path, content := range map[string][]byte{script: []byte("#!" + relative + "\n"), relative: []byte("#!sh\n"), filepath.Join(dir, "binary"): dynamic("ld.so")} {
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"script", "relative", "binary"} {
		if p := newProgram(filepath.Join(dir, name)); p.path != "" {
			t.Errorf("%s: got %q, want that it is no program", name, p.path)
		}
	}
}

// TestTheLoaderBehindScriptsIsKnown: the kernel begins five scripts before a binary.
func TestTheLoaderBehindScriptsIsKnown(t *testing.T) {
	dir := t.TempDir()
	next, loader := filepath.Join(dir, "binary"), filepath.Join(dir, "loader")
	for path, content := range map[string][]byte{next: dynamic(loader), loader: elfOf(0, 0, 0, 0)} {
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		script := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(script, []byte("#!"+next+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		next = script
	}
	if got := newProgram(next).execs; !slices.Contains(got, loader) {
		t.Errorf("got %q, want the loader %q", got, loader)
	}
}
