package seccomp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	moby "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The lists in the rules must name calls that exist, or a slip of the pen opens
// a door without a sound.
func TestListedNamesExist(t *testing.T) {
	known := map[string]bool{}
	for _, n := range append(amd64Numbers(), arm64Numbers()...) {
		known[n.name] = true
	}
	for _, list := range []string{refusedNames, absentNames, sharedMemoryNames} {
		for n := range strings.FieldsSeq(list) {
			if !known[n] {
				t.Errorf("%s: got it in no table, want it in one", n)
			}
		}
	}
	for _, a := range []Arch{AMD64, ARM64} {
		for n := range (Policy{}).rulesOf(a) {
			if !known[n] {
				t.Errorf("%s: got %s in no table, want it in one", a, n)
			}
		}
	}
}

// The baseline is what the pinned profile allows without capabilities and
// without looking at arguments.
func TestBaselineIsTheProfile(t *testing.T) {
	for _, a := range []Arch{AMD64, ARM64} {
		numbers, err := numbersOf(a)
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]bool{}
		for _, n := range numbers {
			has[n.name] = true
		}
		var want []string
		for _, s := range moby.DefaultProfile().Syscalls {
			conditional := len(s.Args) > 0 || s.Action != specs.ActAllow || s.Excludes != nil
			if in := s.Includes; in != nil {
				conditional = conditional || len(in.Caps) > 0 || in.MinKernel != nil ||
					len(in.Arches) > 0 && !slices.Contains(in.Arches, string(a))
			}
			for _, n := range s.Names {
				if !conditional && has[n] {
					want = append(want, n)
				}
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(slices.Compact(want), baselineOf(a)); diff != "" {
			t.Errorf("%s: run go generate (-profile +baseline):\n%s", a, diff)
		}
	}
}

// The numbers are those of golang.org/x/sys/unix.
func TestNumbersAreThoseOfTheSystem(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Skipf("no go command to find the module: %v", err)
	}
	for _, a := range []Arch{AMD64, ARM64} {
		src, err := os.ReadFile(filepath.Join(string(bytes.TrimSpace(dir)), "zsysnum_linux_"+string(a)+".go"))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]uint32{}
		for _, m := range regexp.MustCompile(`SYS_(\w+) +=\s+(\d+)`).FindAllStringSubmatch(string(src), -1) {
			nr, err := strconv.ParseUint(m[2], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			if m[1] != "ARCH_SPECIFIC_SYSCALL" {
				want[strings.ToLower(m[1])] = uint32(nr)
			}
		}
		got := map[string]uint32{}
		numbers, err := numbersOf(a)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range numbers {
			got[n.name] = n.nr
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: run go generate (-system +table):\n%s", a, diff)
		}
	}
}

// A tree larger than a conditional jump can reach must still be right.
func TestFarJumps(t *testing.T) {
	var leaves []leaf
	for nr := range uint32(700) {
		leaves = append(leaves, leaf{nr, rule{otherwise: Verdict(nr)}})
	}
	prog, err := layout(graph{}.numbers(leaves))
	if err != nil {
		t.Fatal(err)
	}
	if err := check(prog); err != nil {
		t.Fatal(err)
	}
	far := slices.ContainsFunc(prog, func(in instruction) bool { return in.code == opJump })
	if !far {
		t.Error("a tree of 700 leaves: got no far jump, want one")
	}
	for nr := range uint32(700) {
		pc := 0
		for prog[pc].code != opReturn {
			switch in := prog[pc]; {
			case in.code == opLoad:
				pc++
			case in.code == opJump:
				pc += int(in.k) + 1
			case nr >= in.k:
				pc += int(in.jt) + 1
			default:
				pc += int(in.jf) + 1
			}
		}
		if got := prog[pc].k; got != nr {
			t.Fatalf("number %d: got verdict %d", nr, got)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	ret := instruction{code: opReturn}
	for name, prog := range map[string][]instruction{
		"too long":       slices.Repeat([]instruction{{code: opEqual}}, MaxInstructions+1),
		"jump out":       {{code: opEqual, jt: 5}, ret},
		"far jump out":   {{code: opJump, k: 0xffffffff}, ret},
		"no return":      {{code: opLoad}},
		"unreachable":    {ret, ret},
		"unknown opcode": {{code: 0x87}, ret},
	} {
		if err := check(prog); err == nil {
			t.Errorf("%s: got no error, want a refusal", name)
		}
	}
}
