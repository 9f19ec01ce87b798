package seccomp

import (
	"encoding/binary"
	"slices"
)

// usual are the variants that most machines need: what all processes of a jail have; with and without
// control groups, what the programs of a sandbox and the processes that enter it have besides; and the whole
// of it, for containers. Their filters are compiled ahead, by tools/usualfilters, because compiling two takes
// as long as building a sandbox.
var usual = [...]Variant{
	{Part: Common},
	{Part: Rest, Notices: true},
	{Part: Rest, AllowSetns: true},
	{Part: Rest, NoSharedMemory: true, Watched: true, Notices: true},
	{Part: Rest, NoSharedMemory: true, Watched: true, AllowSetns: true},
	{Notices: true},
}

// Filter returns the filter that Compile would return. For the usual variants and this program's
// architecture, it was compiled ahead.
func Filter(v Variant, a Arch) ([]byte, error) {
	rest := usualBytes
	if native, ok := Native(); !ok || a != native {
		rest = ""
	}
	for _, u := range usual {
		if rest == "" {
			break
		}
		n := 4 + binary.LittleEndian.Uint32([]byte(rest[:4]))
		if u == v {
			return []byte(rest[4:n]), nil
		}
		rest = rest[n:]
	}
	return Compile(New(v), a)
}

// CompileUsual returns the filters of the usual variants in their order, each after its length in 4 bytes.
func CompileUsual(a Arch) ([]byte, error) {
	var out []byte
	for _, v := range usual {
		f, err := Compile(New(v), a)
		if err != nil {
			return nil, err
		}
		out = slices.Concat(binary.LittleEndian.AppendUint32(out, uint32(len(f))), f)
	}
	return out, nil
}
